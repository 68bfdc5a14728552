"""An id means one document for ever: what the index gives, and every mistake with them."""

import numpy as np
import pytest

from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index

N, D = 12, 8
VECTORS = np.random.default_rng(0).standard_normal((20, D)).astype(np.float32)
NAMES = [f"doc-{i}" for i in range(N)]


def state(index):
    scores, ids = index.search(VECTORS[:5], min(3, index.size))
    return index.size, index.ids.tolist(), ids.tolist(), scores.tolist(), list(index)


@pytest.mark.parametrize(
    ("own", "change", "message"),
    [
        (None, lambda i: i.remove([1.9]), "got 1.9"),
        (None, lambda i: i.remove([True]), "got True"),
        (None, lambda i: i.remove([3, 99], strict=True), "No document 99"),
        (None, lambda i: i.remove([-1]), "got -1"),
        (None, lambda i: i.remove(range(N)), "every document"),
        (None, lambda i: i.add(VECTORS[:1, 1:].copy(), documents=["x"]), "8 dimensions, got 7"),
        (None, lambda i: i.add(VECTORS[:1]), "stores documents"),
        (None, lambda i: i.add(VECTORS[:3], documents=["x", "y"]), "2 documents but 3"),
        (None, lambda i: i.add(VECTORS[:2] * [[1], [0]], documents=["x", "y"]), "Row 1 of the document vectors is a"),
        (None, lambda i: i.add(VECTORS[:1], documents=["x"], ids=["a"]), "numbers its documents itself: omit `ids`"),
        (NAMES, lambda i: i.remove("doc-1"), "expected a list of IDs"),
        (NAMES, lambda i: i.add(VECTORS[:1], documents=["x"]), "have their own IDs: pass `ids`"),
        (NAMES, lambda i: i.add(VECTORS[:2], documents=["x", "y"], ids=["a", "a"]), "'a' occurs twice"),
        (NAMES, lambda i: i.add(VECTORS[:1], documents=["x"], ids=[7]), "are strings, got 7"),
        (NAMES, lambda i: i.update(["doc-1", "other"], VECTORS[:2], documents=["x", "y"]), "No document 'other'.*1 of"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(own, change, message):
    index = build_index(VECTORS[:N], "jax", ids=own, documents=list(map(str, range(N))))
    before = state(index)
    with pytest.raises(InputError, match=message):
        change(index)
    assert state(index) == before


KINDS = [("faiss-flat", {}), ("faiss-flat", {"codes": "int8"}), ("faiss-ivf", {"codes": "int8"}), ("jax", {})]


@pytest.mark.parametrize(("backend", "codes"), [*KINDS, ("jax", {"codes": "int8", "rescore": "float16"})])
def test_a_search_gives_what_there_is(backend, codes):
    """Of more documents than there are, and among ids of which some, or all, are unknown."""
    index = build_index(VECTORS[:N], backend, ids=NAMES, documents=NAMES, **codes)
    scores, ids = index.search(VECTORS[:3], N + 5)
    assert scores.shape == ids.shape == (3, N)
    assert len(index.hits(VECTORS[:1], 10**6)[0]) == N
    with pytest.warns(UserWarning, match="2 of the 4 IDs.*'x'"):
        (hits,) = index.hits(VECTORS[:1], 9, among=["doc-1", "x", "doc-5", "y"])
    assert {hit.id for hit in hits} == {"doc-1", "doc-5"}
    with pytest.warns(UserWarning, match="2 of the 2 IDs"):
        assert index.hits(VECTORS[:2], 9, among=["x", "y"]) == [[], []]


def test_missing_results_are_none_among_strings():
    pytest.importorskip("faiss")
    x = np.random.default_rng(1).standard_normal((200, D)).astype(np.float32)
    index = build_index(x, "faiss-ivf", bytes=4, nlist=5, nprobe=1, ids=[f"d{i}" for i in range(200)])
    scores, ids = index.search(x[:5], 150)
    assert (ids[np.isneginf(scores)] == None).all()  # noqa: E711
    assert all(isinstance(id, str) for id in ids[~np.isneginf(scores)])
    assert np.isneginf(scores).any()


@pytest.mark.parametrize("backend", ["faiss-flat", "faiss-ivf", "jax"])
def test_duplicates_rank_by_row(backend):
    codes = {"codes": "int8"} if backend == "faiss-ivf" else {}
    x = np.concatenate([VECTORS[:4], np.repeat(VECTORS[5:6], 4, axis=0), VECTORS[6:9]])
    scores, ids = build_index(x, backend, ids=range(50, 50 + len(x)), **codes).search(VECTORS[5:7], 5)
    assert ids[0, :4].tolist() == [54, 55, 56, 57]
    assert len(set(scores[0, :4].tolist())) == 1


@pytest.mark.parametrize("ids", [None, NAMES], ids=["numbers", "strings"])
def test_an_index_is_read_like_a_collection(ids):
    index = build_index(VECTORS[:N], "jax", ids=ids, documents=list(map(str, range(N))))
    own = ids or range(N)
    assert len(index) == N
    assert [document.id for document in index] == list(own)
    assert own[3] in index
    assert index[own[3]].text == "3"
    assert "other" not in index
    assert index.remove([own[3], own[4], "other" if ids else 99]) == 2
    assert own[3] not in index
    with pytest.raises(KeyError):
        index[own[3]]
    assert [document.text for document in index][2:4] == ["2", "5"]


def test_ids_may_be_columns_of_other_libraries():
    pa = pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    for ids in (pl.Series(["a", "b"]), pa.chunked_array([["a"], ["b"]]), pa.array(["a", "b"])):
        index = build_index(VECTORS[:2], "jax", ids=ids)
        assert index.ids.tolist() == ["a", "b"]
        index.remove(ids[:1])
        assert index.ids.tolist() == ["b"]
