"""Indexes that keep codes: the same answers on FAISS, on JAX and from the file alone; every code behind one option."""

import os
import time

import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import CODES, SpectrumCode, make_code
from jaxwhiten.search import build_index, load_index
from jaxwhiten.search import faiss as faiss_backend
from jaxwhiten.whitening import Whitening
from tests.conftest import slow_but

pytest.importorskip("faiss")
N, D = 3000, 32
CODED = ["faiss-flat", "faiss-ivf", "jax"]
SIZE = {"spectrum": {"bytes": 8}}
WHOLE = {"faiss-ivf": {"nlist": 8, "nprobe": 8}}


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return (rng.standard_normal((N, D)) * np.arange(1, D + 1) ** -0.5 @ turn + 0.05).astype(np.float32)


@pytest.fixture(scope="module")
def queries(vectors):
    noise = 0.1 * np.random.default_rng(1).standard_normal((50, D))
    return (vectors[:50] + noise).astype(np.float32)


@pytest.fixture(scope="module")
def code(vectors):
    return SpectrumCode(bytes=8).fit(vectors)


@pytest.mark.parametrize("given", [False, True], ids=["vectors", "codes"])
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("backend", slow_but(CODED, "faiss-ivf", "jax"))
def test_every_backend_gives_the_cosines_of_every_code(backend, name, given, vectors, queries, tmp_path):
    """Of decoded vectors, the highest first, for one query as for many, and the same after it is loaded."""
    vectors = normalize(vectors)
    code = make_code(name, **SIZE.get(name, {})).fit(vectors)
    index = build_index(code.encode(vectors) if given else vectors, backend, codes=code, **WHOLE.get(backend, {}))
    assert (index.codes.name, index.codes.bytes) == (name, code.nbytes)
    cosines = code.scores(queries, code.encode(vectors))
    index.save(tmp_path / "docs.db")
    loaded = load_index(tmp_path / "docs.db")
    assert (loaded.codes, loaded.nbytes) == (index.codes, index.nbytes)
    for scores, ids in (index.search(queries, 10), index.search(queries[:1], 10), loaded.search(queries, 10)):
        atol = 1e-5 if given else 2e-3  # a step may be another next to its border
        np.testing.assert_allclose(scores, -np.sort(-cosines[: len(ids)], axis=1)[:, :10], atol=atol)
        np.testing.assert_allclose(scores, np.take_along_axis(cosines[: len(ids)], ids, axis=1), atol=atol)
    if given:
        assert loaded.fitted is None or loaded.fitted.n_samples_seen_ == N


@pytest.fixture
def parts(monkeypatch):
    """Codes of a few kilobytes are shared by three cores."""
    monkeypatch.setattr(faiss_backend, "_SHARE", 1 << 11)
    monkeypatch.setattr("jaxwhiten.runtime.hardware.cores", lambda: 3)


@pytest.mark.parametrize("codes", ["spectrum", "int8"])
def test_parts_that_cores_share_find_what_one_scan_finds(codes, vectors, queries, parts, monkeypatch):
    """One query, a few, and many; among some, and after documents were added and removed."""
    shared = build_index(vectors, codes=codes, **SIZE.get(codes, {}))
    monkeypatch.setattr(faiss_backend, "_SHARE", 1 << 30)
    whole = build_index(vectors, like=shared)
    for index in (shared, whole):
        index.add(vectors[:40] + np.float32(0.01))
        index.remove(range(100, 110))
    assert [len(index.store._parts) for index in (shared, whole)] == [4, 2]
    for count in (1, 2, 50):
        for among in (None, range(110, N, 3)):
            found, expected = (index.search(queries[:count], 10, among=among) for index in (shared, whole))
            np.testing.assert_array_equal(found[1], expected[1])
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("codes", ["spectrum", "int8"])
def test_a_scan_of_leading_bytes_finds_what_a_whole_scan_finds(codes, vectors, queries, parts, monkeypatch):
    """Also among some, and where so many documents are added that leading bytes are scanned from then on."""
    whole = build_index(vectors, codes=codes, **SIZE.get(codes, {}))
    nbytes = whole.codes.bytes
    saved = nbytes - whole.store.quantizer.leading(faiss_backend.LEADING).nbytes
    assert 0 < saved < nbytes
    monkeypatch.setattr(faiss_backend, "_SAVED", N * saved / 3)  # of three cores
    grown = build_index(vectors[: N - 1], like=whole)
    assert grown.store._parts[0].code_size == nbytes
    grown.add(vectors[N - 1 :])
    assert grown.store._parts[0].code_size < nbytes
    for count in (1, 50):
        for k, among in ((1, None), (10, None), (100, None), (10, range(0, N, 3)), (10, range(100))):
            found, expected = (index.search(queries[:count], k, among=among) for index in (grown, whole))
            np.testing.assert_array_equal(found[1], expected[1])
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:os.fork", "ignore:.*__warn_on_fork")  # of LanceDB, where it was imported
def test_a_forked_process_searches_with_threads_of_its_own(vectors, queries, parts):
    index = build_index(vectors, bytes=8)
    assert len(index.store._parts) == 3
    expected = index.search(queries[:1], 5)[1]
    child = os.fork()
    if not child:
        os._exit(0 if (index.search(queries[:1], 5)[1] == expected).all() else 3)
    end = time.monotonic() + 60
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert done[1] == 0
    assert (index.search(queries[:1], 5)[1] == expected).all()


