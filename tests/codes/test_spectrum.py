"""The code that follows from the moments: bytes, what they stand for, and what it is fitted from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode, load_code
from jaxwhiten.errors import FormatError, InputError, NonFiniteError, NotFittedError
from jaxwhiten.io import load_tensors, save_tensors
from jaxwhiten.whitening import Moments, Whitening
from tests.conftest import slow_but

N, D = 4000, 32


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    x = rng.standard_normal((N, D)) * np.arange(1, D + 1) ** -0.6 @ turn
    return (x + 0.1 * rng.standard_normal(D)).astype(np.float32)


@pytest.fixture(scope="module")
def moments(vectors):
    return Moments().update(vectors)


def in_numpy(code, x):
    """The bytes by the definition: whitened in float64, unit length, the nearest of the levels of each axis."""
    whitening = code.whitening
    y = (x.astype(np.float64) - whitening.mean_) @ (whitening.components_[:, : whitening.n_components])
    y *= whitening.scales_
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    return y


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("count", slow_but([1, 4, 12, 32], 4, 32))
def test_decoded_vectors_are_the_nearest_of_all_codes(vectors, moments, count, gamma):
    code = SpectrumCode(bytes=count, gamma=gamma).fit(moments)
    codes = code.encode(vectors)
    assert codes.shape == (N, count)
    assert codes.dtype == np.uint8
    y = in_numpy(code, vectors)
    np.testing.assert_allclose(code.transform(vectors), y, atol=1e-4)
    quantiser = code.quantiser()
    weight, bias = quantiser.affine.kernel
    mapped = vectors @ weight + bias
    mapped = (mapped / np.linalg.norm(mapped, axis=1, keepdims=True)).reshape(N, count, -1)
    for byte, centroids in enumerate(quantiser.centroids):
        distances = ((mapped[:, byte, None] - centroids[None]) ** 2).sum(-1)
        chosen = np.take_along_axis(distances, codes[:, byte, None].astype(int), axis=1)[:, 0]
        np.testing.assert_allclose(chosen, distances.min(axis=1), atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_the_loss_is_the_expected_one_falls_with_every_byte_and_is_above_the_bound(vectors, moments, gamma):
    losses = []
    for count in (2, 4, 8, 16):
        code = SpectrumCode(bytes=count, gamma=gamma).fit(moments)
        whole = Whitening.from_moments(moments, gamma=gamma).transform(vectors)
        k = len(code.plan.byte)
        y = whole / np.linalg.norm(whole[:, :k], axis=1, keepdims=True)
        z = np.zeros_like(y)
        z[:, :k] = code.decode(code.encode(vectors))
        seen = ((y - z) ** 2).sum() / (y**2).sum()
        if k > 16:  # a few axes scaled to unit length are not normal
            assert seen == pytest.approx(code.distortion_, rel=0.15 if gamma else 0.35, abs=0.003)
        assert code.bound_ < code.distortion_ < 1
        losses.append(code.distortion_)
    assert (np.diff(losses) < 0).all()


def test_scalar_levels_for_each_axis_lose_more(moments):
    """Lloyd-Max levels of 2 bits, at which 32 equal axes fill 8 bytes, lose 0.1175 (Max 1960, table I)."""
    code = SpectrumCode(bytes=8, gamma=1.0).fit(moments)
    assert code.bound_ == pytest.approx(1 / 16)
    assert code.distortion_ < 0.1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_of_every_float_dtype_are_coded(vectors, moments, dtype):
    code, rows = SpectrumCode(bytes=7, gamma=0.5).fit(moments), vectors[:500].astype(dtype)
    same = np.asarray(code.encode(rows)) == np.asarray(code.encode(rows.astype(np.float32)))
    assert same.mean() > 0.999


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_jax_and_numpy_give_the_same_bytes(vectors, moments, gamma):
    code = SpectrumCode(bytes=7, gamma=gamma).fit(moments)
    host = code.encode(vectors)
    compiled = np.asarray(jax.jit(code.encode)(jnp.asarray(vectors)))
    assert compiled.dtype == np.uint8
    rows = np.unique(np.nonzero(compiled != host)[0])
    assert len(rows) < 0.01 * N
    y = code.transform(vectors)[rows]
    np.testing.assert_allclose(
        ((y - code.decode(compiled[rows])) ** 2).sum(1), ((y - code.decode(host[rows])) ** 2).sum(1), atol=1e-5
    )


@pytest.mark.slow
def test_rows_of_many_blocks_get_their_own_codes(vectors, moments, monkeypatch):
    code = SpectrumCode(bytes=5, gamma=0.5).fit(moments)
    whole = np.concatenate([code.encode(row[None]) for row in vectors[:1300]])
    monkeypatch.setattr("jaxwhiten.codes.code._BLOCK_BYTES", 600 * 4 * D)
    np.testing.assert_array_equal(code.encode(vectors[:1300]), whole)


def test_it_is_fitted_from_moments_a_whitening_or_rows_alike(vectors, moments):
    whitening = Whitening.from_moments(moments, gamma=0.5, n_components=20)
    wanted = SpectrumCode(bytes=5, gamma=0.5).fit(moments).encode(vectors[:99])
    for source in (vectors, whitening.with_params(n_components=None)):
        np.testing.assert_array_equal(SpectrumCode(bytes=5, gamma=0.5).fit(source).encode(vectors[:99]), wanted)
    streamed = SpectrumCode(bytes=5, gamma=0.5).partial_fit(vectors[:1000]).partial_fit(vectors[1000:])
    assert (streamed.encode(vectors[:99]) != wanted).mean() < 0.002
    few = SpectrumCode(bytes=5).fit(whitening)
    assert few.gamma_ == 0.5
    assert few.affine.outputs <= 20
    assert SpectrumCode(bytes=5, gamma=0.25).fit(whitening).gamma_ == 0.25


def test_axes_of_one_corpus_about_the_mean_of_another(vectors, moments):
    shifted = vectors + np.float32(0.7)
    alone = SpectrumCode(bytes=6, gamma=0.5).fit(moments)
    other = SpectrumCode(bytes=6, gamma=0.5).fit(moments, mean=Moments().update(shifted))
    assert (other.encode(shifted) == alone.encode(vectors)).mean() > 0.99
    assert (alone.encode(shifted) == alone.encode(vectors)).mean() < 0.9
    given = SpectrumCode(bytes=6, gamma=0.5).fit(moments, mean=shifted.mean(axis=0))
    assert (given.encode(shifted) == other.encode(shifted)).mean() > 0.99
    with pytest.raises(InputError, match="32 finite numbers"):
        SpectrumCode(bytes=6).fit(moments, mean=np.zeros(3))


def test_scores_are_cosines_with_decoded_vectors(vectors, moments):
    code = SpectrumCode(bytes=16, gamma=0.5).fit(moments)
    codes = code.encode(vectors[:500])
    scores = code.scores(vectors[:20], codes)
    q, z = code.transform(vectors[:20]), code.decode(codes)
    wanted = q @ (z / np.linalg.norm(z, axis=1, keepdims=True)).T
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    np.testing.assert_array_equal(scores.argmax(axis=1), np.arange(20))
    np.testing.assert_allclose(code.scores(codes[:3], codes).diagonal(), 1, atol=1e-6)


def test_faiss_codes_and_searches_as_this_does(vectors, moments):
    faiss = pytest.importorskip("faiss")
    code = SpectrumCode(bytes=8, gamma=0.5).fit(moments)
    index = code.to_faiss()
    index.add(vectors)
    codes = faiss.vector_to_array(faiss.downcast_index(index.index).codes).reshape(N, 8)
    assert (codes != code.encode(vectors)).mean() < 1e-3
    distances, ids = index.search(vectors[:50], 5)
    wanted = ((code.transform(vectors[:50])[:, None] - code.decode(codes)[None]) ** 2).sum(-1)
    np.testing.assert_allclose(distances, np.sort(wanted, axis=1)[:, :5], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(wanted, ids, axis=1), distances, atol=1e-5)


@pytest.mark.parametrize("count", [4, 10, 16])
def test_halves_of_bytes_hold_whole_axes(vectors, moments, count):
    code = SpectrumCode(bytes=count, gamma=0.2, halves=True).fit(moments)
    quantiser = code.quantiser(halves=True)
    assert quantiser.centroids.shape[:2] == (2 * count, 16)
    assert (quantiser.bits, quantiser.nbytes) == (4, count)
    codes = code.encode(vectors[:9])
    np.testing.assert_array_equal(np.asarray(jax.jit(code.encode)(jnp.asarray(vectors[:9]))), codes)
    halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(9, -1)
    decoded = quantiser.centroids[np.arange(2 * count), halves].reshape(9, -1)
    np.testing.assert_allclose(
        decoded @ quantiser.affine.kernel[0].T, code.decode(codes) @ code.affine.kernel[0].T, atol=1e-5
    )
    whole = SpectrumCode(bytes=count, gamma=0.2).fit(moments)
    assert whole.distortion_ < 1.05 * code.distortion_
    with pytest.raises(InputError, match=r"fit a SpectrumCode\(bytes=.*halves=True"):
        whole.quantiser(halves=True)
    with pytest.raises(InputError, match="two halves each: expected at most 32"):
        SpectrumCode(bytes=17, halves=True).fit(moments)


def test_saved_and_loaded_it_is_the_same_code(vectors, moments, tmp_path):
    moments = Moments(moments.n, moments.mean, moments.M2, {"model": "m"})
    code = SpectrumCode(bytes=6).fit(Whitening.from_moments(moments, gamma=0.3, n_components=20), mean=moments.mean)
    code.save(tmp_path / "code.safetensors", {"corpus": "wiki"})
    loaded = load_code(tmp_path / "code.safetensors")
    assert repr(loaded) == repr(code)
    np.testing.assert_array_equal(loaded.encode(vectors), code.encode(vectors))
    facts = loaded.provenance
    assert (facts["model"], facts["corpus"], facts["method"], facts["params"]["bytes"]) == ("m", "wiki", "spectrum", 6)
    assert facts["gamma"] == 0.3
    with pytest.raises(FormatError, match="contains a 'spectrum'"):
        Whitening.load(tmp_path / "code.safetensors")
    tensors, header = load_tensors(tmp_path / "code.safetensors", kind="spectrum")
    older = {name: tensor for name, tensor in tensors.items() if name not in ("centroids", "group")}
    save_tensors(tmp_path / "older.safetensors", older, kind="spectrum", header={"provenance": header["provenance"]})
    with pytest.raises(FormatError, match="a version with other codes"):
        load_code(tmp_path / "older.safetensors")


def test_what_cannot_be_is_refused(vectors, moments):
    with pytest.raises(NotFittedError):
        SpectrumCode().encode(vectors)
    with pytest.raises(InputError, match="at most 32, one per dimension"):
        SpectrumCode(bytes=33).fit(moments)
    with pytest.raises(InputError, match=r"bytes=.*: expected an integer"):
        SpectrumCode(bytes=0).fit(moments)
    with pytest.raises(InputError, match="gamma"):
        SpectrumCode(bytes=4, gamma=2.0).fit(moments)
    with pytest.raises(InputError, match="empty"):
        SpectrumCode(bytes=4).fit(Moments())
    flat = np.zeros((500, 8), np.float32)
    flat[:, :2] = vectors[:500, :2]
    with pytest.raises(InputError, match="bytes=3: expected at most 2"):
        SpectrumCode(bytes=3).fit(flat)
    code = SpectrumCode(bytes=4).fit(moments)
    bad = vectors[:9].copy()
    bad[5, 1] = np.nan
    with pytest.raises(NonFiniteError, match="Row 5"):
        code.encode(bad)
    with pytest.raises(InputError, match="32 features"):
        code.encode(vectors[:, 1:])
    with pytest.raises(InputError, match=r"uint8 \[n, 4\]"):
        code.decode(np.zeros((3, 5), np.uint8))
    with pytest.raises(InputError, match="takes"):
        jax.jit(code.encode)(jnp.zeros((3, 5)))


def test_a_row_at_the_mean_gets_a_code_too(moments):
    code = SpectrumCode(bytes=4, gamma=0.5).fit(moments)
    assert code.encode(code.whitening.mean_[None].astype(np.float32)).shape == (1, 4)
    assert np.isfinite(code.decode(np.arange(256, dtype=np.uint8)[:, None].repeat(4, axis=1))).all()


def of_variances(variances, n=8000):
    """Moments of rows with these variances."""
    return Moments(n, np.zeros(len(variances)), n * np.diag(np.asarray(variances, np.float64)))


def test_gamma_follows_the_record_of_the_moments_and_is_kept_in_the_file(tmp_path):
    moments = of_variances(np.arange(1, 65) ** -0.7)
    assert SpectrumCode(bytes=8).fit(moments).gamma_ == 0.25
    moments.provenance = {"tuned": False}
    SpectrumCode(bytes=8).fit(moments).save(tmp_path / "code")
    assert SpectrumCode.load(tmp_path / "code").gamma_ == 1.0
