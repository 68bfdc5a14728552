"""FAISS's own indexes of the paper's settings and of GPUs: exact where all lists are searched, and clear errors."""

import numpy as np
import pytest

from eval.faiss_indexes import OPTIONS, FaissIndex
from jaxwhiten import Whitening
from jaxwhiten.errors import MissingDependencyError
from jaxwhiten.search import build_index

faiss = pytest.importorskip("faiss")
N, D = 2000, 12
VECTORS = (np.random.default_rng(0).standard_normal((N, D)) * np.arange(D, 0, -1) + 2).astype(np.float32)
QUERIES = VECTORS[:50] + np.float32(0.1)
GPU = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("whitening", [None, Whitening(6).fit(VECTORS)], ids=["raw", "whitened"])
def test_all_lists_find_what_an_exact_search_finds(name, whitening):
    if "gpu" in name and not GPU:
        with pytest.raises(MissingDependencyError, match=r"faiss-gpu|a GPU"):
            FaissIndex(VECTORS, name, whitening=whitening)
        return
    options = dict.fromkeys(OPTIONS[name], 8)
    index = FaissIndex(VECTORS, name, whitening=whitening, **options)
    exact = build_index(VECTORS, "faiss-flat", whitening=whitening)
    assert options.items() <= index.options.items()
    row = 4 * index.dimension
    assert N * row < index.nbytes < 1.1 * N * (row + 8)
    for rows in (slice(None), slice(1)):
        found, expected = (one.search(QUERIES[rows], 5) for one in (index, exact))
        np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
        np.testing.assert_array_equal(found[1], expected[1])
