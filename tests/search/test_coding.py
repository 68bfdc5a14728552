"""Indexes that keep codes: the same answers on FAISS, on JAX and from the file alone; every code behind one option."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode, UBinary, make_code
from jaxwhiten.errors import FormatError, InputError, MismatchError
from jaxwhiten.search import build_index, load_index
from jaxwhiten.search.jax_kernels import scored
from jaxwhiten.search.prepare import COSINE
from jaxwhiten.whitening import Moments, Whitening

faiss = pytest.importorskip("faiss")
N, D = 3000, 32
CODED = ["faiss-flat", "faiss-ivf", "jax"]
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
    return SpectrumCode(bytes=8, gamma=0.5).fit(vectors)


def by_definition(code, queries, vectors):
    """The cosine to first order, for decoded vectors of unit length on average."""
    q, u = code.transform(queries), code.decode(code.encode(vectors)) / code.plan.length
    return q @ u.T + COSINE / 2 * (1 - (u**2).sum(axis=1))


def name_and_bytes(index):
    return index.codes["name"], index.codes["bytes"]


def test_few_queries_look_up_what_many_decode(code, vectors, queries):
    """By `jax`: documents decoded for one query took twenty times as long; a program that decodes holds them all."""
    index = build_index(vectors, "jax", codes=code)
    many = index.search(queries, 10)
    for count in (1, 2, 8):
        scores, ids = index.search(queries[:count], 10)
        np.testing.assert_allclose(scores, many[0][:count], atol=2e-6)
        np.testing.assert_array_equal(ids, many[1][:count])
    documents, decoder = index.store._documents, index.store._decoder
    for count, held in ((1, 0), (50, 1)):
        lowered = jax.jit(scored).lower(queries[:count] @ np.zeros((D, decoder[:, 0].size)), documents, decoder)
        decoded = f"tensor<{len(documents)}x{len(decoder)}x{decoder.shape[2]}xf32>"
        assert (decoded in lowered.as_text()) == held


@pytest.mark.parametrize("backend", CODED)
def test_codes_are_searched_by_the_distance_to_what_they_stand_for(backend, code, vectors, queries):
    index = build_index(vectors, backend, codes=code, **WHOLE.get(backend, {}))
    assert name_and_bytes(index) == ("spectrum", 8)
    scores, ids = index.search(queries, 10)
    wanted = by_definition(code, queries, vectors)
    np.testing.assert_allclose(scores, -np.sort(-wanted, axis=1)[:, :10], atol=2e-5)
    np.testing.assert_allclose(np.take_along_axis(wanted, ids, axis=1), scores, atol=2e-5)
    cosines = code.scores(queries, code.encode(vectors))
    np.testing.assert_allclose(scores, np.take_along_axis(cosines, ids, axis=1), atol=0.05)
    nearest = np.argsort(-cosines, axis=1)[:, :10]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, nearest, strict=True)]) > 0.9
    assert (ids[:, 0] == np.arange(50)).mean() > 0.9


@pytest.mark.parametrize("backend", CODED)
def test_saved_and_loaded_it_is_the_same_index(backend, code, vectors, queries, tmp_path):
    index = build_index(vectors, backend, codes=code, **WHOLE.get(backend, {}))
    index.save(tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert loaded.codes == index.codes
    assert loaded.nbytes == index.nbytes
    for mine, theirs in zip(index.search(queries, 7), loaded.search(queries, 7), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    assert loaded.fitted.distortion_ == pytest.approx(code.distortion_)
    assert loaded.fitted.n_samples_seen_ == N  # which `drift` corrects for
    about = ("header", "fitted")
    stored = sum(f.stat().st_size for f in (tmp_path / "index").iterdir() if not f.name.startswith(about))
    assert stored == pytest.approx(index.nbytes, rel=0.02)
    header = json.loads((tmp_path / "index" / "header.json").read_text())
    assert header["codes"] == index.codes


ALONE = """
import sys, numpy, faiss
index = faiss.read_index(sys.argv[1])
_, ids = index.search(numpy.load(sys.argv[2]), 5)
assert not any(name.startswith(("jaxwhiten", "jax")) for name in sys.modules)
numpy.save(sys.argv[3], ids)
"""


@pytest.mark.parametrize("backend", ["faiss-flat", "faiss-ivf"])
def test_a_process_without_jaxwhiten_finds_the_nearest_codes(backend, code, vectors, queries, tmp_path):
    index = build_index(vectors, backend, codes=code, **WHOLE.get(backend, {}))
    index.save(tmp_path / "index")
    (file,) = (tmp_path / "index").glob("*.faiss")
    np.save(tmp_path / "queries.npy", queries)
    words = [file, tmp_path / "queries.npy", tmp_path / "ids.npy"]
    subprocess.run([sys.executable, "-I", "-c", ALONE, *map(str, words)], check=True, cwd=tmp_path)
    distances = ((code.transform(queries)[:, None] - code.decode(code.encode(vectors))[None]) ** 2).sum(-1)
    np.testing.assert_array_equal(np.load(tmp_path / "ids.npy"), np.argsort(distances, axis=1)[:, :5])
    found = faiss.read_index(str(file))
    assert isinstance(found, faiss.IndexPreTransform)
    assert isinstance(faiss.downcast_VectorTransform(found.chain.at(1)), faiss.LinearTransform)
    inner = faiss.downcast_index(found.index)
    assert isinstance(inner, faiss.IndexIVFPQ if backend == "faiss-ivf" else faiss.IndexPQ)
    assert inner.code_size == 8


@pytest.mark.parametrize("codes", ["spectrum", "ubinary"])
def test_a_fast_scan_of_halves_of_bytes_finds_nearly_the_same(codes, vectors, queries, tmp_path):
    size = None if codes == "ubinary" else 8
    index = build_index(vectors, "faiss-fast", codes=codes, bytes=size)
    same = codes if codes == "ubinary" else SpectrumCode(bytes=8, halves=True).fit(vectors)
    exact = build_index(vectors, "faiss-flat", codes=same)
    assert isinstance(faiss.downcast_index(index.store._inner), faiss.IndexPQFastScan)
    scores, ids = index.search(queries, 10)
    wanted = exact.search(queries, 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(ids, wanted[1], strict=True)]) > 0.8
    np.testing.assert_allclose(scores, wanted[0], atol=0.03)
    assert (ids[:, 0] == np.arange(50)).mean() > (0.3 if codes == "ubinary" else 0.6)
    index.add(vectors[:7])
    index.save(tmp_path)
    loaded = load_index(tmp_path)
    assert loaded.size == N + 7
    np.testing.assert_array_equal(loaded.search(queries, 5)[1], index.search(queries, 5)[1])


@pytest.mark.parametrize("codes", ["int8", "uint8", "binary", "ubinary"])
@pytest.mark.parametrize("backend", ["faiss-flat", "jax"])
def test_plain_codes_of_whitened_vectors(backend, codes, vectors, queries):
    whitening = Whitening(gamma=0.5, n_components=24).fit(vectors)
    index = build_index(vectors, backend, whitening=whitening, codes=codes)
    assert name_and_bytes(index) == (codes, 24 if "int" in codes else 3)
    exact = build_index(vectors, "faiss-flat", whitening=whitening).search(queries, 5)
    scores, ids = index.search(queries, 5)
    agree = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(ids, exact[1], strict=True)])
    assert agree > (0.95 if "int" in codes else 0.3)
    if "int" in codes:
        np.testing.assert_allclose(scores, exact[0], atol=0.02)
    raw = build_index(vectors, backend, codes=codes)
    assert raw.codes["bytes"] == (32 if "int" in codes else 4)


def test_the_whitening_that_is_given_decides_gamma_and_axes(vectors):
    whitening = Whitening(gamma=0.25, n_components=20).fit(vectors)
    index = build_index(vectors, "jax", whitening=whitening, codes="spectrum", bytes=5)
    code = SpectrumCode(bytes=5).fit(whitening)
    np.testing.assert_array_equal(index.prepare.kernel[0], code.quantiser().affine.kernel[0])
    assert index.whitening["provenance"]["n"] == N


def test_bytes_alone_take_the_spectrum_code_with_the_gamma_of_the_encoder(vectors):
    bare = build_index(vectors, "faiss-flat", bytes=8)
    assert (bare.codes["name"], bare.fitted.gamma_) == ("spectrum", 0.25)
    assert bare.notes[0].startswith("γ=0.25: as for an encoder fine-tuned for similarity")
    untuned = build_index(vectors, "faiss-flat", bytes=8, encoding={"tuned": False, "participation_ratio": 9.8})
    assert untuned.notes[0] == "γ=1: the encoder is not fine-tuned for similarity (participation ratio 10)"
    assert (untuned.fitted.gamma_, untuned.fitted.provenance["tuned"]) == (1.0, False)
    told = build_index(vectors, "faiss-flat", bytes=8, encoding={"tuned": False}, tuned=True)
    assert told.fitted.gamma_ == 0.25


def test_vectors_of_an_encoder_give_its_answer(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", tuned=False)
    index = build_index(encoder.encode([f"sentence {i}" for i in range(400)]), "faiss-flat", bytes=4)
    assert (index.fitted.gamma_, index.encoding["tuned"]) == (1.0, False)


def test_vectors_that_are_mapped_already_take_the_quantiser_of_a_code(code, vectors, queries):
    raw = build_index(vectors, "faiss-flat", codes=code)
    mapped = build_index(code.transform(vectors), "faiss-flat", codes=code.quantiser(mapped=True))
    assert (mapped.search(code.transform(queries), 5)[1] == raw.search(queries, 5)[1]).mean() > 0.99


def test_what_cannot_be_is_refused(code, vectors, tmp_path):
    with pytest.raises(InputError, match="Did you mean 'spectrum'"):
        build_index(vectors, "faiss-flat", codes="spectrm")
    with pytest.raises(InputError, match="Fast scan needs codes of 4-bit halves"):
        build_index(vectors, "faiss-fast", codes="int8")
    with pytest.raises(InputError, match="without its code, and bytes=8"):  # an index that could not be read again
        build_index(vectors, "faiss-fast", codes=code.quantiser(mapped=True))
    with pytest.raises(InputError, match="cannot remove"):
        build_index(vectors, "faiss-fast", bytes=4).remove([0])
    for name in ("pq", "auto"):
        with pytest.raises(InputError, match="Unknown"):
            build_index(vectors, "faiss-flat", codes=name, bytes=8)
    with pytest.raises(InputError, match="faiss-hnsw cannot store codes"):
        build_index(vectors, "faiss-hnsw", codes="spectrum", bytes=8)
    with pytest.raises(InputError, match="8 bytes per vector: expected 9"):
        build_index(vectors, "jax", codes=code, bytes=9)
    with pytest.raises(InputError, match="omit `whitening`"):
        build_index(vectors, "jax", codes=code, whitening=Whitening().fit(vectors))
    with pytest.raises(InputError, match="unit length"):
        build_index(vectors, "jax", codes=code, normalize=False)
    with pytest.raises(InputError, match=r"bytes=.*: expected an integer"):
        build_index(vectors, "jax", bytes=0)
    with pytest.raises(InputError, match="sq8"):
        build_index(vectors, "faiss-flat", codes="sq8", bytes=8)
    code = make_code("ubinary").fit(Whitening.from_moments(Moments().update(vectors), provenance={"fingerprint": "a"}))
    with pytest.raises(MismatchError, match="not in the space of the code: expected other weights"):
        build_index(vectors, "jax", codes=code, encoding={"fingerprint": "b"})
    index = build_index(vectors, "jax", codes=UBinary().fit(vectors))
    index.codes = index.codes | {"bytes": 5}
    index.save(tmp_path)
    with pytest.raises(FormatError, match="unlike the header"):
        load_index(tmp_path)