@pytest.mark.parametrize("named", [False, True])
def test_the_code_of_a_whitening_that_is_given_is_of_its_vectors(named, vectors, queries):
    whitening = Whitening(gamma=0.25, n_components=20).fit(vectors)
    code = SpectrumCode(bytes=5).fit(whitening)
    how = {"codes": "spectrum", "bytes": 5} if named else {"codes": code}
    index = build_index(vectors, "jax", whitening=whitening, **how)
    assert index.whitening["provenance"]["n"] == N
    assert index.dimension == 20
    whitened = normalize(whitening.transform(vectors))
    scores, ids = index.search(queries, 5)
    wanted = code.scores(normalize(whitening.transform(queries)), code.encode(whitened))
    np.testing.assert_allclose(scores, np.take_along_axis(wanted, ids, axis=1), atol=1e-5)
    assert index.fitted.gamma == 0.25


@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_a_finer_copy_gives_nearly_the_true_order(backend, vectors, queries):
    whitening = Whitening(gamma=0.5).fit(vectors)
    exact = build_index(vectors, "jax", whitening=whitening).search(queries, 10)[1]
    rough = build_index(vectors, backend, whitening=whitening, bytes=4)
    fine = build_index(vectors, backend, whitening=whitening, bytes=4, rescore="float16")
    assert fine.nbytes - rough.nbytes == N * D * 2
    (scores, ids), (_, others) = fine.search(queries, 10), rough.search(queries, 10)
    found, before = (
        np.mean([len({*a} & {*b}) / 10 for a, b in zip(each, exact, strict=True)]) for each in (ids, others)
    )
    assert found > before + 0.1
    assert (np.diff(scores, axis=1) <= 0).all()


def test_bytes_alone_take_the_spectrum_code_and_whiten_what_is_not_tuned(vectors):
    bare = build_index(vectors, "faiss-flat", bytes=8)
    assert (bare.codes.name, bare.whitening, bare.notes) == ("spectrum", None, [])
    unit = SpectrumCode(bytes=8).fit(normalize(vectors))
    assert bare.fitted.distortion_ == pytest.approx(unit.distortion_, rel=1e-4)
    untuned = build_index(vectors, "faiss-flat", bytes=8, tuned=False)
    assert untuned.notes[0].startswith("the vectors are whitened before they are coded, γ=1: ")
    assert untuned.fitted.gamma == 1.0
    assert untuned.whitening["k"] == D
    assert build_index(vectors, "faiss-flat", bytes=8, tuned=True).whitening is None


@pytest.mark.parametrize(
    "options", slow_but([{"tuned": False}, {"whitening": 20}, {"nlist": 4, "nprobe": 4}], {"whitening": 20})
)
def test_many_queries_are_searched_as_each_alone(vectors, options, monkeypatch):
    """More than a thread's share of them, also where a map comes first."""
    monkeypatch.setattr(faiss_backend, "_ALONE", 0)
    monkeypatch.setattr(faiss_backend.hardware, "cores", lambda: 3)
    if "whitening" in options:
        options = {"whitening": Whitening(options["whitening"]).fit(vectors)}
    backend = "faiss-ivf" if "nlist" in options else "faiss-flat"
    index = build_index(vectors, backend, bytes=8, **options)
    scores, ids = index.search(vectors, 5)
    for row in range(0, N, 100):
        score, id = index.search(vectors[row : row + 1], 5)
        np.testing.assert_array_equal(ids[row], id[0])
        np.testing.assert_allclose(scores[row], score[0], atol=1e-6)
