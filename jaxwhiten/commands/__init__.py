"""The commands of `jaxwhiten`, one module each: `add_arguments(parser)` and `run(args)`; and what they share."""
