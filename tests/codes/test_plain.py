"""The plain codes: bytes equal to those of sentence-transformers, bits without a column, and vectors of any length."""

import numpy as np
import pytest

from jaxwhiten import build_index, normalize
from jaxwhiten.codes import make_code
from jaxwhiten.codes.code import behind, transforms

PLAIN = ["int8", "uint8", "binary", "ubinary"]
N, D = 1000, 20


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, D)) * np.linspace(2, 0.2, D) + rng.standard_normal(D)
    x[:, 7] = 0.25  # a column without a range
    return x.astype(np.float32)


@pytest.mark.parametrize("name", PLAIN)
def test_bytes_are_those_of_sentence_transformers(name, vectors):
    util = pytest.importorskip("sentence_transformers.util", reason="needs the extra `parity`")
    fitted, new = vectors[:600], vectors[500:]
    wanted = util.quantize_embeddings(new, name, calibration_embeddings=fitted)
    code = make_code(name).fit(fitted)
    codes = code.encode(new)
    np.testing.assert_array_equal(codes.view(code.dtype), wanted)
    assert wanted.dtype == code.dtype
    if name.endswith("int8"):
        given = util.quantize_embeddings(new, name, ranges=code.ranges_)
        np.testing.assert_array_equal(codes.view(code.dtype), given)
        decoded = code.decode(code.encode(fitted))
        assert (np.abs(decoded - fitted) <= 0.5001 * np.ptp(code.ranges_, axis=0).max() / 255 + 1e-5).all()


@pytest.mark.parametrize("d", [5, 8, 73])
@pytest.mark.parametrize("name", ["binary", "ubinary"])
def test_bits_are_signs_and_a_product_packs_them(name, d):
    """A graph has no bits: columns of zeros and ones times the matrix of places are the bytes."""
    rows = np.random.default_rng(d).normal(size=(9, d)).astype(np.float32)
    code = make_code(name).fit(rows)
    np.testing.assert_array_equal((rows > 0) @ code.plan.constants["places"], code.encode(rows) ^ code.flip)
    np.testing.assert_allclose(code.decode(code.encode(rows)), np.where(rows > 0, 1, -1) / np.sqrt(d), rtol=1e-6)


@pytest.mark.parametrize("name", ["binary", "ubinary"])
@pytest.mark.parametrize(("columns", "scale"), [(20, 1), (16, 1), (5, 1), (20, 1e3)])
def test_faiss_misses_only_signs_that_rounding_decides_and_sets_no_bit_without_a_column(name, columns, scale, vectors):
    """A bit decides 4 |x| c of a distance that sums at most 8 squares, each step rounded to a share of 2⁻²⁴."""
    faiss, vectors = pytest.importorskip("faiss"), np.float32(scale) * vectors[:, :columns]
    code = make_code(name).fit(vectors)
    quantizer = code.quantizer()
    index = behind(transforms(quantizer.affine), quantizer.empty_pq())
    index.add(vectors)
    codes = faiss.vector_to_array(faiss.downcast_index(index.index).codes).reshape(N, code.nbytes)
    bits, own = (np.unpackbits(each, axis=1) for each in (codes, np.asarray(code.encode(vectors))))
    assert not bits[:, columns:].any()
    padded = np.pad(np.abs(vectors.astype(np.float64)), ((0, 0), (0, -columns % 8)))
    lengths = np.repeat((padded.reshape(N, -1, 8) ** 2).sum(axis=2) + 1, 8, axis=1)
    assert (4 * padded / np.sqrt(columns) <= 16 * 2.0**-24 * lengths)[bits != own].all()


@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
@pytest.mark.parametrize("name", ["int8", "spectrum"])
def test_an_index_knows_how_long_vectors_are(name, backend):
    """FAISS ranks by distances: with another length than theirs, it finds long or short vectors."""
    pytest.importorskip("faiss" if backend != "jax" else "jax")
    rng = np.random.default_rng(0)
    x = normalize(rng.standard_normal((2000, 64)) + 2) * rng.uniform(96, 104, (2000, 1))
    x = x.astype(np.float32)
    queries = (x[:50] + 5 * rng.standard_normal((50, 64))).astype(np.float32)
    code = make_code(name, **({"bytes": 32} if name == "spectrum" else {})).partial_fit(x[:300]).partial_fit(x[300:])
    if name == "int8":
        np.testing.assert_allclose(code.square_, np.square(x.astype(float)).mean(axis=0))
    expected = np.argsort(-code.scores(queries, code.encode(x)), axis=1)[:, :10]
    _, ids = build_index(x, backend, codes=code).search(queries, 10)
    assert np.mean([len({*found} & {*best}) / 10 for found, best in zip(ids, expected, strict=True)]) > 0.97
