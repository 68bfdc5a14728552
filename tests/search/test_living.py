"""Documents added and removed: any history gives the index that a fresh build of what is left gives."""

import functools

import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import SpectrumCode, make_code
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index, load_index
from jaxwhiten.whitening import Whitening

D = 16


@pytest.fixture(scope="module")
def vectors():
    return (np.random.default_rng(0).standard_normal((6000, D)) * np.linspace(2, 0.3, D)).astype(np.float32)


class Mirror:
    """What an index of codes holds, as decoded vectors by id; its search is brute force."""

    def __init__(self, code, prepare, ids, vectors):
        self.code, self.prepare, self.ids = code, prepare, list(ids)
        self.decoded = self.of(vectors)
        self.used = len(self.ids)

    def of(self, vectors):
        quantizer = self.code.quantizer()
        codes = quantizer.quantize(quantizer.affine(self.prepare(vectors)))  # steps of int8 as an index rounds them
        return self.code.decode(codes).astype(np.float64)

    def remove(self, ids):
        keep = ~np.isin(self.ids, ids)
        self.ids, self.decoded = [id for id, kept in zip(self.ids, keep, strict=True) if kept], self.decoded[keep]

    def add(self, ids, vectors):
        self.used = max(self.used, max(ids) + 1)
        self.ids, self.decoded = [*self.ids, *ids], np.concatenate([self.decoded, self.of(vectors)])

    def change(self, index, rng, vectors):
        """Adds, updates or removes some documents here and in the index."""
        count, what = int(rng.integers(1, 30)), rng.choice(["add", "update", "remove"])
        new = vectors[rng.integers(0, len(vectors), count)]
        some = rng.choice(self.ids, count, replace=False).tolist()
        if what == "add":
            index.add(new)
            self.add(range(self.used, self.used + count), new)
        elif what == "update":
            index.update(some, new)
            self.decoded[[self.ids.index(id) for id in some]] = self.of(new)
        else:
            index.remove(some)
            self.remove(some)

    def check(self, index, queries, k, among=None):
        assert index.ids.tolist() == self.ids
        scores = normalize(np.asarray(self.prepare(queries), np.float64)) @ normalize(self.decoded).T
        if among is not None:
            scores[:, ~np.isin(self.ids, among)] = -2
        found, ids = index.search(queries, k, among=among)
        assert found.shape == ids.shape == (len(queries), k)
        best = -np.sort(-scores, axis=1)
        np.testing.assert_allclose(found, np.where(best == -2, -np.inf, best)[:, :k], atol=1e-5)
        places = {id: place for place, id in enumerate(self.ids)}
        for row, some in enumerate(ids.tolist()):
            there = [places[id] for id in some if id != -1]
            assert len(set(there)) == len(there) == np.isfinite(found[row]).sum()
            np.testing.assert_allclose(scores[row, there], found[row, : len(there)], atol=1e-5)
            order = np.argsort(-scores[row], kind="stable")[:k]
            gaps = np.diff(best[row], prepend=np.inf, append=-np.inf) < -2e-5
            alone = (gaps[:-1] & gaps[1:])[: len(there)]
            assert (np.array(there) == order[: len(there)])[alone].all()


CODES = {"spectrum": {"codes": "spectrum", "bytes": 4}, "int8": {"codes": "int8"}, "ubinary": {"codes": "ubinary"}}
LISTS = {"faiss-ivf": {"nlist": 5, "nprobe": 5}}


