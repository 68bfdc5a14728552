"""Programs that score: `python -m eval.sts`."""

import os

from configs import need
from jaxwhiten.terminal import interrupts

os.environ.setdefault("JAXWHITEN_ENGINE", "jax")  # the reference, on every machine
interrupts.handle_in_program()  # before anything heavy is imported
need("matplotlib", "eval")
