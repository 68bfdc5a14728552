"""Training programs: each reads a config, calls the library, and reads from top to bottom."""

import os

from configs import need
from jaxwhiten.terminal import interrupts

os.environ.setdefault("JAXWHITEN_ENGINE", "jax")  # the reference, on every machine
interrupts.handle_in_program()  # before anything heavy is imported
need("grain", "train")
