"""Programs that score: `python -m eval.sts`."""

import os

from configs import need

os.environ.setdefault("JAXWHITEN_ENGINE", "jax")  # the reference, on every machine
need("matplotlib", "eval")
