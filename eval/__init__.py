"""Programs that score: `python -m eval.sts`."""

from configs import need_config
from jaxwhiten import interrupts

interrupts.handle_in_program()  # before anything heavy is imported
need_config("eval")
