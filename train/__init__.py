"""Training programs: each reads a config, calls the library, and reads from top to bottom."""

from configs import need_config
from jaxwhiten import interrupts

interrupts.handle_in_program()  # before anything heavy is imported
need_config("train")
