"""Candidates of a search of codes, scored again by a finer copy."""

import numpy as np
import pytest

from jaxwhiten.search import build_index, load_index
from jaxwhiten.whitening import Whitening

N, D = 2000, 24


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((N, D)) * np.linspace(2, 0.3, D) + 0.3).astype(np.float32)


@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_the_copy_gives_nearly_the_true_scores_and_order(backend, vectors, tmp_path):
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
    truth = dict(zip(*(part[0] for part in exact.search(queries[:1], N)[::-1]), strict=True))
    np.testing.assert_allclose(found[0][0], [truth[i] for i in found[1][0]], atol=0.02)
    assert (np.diff(found[0], axis=1) <= 0).all()
    index.save(tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert loaded.nbytes == index.nbytes
    np.testing.assert_array_equal(loaded.search(queries, 10)[1], found[1])
