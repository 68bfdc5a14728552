"""Shrinking an encoder, and searching its index by texts."""

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index
from tests.conftest import slow_but
from tests.sentences import generated

TEXTS = generated(500)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", tuned=True)


def ids(index, texts=TEXTS[:9]):
    return [[hit.id for hit in hits] for hits in index.search(texts, k=3)]


@pytest.mark.parametrize("how", slow_but([{"bytes": 8}, {"k": 6}, {"k": 20, "bytes": 8}], {"k": 20, "bytes": 8}))
def test_index_and_encoder_are_saved_and_searched_alike(encoder, tmp_path, how):
    small = encoder.shrink(TEXTS, **how)
    index = small.index(TEXTS, ids=[f"d{number}" for number in range(500)])
    hits = index.search(TEXTS[3], k=3)
    assert (hits[0].id, hits[0].text) == ("d3", TEXTS[3])
    scores, found = index.search(encoder.encode(TEXTS[:5]), k=3)  # of vectors before they were shrunk
    assert found.tolist() == ids(index, TEXTS[:5])
    np.testing.assert_allclose([[hit.score for hit in row] for row in index.search(TEXTS[:5], k=3)], scores, atol=1e-6)
    assert (index.search([], k=2), len(index.search("a text", k=501))) == ([], 500)
    index.save(tmp_path / "idx")
    encoder.save(tmp_path / "whole")
    small.save(tmp_path / "small")
    assert jaxwhiten.load_index(tmp_path / "idx").search(TEXTS[3], k=3) == hits
    for folder in ("small", "whole"):
        assert ids(jaxwhiten.load_index(tmp_path / "idx", model=str(tmp_path / folder))) == ids(index)


def kinds(encoder):
    return [type(step).__name__ for step in encoder.view.head.steps]


def test_a_tuned_encoder_is_coded_as_it_is_and_another_is_whitened_first(encoder, tiny_model):
    untuned = Encoder.from_pretrained(tiny_model, pooling="mean", tuned=False)
    coded, whitened = encoder.shrink(TEXTS, bytes=8), untuned.shrink(TEXTS, bytes=8)
    assert kinds(coded) == ["Mean", "Quantize"]
    assert kinds(whitened) == ["Mean", "Whiten", "Normalize", "Quantize"]
    both = encoder.shrink(TEXTS, k=20, bytes=8)
    assert kinds(both) == kinds(whitened)
    assert (both.dimension, both.view.uncoded.dimension) == (8, 20)
    for small in (coded, whitened, both):
        again = small.shrink(TEXTS, bytes=4)  # fits anew: nothing is coded or whitened twice
        assert kinds(again).count("Quantize") == 1
        assert kinds(again).count("Whiten") == (small is whitened)
        assert again.encode(TEXTS[:2]).shape == (2, 4)
    index = coded.index(TEXTS, bytes=12)  # in place of those of the encoder
    assert (index.codes.name, index.codes.bytes) == ("spectrum", 12)


def test_what_cannot_be_is_refused(encoder):
    with pytest.raises(InputError, match="`bytes`"):
        encoder.shrink(TEXTS)
    with pytest.raises(InputError, match=r"Encoder\.index"):
        build_index(encoder.encode(TEXTS)).search("a text")
