"""The plain codes: bytes equal to those of sentence-transformers, and ranges that are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten import build_index, normalize
from jaxwhiten.codes import CODES, load_code, make_code
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import Moments, Whitening

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
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes.view(code.dtype), wanted)
    assert wanted.dtype == code.dtype
    if name.endswith("int8"):
        given = util.quantize_embeddings(new, name, ranges=code.ranges_)
        np.testing.assert_array_equal(codes.view(code.dtype), given)
        by_block = make_code(name).partial_fit(fitted[:100]).partial_fit(fitted[100:])
        np.testing.assert_array_equal(by_block.encode(new), codes)


@pytest.mark.parametrize("name", PLAIN)
def test_jax_and_numpy_give_the_same_bytes(name, vectors):
    code = make_code(name).fit(vectors)
    host, compiled = code.encode(vectors), np.asarray(jax.jit(code.encode)(jnp.asarray(vectors)))
    if name.endswith("int8"):
        (low, high), other = code.ranges_.astype(np.float64), compiled != host
        place = (vectors - low) / np.where(high > low, high - low, 1) * 255
        assert (np.abs(place - np.round(place))[other] < 1e-3).all()
    assert (compiled != host).mean() < 1e-3


def test_a_byte_of_each_column_is_nearly_the_vector(vectors):
    codes = {name: make_code(name).fit(vectors) for name in ("int8", "uint8")}
    for code in codes.values():
        decoded = code.decode(code.encode(vectors))
        step = np.ptp(code.ranges_, axis=0) / 255
        assert (np.abs(decoded - vectors) <= 0.5001 * step.max() + 1e-5).all()
        np.testing.assert_array_equal(code.transform(vectors), decoded)
    np.testing.assert_array_equal(codes["int8"].encode(vectors) ^ 128, codes["uint8"].encode(vectors))


@pytest.mark.parametrize("d", [5, 8, 20, 73, 384])
def test_a_product_packs_bits_as_numpy_does(d):
    """Of graphs, in which there are no bits: columns of zeros and ones times the matrix of places are the bytes."""
    rows = np.random.default_rng(d).normal(size=(9, d)).astype(np.float32)
    code = make_code("ubinary").fit(rows)
    np.testing.assert_array_equal((rows > 0) @ code.plan.constants["places"], code.encode(rows))


@pytest.mark.parametrize("name", ["binary", "ubinary"])
def test_bits_are_signs(name, vectors):
    vectors = vectors - vectors.mean(axis=0)
    code = make_code(name).fit(vectors)
    signs = np.where(vectors > 0, 1, -1)
    assert (code.decode(code.encode(vectors)) * signs > 0).all()
    codes = code.encode(vectors)
    decoded = code.decode(codes)
    np.testing.assert_allclose(code.scores(codes[:5], codes), decoded[:5] @ decoded.T, atol=1e-6)
    asymmetric = code.scores(vectors[:5], codes)
    q = vectors[:5]
    np.testing.assert_allclose(np.abs(decoded), 1 / np.sqrt(D), rtol=1e-6)
    wanted = q @ decoded.T / np.linalg.norm(q, axis=1)[:, None]
    np.testing.assert_allclose(asymmetric, wanted, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("columns", "scale"), [(20, 1), (16, 1), (5, 1), (20, 1e3)])
def test_faiss_codes_as_this_does(name, columns, scale, vectors):
    """FAISS compares rounded distances: a step or sign may be missed next to its border, a bit without a column never.

    A bit decides 4 |x| c of a distance that sums at most 8 squares, each step rounded to a share of 2⁻²⁴.
    """
    faiss, vectors = pytest.importorskip("faiss"), np.float32(scale) * vectors[:, :columns]
    code = make_code(name).fit(vectors)
    index = code.to_faiss()
    index.add(vectors)
    pq = faiss.downcast_index(index.index)
    codes = faiss.vector_to_array(pq.codes).reshape(N, code.nbytes)
    if name.endswith("binary"):
        bits, own = (np.unpackbits(each, axis=1) for each in (codes, np.asarray(code.encode(vectors))))
        assert not bits[:, columns:].any()
        padded = np.pad(np.abs(vectors.astype(np.float64)), ((0, 0), (0, -columns % 8)))
        lengths = np.repeat((padded.reshape(N, -1, 8) ** 2).sum(axis=2) + 1, 8, axis=1)
        assert (4 * padded / np.sqrt(columns) <= 16 * 2.0**-24 * lengths)[bits != own].all()
    assert (codes != code.encode(vectors)).mean() < 1e-2
    if scale != 1:
        return
    distances, ids = index.search(vectors[:20], 5)
    wanted = ((vectors[:20, None] - code.decode(codes)[None]) ** 2).sum(-1)
    np.testing.assert_allclose(np.take_along_axis(wanted, ids, axis=1), distances, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.sort(wanted, axis=1)[:, :5], distances, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", PLAIN)
def test_saved_and_loaded_it_is_the_same_code(name, vectors, tmp_path):
    code = make_code(name).fit(vectors)
    code.save(tmp_path / "code.safetensors")
    loaded = load_code(tmp_path / "code.safetensors")
    assert repr(loaded) == repr(code)
    np.testing.assert_array_equal(loaded.encode(vectors), code.encode(vectors))


def test_bits_are_fitted_from_moments_and_ranges_are_not(vectors):
    moments = Moments().update(vectors)
    by_moments, by_rows = (make_code("ubinary").fit(source) for source in (moments, vectors))
    np.testing.assert_array_equal(by_moments.encode(vectors), by_rows.encode(vectors))
    assert make_code("binary").fit(Whitening.from_moments(moments)).nbytes == 3
    with pytest.raises(InputError, match="fit rows"):
        make_code("int8").fit(moments)


def test_typos_are_answered(vectors):
    with pytest.raises(InputError, match="Did you mean 'ubinary'"):
        make_code("ubinry")
    assert set(CODES) >= {"spectrum", *PLAIN}


@pytest.mark.parametrize("backend", ["jax", "faiss-flat"])
def test_an_index_knows_how_long_vectors_are(backend):
    """FAISS ranks by distances: with another length than theirs, it finds long or short vectors."""
    pytest.importorskip("faiss" if backend != "jax" else "jax")
    rng = np.random.default_rng(0)
    x = normalize(rng.standard_normal((2000, 64)) + 2) * rng.uniform(96, 104, (2000, 1))
    x = x.astype(np.float32)
    queries = (x[:50] + 5 * rng.standard_normal((50, 64))).astype(np.float32)
    code = make_code("int8").partial_fit(x[:300]).partial_fit(x[300:])
    np.testing.assert_allclose(code.square_, np.square(x.astype(float)).mean(axis=0))
    expected = np.argsort(-code.scores(queries, code.encode(x)), axis=1)[:, :10]
    _, ids = build_index(x, backend, codes=code).search(queries, 10)
    assert np.mean([len({*found} & {*best}) / 10 for found, best in zip(ids, expected, strict=True)]) > 0.97