@pytest.mark.parametrize(
    ("codes", "whitened"), [("spectrum", False), ("spectrum", True), ("int8", False), ("ubinary", False)]
)
@pytest.mark.parametrize("backend", ["faiss-flat", "faiss-ivf", "jax"])
def test_random_histories_of_codes_equal_brute_force_over_decoded_vectors(
    backend, codes, whitened, vectors, tmp_path, request
):
    """In any history, with one and several queries and threads, every k, after save and load, and among some ids."""
    if backend.startswith("faiss"):
        faiss = pytest.importorskip("faiss")
        request.addfinalizer(functools.partial(faiss.omp_set_num_threads, faiss.omp_get_max_threads()))
    rng = np.random.default_rng([len(backend), len(codes)])
    vectors = vectors + np.float32(0.4)  # a mean that counts
    first, queries = vectors[:250], vectors[-6:]
    whitening = Whitening(gamma=1.0).fit(first) if whitened else None
    how = {**CODES[codes], **LISTS.get(backend, {})}
    index = build_index(first, backend, whitening=whitening, **how)
    prepare, params = index.prepare, {"bytes": 4} if codes == "spectrum" else {}
    code = make_code(codes, **params).fit(prepare(first) if whitening is None else whitening)
    mirror = Mirror(code, prepare, range(250), first)
    for step in range(12):
        mirror.change(index, rng, vectors)
        if step % 4 == 3:
            index.save(tmp_path / f"{step}.db")
            index = load_index(tmp_path / f"{step}.db")
        if backend.startswith("faiss"):
            faiss.omp_set_num_threads(1 + step % 2)
        ks = [10] if backend == "jax" else [1, 10, int(rng.integers(2, index.size)), index.size]
        for k in ks if step != 11 else [1, 10, index.size]:
            mirror.check(index, queries[: 1 if step % 3 == 0 else 6], k)
        mirror.check(index, queries, 10, among=rng.choice(mirror.ids, 7 if step % 2 else 90, replace=False).tolist())


@pytest.fixture
def instructions(request):
    """FAISS uses the instructions of this level; None leaves its choice."""
    if request.param is None:
        yield
        return
    faiss = pytest.importorskip("faiss")
    level = getattr(faiss, f"SIMDLevel_{request.param}", None)
    if level is None or not faiss.SIMDConfig.is_simd_level_available(level):
        pytest.skip(f"FAISS has no {request.param} here")
    before = faiss.SIMDConfig.get_level()
    faiss.SIMDConfig.set_level(level)
    yield
    faiss.SIMDConfig.set_level(before)


@pytest.mark.parametrize(
    ("backend", "instructions", "count"),
    [
        ("faiss-flat", "NONE", 300),
        ("faiss-flat", "AVX2", 300),
        pytest.param("faiss-flat", None, 10_000, marks=pytest.mark.slow),
        pytest.param("faiss-flat", "NONE", 10_000, marks=pytest.mark.slow),
        pytest.param("faiss-flat", "AVX2", 10_000, marks=pytest.mark.slow),
        pytest.param("faiss-ivf", None, 10_000, marks=pytest.mark.slow),
        pytest.param("jax", None, 10_000, marks=pytest.mark.slow),
    ],
    indirect=["instructions"],
)
def test_many_queries_of_a_history_equal_brute_force(backend, instructions, count, vectors, tmp_path, request):
    """On every kind of processor, with one and several queries and threads, and among some ids."""
    if backend.startswith("faiss"):
        faiss = pytest.importorskip("faiss")
        request.addfinalizer(functools.partial(faiss.omp_set_num_threads, faiss.omp_get_max_threads()))
    rng = np.random.default_rng(3)
    vectors = np.concatenate([vectors, vectors[::-1]], axis=1) + np.float32(0.3)
    first, parts = vectors[:1500], [1, 7, 90]  # queries of a call
    index = build_index(first, backend, codes="spectrum", bytes=12, **LISTS.get(backend, {}))
    mirror = Mirror(SpectrumCode(bytes=12).fit(index.prepare(first)), index.prepare, range(1500), first)
    asked = 0
    while asked < count:
        mirror.change(index, rng, vectors)
        for part in parts:
            if backend.startswith("faiss"):
                faiss.omp_set_num_threads(int(rng.integers(1, 3)))
            queries = vectors[rng.integers(0, len(vectors), part)] + rng.normal(size=(part, 2 * D)).astype(np.float32)
            mirror.check(index, queries, 10)
            mirror.check(index, queries, 10, among=rng.choice(mirror.ids, int(rng.integers(1, 900)), replace=False))
            asked += 2 * part
        index.save(tmp_path / f"{asked}.db")
        index = load_index(tmp_path / f"{asked}.db")


def test_an_index_without_texts_takes_none(vectors):
    index = build_index(vectors[:9], "jax")
    with pytest.raises(InputError, match="stores no documents"):
        index.add(vectors[:1], documents=["x"])
    index.add(vectors[9:12])
    index.remove([])
    assert index.size == 12
