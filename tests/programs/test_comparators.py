"""Codes that FAISS trains, there to compare with: as many bytes as they say, and the nearest documents found."""

import numpy as np
import pytest

from eval.comparators import Comparator
from jaxwhiten.whitening import Whitening

faiss = pytest.importorskip("faiss")
N, D = 3000, 32


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return (rng.standard_normal((N, D)) * np.arange(1, D + 1) ** -0.5 @ rotation + 0.05).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("opq", 4, marks=pytest.mark.slow),
        ("rabitq", 12),
        ("rabitq", 30),
    ],
)
def test_a_comparator_has_its_bytes_and_finds_the_nearest(name, size, vectors, capfd):
    queries = vectors[:50] + 0.1 * np.random.default_rng(1).standard_normal((50, D)).astype(np.float32)
    index = Comparator(name, size, vectors, Whitening(gamma=0.5).fit(vectors), vectors)
    assert size - 2 <= index.bytes <= size
    inner = index._index
    inner = faiss.downcast_index(inner.index) if isinstance(inner, faiss.IndexPreTransform) else inner
    assert inner.sa_code_size() == index.bytes
    scores, ids = index.search(queries, 5, prepared=False)
    assert (ids[:, 0] == np.arange(50)).mean() > 0.7
    assert np.abs(scores).max() < 1.5
    np.testing.assert_array_equal(index.search(index.prepare(queries), 5)[1], ids)
    assert "WARNING" not in "".join(capfd.readouterr())
