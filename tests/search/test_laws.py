"""What holds for an index without an oracle."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.search import build_index
from tests.sentences import generated

TEXTS = generated(400)


@pytest.mark.parametrize("options", [{}, {"bytes": 8}, {"codes": "int8", "rescore": "float16"}])
def test_a_search_of_a_text_is_that_of_its_vector(tiny_model, options):
    """With prompts of their own for queries and documents."""
    prompts = {"query": "Music: ", "document": "salt "}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, prompts=prompts, tuned=True)
    index = encoder.index(TEXTS, backend="jax", **options)
    [by_text] = index.search([TEXTS[7]], k=9)
    scores, ids = index.search(encoder.encode_query([TEXTS[7]]), 9)
    assert [hit.id for hit in by_text] == ids[0].tolist()
    np.testing.assert_allclose([hit.score for hit in by_text], scores[0], atol=1e-6)
    index.add(["Salt and pepper."])
    [hits] = index.hits(np.asarray(encoder.encode_document(["Salt and pepper."])), 3)
    assert hits[0].score > 0.8
    assert len(TEXTS) in [hit.id for hit in hits]
    given = build_index(encoder.encode_document(TEXTS), "jax", documents=TEXTS, **options)
    np.testing.assert_allclose(given.search(np.asarray(encoder.encode_query([TEXTS[7]])), 9)[0], scores, atol=1e-6)
