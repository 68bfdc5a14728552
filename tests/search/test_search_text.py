"""From sentences to sentences."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.search import build_index, load_index, search_text
from jaxwhiten.search.text import without_blank
from tests.tiny import SENTENCES


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32)


@pytest.fixture(scope="module")
def index(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    vectors = encoder.encode(SENTENCES, pooling="cls")
    build_index(vectors, "jax", space=encoder.view.with_pooling("cls").space, documents=SENTENCES).save(
        folder / "docs.db"
    )
    return load_index(folder / "docs.db")


def test_a_sentence_finds_itself_under_the_pooling_of_the_index(index, encoder):
    found = search_text(index, encoder, SENTENCES, 3)
    assert [len(hits) for hits in found] == [3] * len(SENTENCES)
    for number, hits in enumerate(found):
        assert hits[0].id == number
        assert hits[0].text == SENTENCES[number]
        assert hits[0].score == pytest.approx(1, abs=1e-5)
        assert hits[0].score >= hits[1].score >= hits[2].score


def test_texts_without_anything_to_read_are_blank():
    texts = ["a", " ", "\u200b", "\x00\x07 ", "\ufeff\u2060", "\u3164", "\u00ad\n", " .\u200b", "\U0001f600"]
    kept, ids, metadata, skipped = without_blank(texts, list(range(9)), [{"row": row} for row in range(9)])
    assert (kept, ids, skipped) == (["a", ".\u200b", "\U0001f600"], [0, 7, 8], 6)
    assert metadata == [{"row": row} for row in ids]


def test_without_texts_there_are_ids(encoder):
    vectors = encoder.encode(SENTENCES)
    index = build_index(vectors, "faiss-flat", space=encoder.view.space)
    ((hit,),) = search_text(index, encoder, [SENTENCES[2]], 1)
    assert (hit.id, hit.text) == (2, None)
    assert np.isclose(hit.score, 1, atol=1e-5)
