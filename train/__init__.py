"""Training programs: each reads a config, calls the library, and reads from top to bottom."""

from jaxwhiten import interrupts
from jaxwhiten.commands import cli

interrupts.handle_in_program()  # before anything heavy is imported
cli.need_config("train")
