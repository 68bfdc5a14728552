"""Shared by every test: eight host devices, run-time checked shapes, tiny models, and the real data where it is."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from jaxtyping import install_import_hook

# Every jaxtyping annotation in the library is checked while the tests run.
install_import_hook("jaxwhiten", "beartype.beartype")

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real benchmark files, or a skip that says how to provide it."""
    folder = os.environ.get("JAXWHITEN_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set JAXWHITEN_DATA_DIR to a SentEval-style folder")
    return Path(folder).resolve()
