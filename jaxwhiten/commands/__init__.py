"""The commands of `jaxwhiten`, one module each with `add_arguments(parser)` and `run(args)`, and shared helpers."""
