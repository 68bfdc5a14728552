"""Similarities under the names of sentence-transformers, equal to its own."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.metrics.similarity import SIMILARITIES, similarity, similarity_pairwise


@pytest.mark.parametrize("name", SIMILARITIES)
def test_equal_to_sentence_transformers(name):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    theirs = library.SimilarityFunction
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 7, 5)).astype(np.float32)
    np.testing.assert_allclose(similarity(a, b[:4], name), theirs.to_similarity_fn(name)(a, b[:4]), atol=1e-5)
    np.testing.assert_allclose(similarity_pairwise(a, b, name), theirs.to_similarity_pairwise_fn(name)(a, b), atol=1e-5)
    assert similarity(a[0], b, name).shape == (1, 7)


def test_of_an_encoder(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", similarity_fn_name="euclidean")
    a, b = np.eye(3, 4, dtype=np.float32), np.zeros((2, 4), np.float32)
    np.testing.assert_allclose(encoder.similarity(a, b), -np.ones((3, 2)))
    np.testing.assert_allclose(encoder.similarity_pairwise(a[:2], b), -np.ones(2))


MISTAKES = {
    "a typo": (lambda x: similarity(x, x, "cosin"), "'cosine'"),
    "other columns": (lambda x: similarity(x, x[:, :2]), "number of columns"),
    "fewer pairs": (lambda x: similarity_pairwise(x, x[:1]), "2 and 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    use, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words):
        use(np.ones((2, 3), np.float32))
