"""Training programs: each reads a config, calls the library, and reads from top to bottom."""

import os

from configs import need

os.environ.setdefault("JAXWHITEN_ENGINE", "jax")  # the reference, on every machine
need("grain", "train")
