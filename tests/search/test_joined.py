"""Indexes that were built apart are searched as one."""

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import MismatchError
from jaxwhiten.search import build_index, load_index
from tests.conftest import slow_but

D, N = 16, 600
VECTORS = (np.random.default_rng(0).standard_normal((2 * N, D)) * np.linspace(2, 0.3, D)).astype(np.float32)
CODE = SpectrumCode(bytes=6).fit(VECTORS)
QUERIES = VECTORS[-20:]
KINDS = {
    "codes": ("faiss-flat", {"codes": CODE}),
    "copy": ("faiss-flat", {"codes": CODE, "rescore": "float16"}),
    "jax": ("jax", {}),
    "whitened": ("faiss-flat", {"whitening": Whitening(8).fit(VECTORS)}),
}


def made(kind, rows, ids=None):
    backend, options = KINDS[kind]
    if backend != "jax":
        pytest.importorskip("faiss")
    names = None if ids is None else [ids(row) for row in rows]
    metadata = [{"even": int(row) % 2 == 0} for row in rows]
    return build_index(VECTORS[rows], backend, documents=list(map(str, rows)), ids=names, metadata=metadata, **options)


def check_equal(joined, whole):
    assert joined.size == whole.size
    assert joined.ids.tolist() == whole.ids.tolist()
    for options in ({}, {"where": {"even": True}}, {"among": whole.ids[::7].tolist()}):
        (scores, found), (expected, ids) = joined.search(QUERIES, 10, **options), whole.search(QUERIES, 10, **options)
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_allclose(scores, expected, atol=1e-6)
        texts = [[hit.text for hit in hits] for hits in joined.hits(QUERIES, 10, **options)]
        assert texts == [[hit.text for hit in hits] for hits in whole.hits(QUERIES, 10, **options)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", slow_but([int, str], str))
def test_parts_are_searched_as_one_index(kind, ids, tmp_path):
    parts = [np.arange(0, 250), np.arange(250, 260), np.arange(260, N)]
    for number, rows in enumerate(parts):
        made(kind, rows, ids).save(tmp_path / str(number))
    joined = load_index([tmp_path / str(number) for number in range(3)])
    whole = made(kind, np.arange(N), ids)
    check_equal(joined, whole)
    load_index(tmp_path / "0").remove([ids(3)])
    whole.remove([ids(3)])
    check_equal(joined, whole)
    with pytest.warns(UserWarning, match="2 of the 4 IDs"):
        [hits] = joined.hits(QUERIES[:1], 9, among=list(map(ids, [1, 599, 3, 10**6])))
    assert {hit.id for hit in hits} == {ids(1), ids(599)}


def test_an_index_like_another_has_its_code(tmp_path):
    pytest.importorskip("faiss")
    options = {"codes": CODE, "nlist": 4, "nprobe": 4}
    first = build_index(VECTORS[:250], "faiss-ivf", ids=list(map(str, range(250))), **options)
    second = build_index(VECTORS[250:N], like=first, ids=list(map(str, range(250, N))))
    for index, name in ((first, "a"), (second, "b")):
        index.save(tmp_path / name)
    joined = load_index([tmp_path / "a", tmp_path / "b"]).search(QUERIES, 10)
    first.add(VECTORS[250:N], ids=list(map(str, range(250, N))))
    np.testing.assert_array_equal(joined[1], first.search(QUERIES, 10)[1])


def test_indexes_that_do_not_fit_are_refused(tmp_path):
    pytest.importorskip("faiss")
    made("codes", np.arange(9), str).save(tmp_path / "a")
    made("codes", np.arange(8, 20), str).save(tmp_path / "b")
    other = SpectrumCode(bytes=6).fit(VECTORS[:100])
    build_index(VECTORS[:9], codes=other, ids=list("abcdefghi")).save(tmp_path / "c")
    made("codes", np.arange(9)).save(tmp_path / "d")
    build_index(VECTORS[:9], ids=list("abcdefghi")).save(tmp_path / "e")
    build_index(VECTORS[9:20], "jax", ids=range(11)).save(tmp_path / "f")
    build_index(VECTORS[:99], "faiss-ivf", codes=CODE, nlist=2, nprobe=2).save(tmp_path / "g")
    build_index(VECTORS[99:], "faiss-ivf", codes=CODE, nlist=2, nprobe=2).save(tmp_path / "h")
    reasons = {"ab": "'8' is in more", "ac": "differ in codes", "ad": "id_type", "dd": "0 and 8 more .* with IDs"}
    for pair, reason in (reasons | {"ef": "backend", "gh": "different codes"}).items():
        with pytest.raises(MismatchError, match=reason):
            load_index([tmp_path / name for name in pair])
