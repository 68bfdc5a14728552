"""Candidates of a search of codes, scored again by a finer copy."""

import numpy as np
import pytest

from jaxwhiten.search import build_index
from jaxwhiten.whitening import Whitening

N, D = 2000, 24


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, D)) * np.linspace(2, 0.3, D) + 0.3).astype(np.float32)


@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_the_copy_gives_nearly_the_true_order(backend, vectors):
    if backend.startswith("faiss"):
        pytest.importorskip("faiss")
    whitening = Whitening(gamma=0.5).fit(vectors)
    queries = vectors[:40] + np.float32(0.01)
    exact = build_index(vectors, "jax", whitening=whitening)
    plain = build_index(vectors, backend, whitening=whitening, codes="spectrum", bytes=4)
    index = build_index(vectors, backend, whitening=whitening, codes="spectrum", bytes=4, rescore="float16")
    assert index.nbytes - plain.nbytes == N * D * 2
    wanted, found, rough = (i.search(queries, 10) for i in (exact, index, plain))

    def recall(ids):
        return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, wanted[1], strict=True)])

    assert recall(found[1]) > recall(rough[1]) + 0.1
    assert (np.diff(found[0], axis=1) <= 0).all()
