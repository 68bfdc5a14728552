"""Programs that score: `python -m eval.sts`."""

from jaxwhiten import interrupts
from jaxwhiten.commands import cli

interrupts.handle_in_program()  # before anything heavy is imported
cli.need_config("eval")
