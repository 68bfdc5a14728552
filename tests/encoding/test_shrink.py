"""Shrinking an encoder, and searching its index by texts."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import jaxwhiten
from jaxwhiten import Encoder, Whitening
from jaxwhiten.errors import InputError, ModelError
from jaxwhiten.head import Normalize
from jaxwhiten.search import build_index
from jaxwhiten.search import load_index as load_vectors
from tests.sentences import generated

TEXTS = generated(500)
IDS = [f"d{number}" for number in range(500)]


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder.from_pretrained(tiny_model, pooling="mean", tuned=True)


@pytest.mark.parametrize("how", [{"bytes": 8}, {"k": 6}, {"k": 20, "bytes": 8}])
def test_the_five_lines(encoder, tmp_path, how):
    small = encoder.shrink(TEXTS, **how)
    index = small.index(TEXTS, ids=IDS)
    assert index.search(TEXTS[3], k=3)[0].id == "d3"
    (first, second) = index.search(TEXTS[:2], k=1)
    assert (first[0].id, second[0].text) == ("d0", TEXTS[1])
    index.save(tmp_path / "idx")
    small.save(tmp_path / "small")
    assert jaxwhiten.load_index(tmp_path / "idx").search(TEXTS[3], k=3) == index.search(TEXTS[3], k=3)
    loaded = Encoder.from_pretrained(tmp_path / "small")
    again = loaded.index(TEXTS, ids=IDS)
    for mine, other in zip(again.search(TEXTS[:9], k=1), index.search(TEXTS[:9], k=1), strict=True):
        assert mine[0].id == other[0].id
        assert mine[0].score == pytest.approx(other[0].score, abs=1e-5)
    again.save(tmp_path / "again")
    assert jaxwhiten.load_index(tmp_path / "again").search(TEXTS[3], k=1)[0].id == "d3"


def test_an_index_takes_the_folder_of_its_encoder_or_of_the_shrunk_one(encoder, tmp_path):
    normalized = encoder.with_view(encoder.view.then(Normalize()))
    small = normalized.shrink(TEXTS, bytes=8)
    index = small.index(TEXTS)
    index.save(tmp_path / "idx")
    small.save(tmp_path / "small")
    normalized.save(tmp_path / "whole")
    for folder in ("small", "whole"):
        found = jaxwhiten.load_index(tmp_path / "idx", model=str(tmp_path / folder)).search(TEXTS[:3], k=2)
        assert [[hit.id for hit in hits] for hits in found] == [
            [hit.id for hit in hits] for hits in index.search(TEXTS[:3], k=2)
        ]


def test_an_index_finds_its_encoder_beside_it_or_where_it_has_moved(encoder, tmp_path, monkeypatch):
    (tmp_path / "pair").mkdir()
    monkeypatch.chdir(tmp_path / "pair")
    encoder.save("model")
    index = Encoder.from_pretrained("model").index(TEXTS[:9])
    index.save("idx")
    monkeypatch.chdir(tmp_path)
    wanted = [hit.id for hit in index.search(TEXTS[0], k=2)]
    assert [hit.id for hit in jaxwhiten.load_index("pair/idx").search(TEXTS[0], k=2)] == wanted
    (tmp_path / "pair" / "model").rename(tmp_path / "moved")
    assert [hit.id for hit in jaxwhiten.load_index("pair/idx", model="moved").search(TEXTS[0], k=2)] == wanted
    with pytest.raises(ModelError, match="was not found: specify its location with `model`"):
        jaxwhiten.load_index("pair/idx").search(TEXTS[0], k=2)


def test_documents_are_codes_and_queries_are_floats(encoder):
    small = encoder.shrink(TEXTS, bytes=8)
    index = small.index(TEXTS)
    assert (index.codes["name"], index.codes["bytes"]) == ("spectrum", 8)
    assert repr(index) == "Index(500 documents, spectrum codes of 8 bytes, faiss-flat, 0.0 MB)"
    queries = encoder.encode(TEXTS[:5])
    scores, ids = index.search(queries, k=4)
    hits = index.search(TEXTS[:5], k=4)
    assert [[hit.id for hit in row] for row in hits] == ids.tolist()
    np.testing.assert_allclose([[hit.score for hit in row] for row in hits], scores, atol=1e-6)
    # A code of a shrunk encoder replaces the first one, and bytes of an index those of its encoder.
    assert small.shrink(TEXTS, bytes=4).encode(TEXTS[:2]).shape == (2, 4)
    assert small.index(TEXTS, bytes=12).codes["bytes"] == 12


def kinds(encoder):
    return [type(step).__name__ for step in encoder.view.head.steps]


def test_a_tuned_encoder_is_coded_as_it_is_and_another_is_whitened_first(encoder, tiny_model):
    untuned = Encoder.from_pretrained(tiny_model, pooling="mean", tuned=False)
    coded = encoder.shrink(TEXTS, bytes=8)
    assert kinds(coded) == ["Mean", "Quantize"]
    assert coded.view.head.whitening is None
    whitened = untuned.shrink(TEXTS, bytes=8)
    assert kinds(whitened) == ["Mean", "Whiten", "Normalize", "Quantize"]
    assert whitened.view.head.whitening.gamma == 1
    asked = encoder.shrink(TEXTS, bytes=8, gamma=0.25)
    assert kinds(asked) == kinds(whitened)
    assert asked.view.head.whitening.gamma == 0.25
    both = encoder.shrink(TEXTS, k=20, bytes=8)
    assert kinds(both) == kinds(whitened)
    assert (both.dimension, both.view.uncoded.dimension) == (8, 20)
    for small in (coded, whitened, asked, both):
        again = small.shrink(TEXTS, bytes=4)  # fits anew: nothing is coded or whitened twice
        assert kinds(again).count("Quantize") == 1
        assert kinds(again).count("Whiten") == (small is whitened)
        vectors, codes = small.view.uncoded(TEXTS), small.encode(TEXTS)
        error = ((codes.decode() - vectors) ** 2).sum() / ((vectors - vectors.mean(axis=0)) ** 2).sum()
        assert error == pytest.approx(small.view.head.code.distortion_, rel=0.35)


@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
@pytest.mark.parametrize("how", [{}, {"gamma": 0.25}])
def test_the_index_of_a_small_encoder_is_that_of_its_codes(encoder, backend, how):
    small = encoder.shrink(TEXTS, bytes=8, **how)
    code, floats = small.view.head.code, small.with_view(small.view.uncoded)
    index = small.index(TEXTS, backend=backend)
    of_codes = build_index(small.encode(TEXTS), backend, codes=code)
    scores = code.scores(floats.encode(TEXTS[:9]), small.encode(TEXTS))
    found, wanted = index.search(encoder.encode(TEXTS[:9]), k=5), of_codes.search(floats.encode(TEXTS[:9]), k=5)
    np.testing.assert_allclose(wanted[0], -np.sort(-scores)[:, :5], atol=1e-5)
    np.testing.assert_allclose(found[0], wanted[0], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, found[1], axis=1), found[0], atol=1e-5)


def test_what_cannot_be_shrunk_or_searched(encoder, tmp_path):
    with pytest.raises(InputError, match="Specify `k`, for fewer dimensions, or `bytes`, for codes"):
        encoder.shrink(TEXTS)
    with pytest.raises(InputError, match="bytes=4: expected at most 2, half a byte per dimension"):
        encoder.shrink(TEXTS, k=4, bytes=4)
    index = build_index(encoder.encode(TEXTS))
    with pytest.raises(InputError, match=r"This index has no encoder: pass vectors, or use Encoder\.index"):
        index.search("a text")
    index = encoder.index(TEXTS)
    assert index.search([], k=2) == []
    assert len(index.search("a text", k=501)) == 500
    index.save(tmp_path / "idx")
    assert load_vectors(tmp_path / "idx").search("a text", k=2) == index.search("a text", k=2)


def test_what_cannot_be_pickled_says_what_to_pass(encoder):
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(InputError, match="An index cannot be pickled or deep-copied: save it, and call load_index"):
            copied(encoder.index(TEXTS[:3]))
        copied(Whitening().fit(np.asarray(encoder.encode(TEXTS))))
    assert copy.copy(encoder).encode(TEXTS[:1]).tolist() == encoder.encode(TEXTS[:1]).tolist()


def test_dir_shows_the_public_names():
    assert dir(jaxwhiten) == sorted(jaxwhiten.__all__)


@pytest.mark.filterwarnings("default")
def test_the_advice_of_a_warning_is_taken_in_python(encoder):
    for fit in (encoder.whiten, encoder.shrink):
        few = {"shrinkage": None} | ({"k": 32} if fit == encoder.shrink else {})
        with pytest.warns(UserWarning, match="n_components=") as warned:
            fit(TEXTS[:150], **few)
        most = int(str(warned[0].message).rstrip(".").rpartition("n_components=")[2])
        with warnings.catch_warnings(action="error"):
            assert fit(TEXTS[:150], shrinkage=None, n_components=most).dimension == most
