"""Shrinking an encoder, and searching its index by texts."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten import Encoder, Whitening
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.search import build_index
from tests.sentences import generated

TEXTS = generated(500)


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", tuned=True)


def ids(index, texts=TEXTS[:9]):
    return [[hit.id for hit in hits] for hits in index.search(texts, k=3)]


@pytest.mark.parametrize("how", [{"bytes": 8}, {"k": 6}, {"k": 20, "bytes": 8}])
def test_index_and_encoder_are_saved_and_searched_alike(encoder, tmp_path, how):
    small = encoder.shrink(TEXTS, **how)
    index = small.index(TEXTS, ids=[f"d{number}" for number in range(500)])
    hits = index.search(TEXTS[3], k=3)
    assert (hits[0].id, hits[0].text) == ("d3", TEXTS[3])
    scores, found = index.search(encoder.encode(TEXTS[:5]), k=3)  # of vectors before they were shrunk
    assert found.tolist() == ids(index, TEXTS[:5])
    np.testing.assert_allclose([[hit.score for hit in row] for row in index.search(TEXTS[:5], k=3)], scores, atol=1e-6)
    index.save(tmp_path / "idx")
    encoder.save(tmp_path / "whole")
    small.save(tmp_path / "small")
    assert jaxwhiten.load_index(tmp_path / "idx").search(TEXTS[3], k=3) == hits
    for folder in ("small", "whole"):
        assert ids(jaxwhiten.load_index(tmp_path / "idx", model=str(tmp_path / folder))) == ids(index)
    again = Encoder.from_pretrained(tmp_path / "small").index(TEXTS, ids=index.ids)
    for mine, other in zip(again.search(TEXTS[:9], k=1), index.search(TEXTS[:9], k=1), strict=True):
        assert (mine[0].id, mine[0].score) == (other[0].id, pytest.approx(other[0].score, abs=1e-5))


def test_an_index_finds_its_encoder_beside_it_or_where_it_has_moved(encoder, tmp_path, monkeypatch):
    (tmp_path / "pair").mkdir()
    monkeypatch.chdir(tmp_path / "pair")
    encoder.save("model")
    index = Encoder.from_pretrained("model").index(TEXTS[:9])
    index.save("idx")
    monkeypatch.chdir(tmp_path)
    assert ids(jaxwhiten.load_index("pair/idx")) == ids(index)
    (tmp_path / "pair" / "model").rename(tmp_path / "moved")
    assert ids(jaxwhiten.load_index("pair/idx", model="moved")) == ids(index)
    with pytest.raises(ModelError, match="`model`"):
        jaxwhiten.load_index("pair/idx").search(TEXTS[0], k=2)


def kinds(encoder):
    return [type(step).__name__ for step in encoder.view.head.steps]


def test_a_tuned_encoder_is_coded_as_it_is_and_another_is_whitened_first(encoder, tiny_model):
    untuned = Encoder.from_pretrained(tiny_model, pooling="mean", tuned=False)
    coded, whitened = encoder.shrink(TEXTS, bytes=8), untuned.shrink(TEXTS, bytes=8)
    assert kinds(coded) == ["Mean", "Quantize"]
    assert kinds(whitened) == ["Mean", "Whiten", "Normalize", "Quantize"]
    asked, both = encoder.shrink(TEXTS, bytes=8, gamma=0.25), encoder.shrink(TEXTS, k=20, bytes=8)
    assert kinds(asked) == kinds(both) == kinds(whitened)
    assert [small.view.head.whitening.gamma for small in (whitened, asked)] == [1, 0.25]
    assert (both.dimension, both.view.uncoded.dimension) == (8, 20)
    for small in (coded, whitened, asked, both):
        again = small.shrink(TEXTS, bytes=4)  # fits anew: nothing is coded or whitened twice
        assert kinds(again).count("Quantize") == 1
        assert kinds(again).count("Whiten") == (small is whitened)
        assert again.encode(TEXTS[:2]).shape == (2, 4)
        vectors, codes = small.view.uncoded(TEXTS), small.encode(TEXTS)
        error = ((codes.decode() - vectors) ** 2).sum() / ((vectors - vectors.mean(axis=0)) ** 2).sum()
        assert error == pytest.approx(small.view.head.code.distortion_, rel=0.35)
    index = coded.index(TEXTS, bytes=12)  # in place of those of the encoder
    assert (index.codes.name, index.codes.bytes) == ("spectrum", 12)


MISTAKES = {
    "nothing asked": (lambda e: e.shrink(TEXTS), "`bytes`"),
    "too many bytes": (lambda e: e.shrink(TEXTS, k=4, bytes=4), "at most 2"),
    "an index without an encoder": (lambda e: build_index(e.encode(TEXTS)).search("a text"), "Encoder.index"),
    "a pickle": (lambda e: pickle.dumps(e.index(TEXTS[:3])), "load_index"),
    "a deep copy": (lambda e: copy.deepcopy(e.index(TEXTS[:3])), "load_index"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_is_refused(encoder, mistake):
    use, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words):
        use(encoder)


def test_few_texts_and_copies(encoder):
    index = encoder.index(TEXTS)
    assert index.search([], k=2) == []
    assert len(index.search("a text", k=501)) == 500
    whitening = Whitening().fit(np.asarray(encoder.encode(TEXTS)))
    for copied in (pickle.dumps, copy.deepcopy):
        copied(whitening)
    assert copy.copy(encoder).encode(TEXTS[:1]).tolist() == encoder.encode(TEXTS[:1]).tolist()


@pytest.mark.filterwarnings("default")
def test_the_advice_of_a_warning_is_taken_in_python(encoder):
    for fit in (encoder.whiten, encoder.shrink):
        few = {"shrinkage": None} | ({"k": 32} if fit == encoder.shrink else {})
        with pytest.warns(UserWarning, match="n_components=") as warned:
            fit(TEXTS[:150], **few)
        most = int(str(warned[0].message).rstrip(".").rpartition("n_components=")[2])
        with warnings.catch_warnings(action="error"):
            assert fit(TEXTS[:150], shrinkage=None, n_components=most).dimension == most
