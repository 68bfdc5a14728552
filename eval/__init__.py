"""Programs that score: `python -m eval.sts`."""

from jaxwhiten import interrupts

interrupts.handle_in_program()  # before anything heavy is imported
