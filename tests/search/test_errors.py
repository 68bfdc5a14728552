"""Every mistake with an index: its class, and the words that say what to do. Nothing is changed by one."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from jaxwhiten import Encoder, Space
from jaxwhiten.codes import SpectrumCode, make_code
from jaxwhiten.errors import InputError, MismatchError, NonFiniteError
from jaxwhiten.search import (
    build_index,
    load_index,
    paraphrase_mining_embeddings,
    semantic_search,
)
from jaxwhiten.search.text import view_for
from jaxwhiten.vectors import with_space
from jaxwhiten.whitening import Whitening

pytest.importorskip("faiss")
N, D = 400, 32
VECTORS = (np.random.default_rng(0).standard_normal((N, D)) * np.linspace(2, 0.3, D) + 0.1).astype(np.float32)
CODE = SpectrumCode(bytes=8).fit(VECTORS)
WHITENING = Whitening().fit(VECTORS)
OF_OTHERS = make_code("ubinary").fit(with_space(VECTORS, Space(fingerprint="a")))
SPACE = Space(model="m", fingerprint="f00", pooling="mean", max_length=64)
LISTS = {"codes": CODE, "nlist": 4}


def build(backend="jax", rows=VECTORS, **options):
    return build_index(rows, backend, **options)


def with_row(value, row=-1):
    """The vectors with one that cannot be compared."""
    rows = VECTORS.copy()
    rows[row] = value
    return rows


def search(rows, k=3, backend="jax"):
    return build(backend, **(LISTS if backend == "faiss-ivf" else {})).search(rows, k)


BUILT = {
    "backend": (lambda: build("faiss-ifv"), "'faiss-ivf'"),
    "option": (lambda: build("faiss-ivf", nprob=3, codes=CODE), "'nprobe'"),
    "option of a scan": (lambda: build("faiss-flat", nprobe=3), "no options"),
    "nlist": (lambda: build("faiss-ivf", nlist=-1), "nlist"),
    "nprobe": (lambda: build("faiss-ivf", nprobe=-1), "nprobe"),
    "seed": (lambda: build("faiss-ivf", seed=2**31), "seed"),
    "lists of floats": (lambda: build("faiss-ivf", nlist=8), "codes alone"),
    "no rows": (lambda: build(rows=VECTORS[:0]), "No document vectors"),
    "documents": (lambda: build(documents=["one"]), "1 document 400"),
    "codes of FAISS": (lambda: build(codes="pq", bytes=8), "Unknown"),
    "other bytes": (lambda: build(codes=CODE, bytes=9), "8 bytes 9"),
    "dimensions": (lambda: build(codes=CODE, whitening=Whitening(5).fit(VECTORS)), "32 5 whitened"),
    "dimensions of vectors": (lambda: build(rows=VECTORS[:, 1:], codes=CODE), "32 31"),
    "lengths": (lambda: build(codes=CODE, normalize=False), "unit length"),
    "rescore": (lambda: build(rescore="float61"), "'float16'"),
    "like": (lambda: build(like=build("faiss-flat"), rows=VECTORS), "`like`"),
    "like and bytes": (lambda: build_index(VECTORS, like=build(), bytes=6), "`like`"),
    "parts": (lambda: load_index([]), "at least one"),
}
SEARCHED = {
    "k": (lambda: search(VECTORS, 0), "at least 1"),
    "width": (lambda: search(VECTORS[:, 1:].copy()), "32 31"),
    "width that tells the way": (lambda: build(codes="ubinary").search(VECTORS[:, :4].copy(), 1), "32 4 raw"),
    "no among": (lambda: build().search(VECTORS, 1, among=[]), "no IDs"),
    "where without texts": (lambda: build().search(VECTORS[:1], 1, where="id > 3"), "no texts"),
    "words without words": (lambda: build().hits(VECTORS[:1], 3, texts=["a"]), "no words"),
    "hybrid without texts": (lambda: build(documents=["a"] * N).search(VECTORS[:1], 3, hybrid=True), "pass texts"),
    "top_k": (lambda: semantic_search(VECTORS, VECTORS, 0), "top_k=0"),
    "score": (lambda: semantic_search(VECTORS, VECTORS, score_function="cos"), "'cos'"),
    "semantic width": (lambda: semantic_search(VECTORS[:, :5], VECTORS), "32 5"),
    "semantic zeros": (lambda: semantic_search(VECTORS, np.zeros_like(VECTORS)), "zero"),
    "max_pairs": (lambda: paraphrase_mining_embeddings(VECTORS, max_pairs=0), "max_pairs=0"),
}
CHANGED = {
    "texts": (lambda: build().add(VECTORS[:1], documents=["x"]), "no documents"),
    "metadata": (lambda: build(metadata=[{}] * N).add(VECTORS[:1]), "`metadata`"),
    "no metadata": (lambda: build().add(VECTORS[:1], metadata=[{}]), "omit `metadata`"),
    "rows of metadata": (lambda: build(metadata=[{}]), "1 row 400"),
}
OTHER_SPACES = {
    "a whitening that is another": (
        lambda: build(codes=SpectrumCode(bytes=8).fit(WHITENING), whitening=WHITENING.with_mean(VECTORS[0])),
        "another",
    ),
    "a code of whitened vectors": (lambda: build(codes=SpectrumCode(bytes=8).fit(WHITENING), space=SPACE), "none"),
    "a code of another model": (lambda: build(codes=OF_OTHERS, space=Space(fingerprint="b")), "weights"),
    "an unknown encoder": (lambda: build().check_fits(SPACE), "not record"),
    "unknown weights": (lambda: build(space=SPACE).check_fits(dataclasses.replace(SPACE, fingerprint=None)), "weights"),
}


def check(error, trigger, words):
    with pytest.raises(error) as caught:
        trigger()
    assert [word for word in words.split() if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize(("trigger", "words"), (cases := BUILT | SEARCHED | CHANGED).values(), ids=cases)
def test_a_mistake_is_named(trigger, words):
    check(InputError, trigger, words)


@pytest.mark.parametrize(("trigger", "words"), OTHER_SPACES.values(), ids=OTHER_SPACES)
def test_what_is_of_another_space_is_refused(trigger, words):
    check(MismatchError, trigger, words)


@pytest.mark.parametrize("backend", ["faiss-flat", "faiss-ivf", "jax"])
@pytest.mark.parametrize(("value", "error"), [(0, InputError), (np.nan, NonFiniteError), (-np.inf, NonFiniteError)])
def test_a_row_that_cannot_be_compared_is_named(backend, value, error):
    check(error, lambda: build(backend, with_row(value), **(LISTS if backend == "faiss-ivf" else {})), "399 document")
    check(error, lambda: search(with_row(value, 3), backend=backend), "3 query")


def test_a_document_at_the_mean_has_no_direction_after_whitening():
    centered = SimpleNamespace(kernel=(np.eye(D, 16, dtype=np.float32), np.zeros(16, np.float32)))
    check(InputError, lambda: build(rows=with_row(0, 17), whitening=centered), "17 zero")


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        {1: 2},
        {"a": float("nan")},
        {"a": object()},
        {"a": "\ud800"},
        {"a": 2**64},
        {"a": -(2**63) - 1},
        {"a": {"b": [b"c"]}},
    ],
)
@pytest.mark.parametrize("door", ["build_index", "add"])
def test_metadata_is_json(door, bad):
    rows, index = [{}, bad], build(rows=VECTORS[:2], metadata=[{}, {}])
    doors = {
        "build_index": lambda: build(rows=VECTORS[:2], metadata=rows),
        "add": lambda: index.add(VECTORS[:2], metadata=rows),
    }
    check(InputError, doors[door], "metadata row 1")


@pytest.mark.parametrize("ids", [["a", 1], [1, True], [1.0], [""], [-1], [2**63], [["a"]], "ab", {1, 2}, [None]])
def test_ids_are_texts_or_integers(ids):
    check(InputError, lambda: build(rows=VECTORS[:2], ids=ids), "IDs")
    check(InputError, lambda: build(rows=VECTORS[:2], ids=["a", "b\udc00"]), "ID")


def test_nothing_is_encoded_before_a_mistake_is_found(tiny_model, monkeypatch):
    encoder, other = (Encoder.from_pretrained(tiny_model, pooling="mean", max_length=size) for size in (32, 16))
    index = encoder.index(["a", "b"], backend="jax")
    monkeypatch.setattr("jaxwhiten.views.view.View.__call__", lambda *_: pytest.fail("encoded"))
    check(InputError, lambda: encoder.index(["a", "b"], backend="faiss-ivf"), "codes alone")
    check(MismatchError, lambda: view_for(index, other.view), "max_length 32 16")
