"""A pytest plugin that hides PyTorch, so that tests run as `make test` runs them: `pytest -p tests.without_torch`."""

import sys

# `import torch` then fails, and `importlib.util.find_spec("torch")` finds nothing.
sys.modules["torch"] = None
