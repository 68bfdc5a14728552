"""The code that follows from the moments: bytes, what they stand for, and what it is fitted from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import SpectrumCode, load_code
from jaxwhiten.errors import FormatError, InputError, NonFiniteError, NotFittedError
from jaxwhiten.io import load_tensors, save_tensors
from jaxwhiten.whitening import Moments, Whitening, WhiteningWarning
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


@pytest.mark.parametrize("count", slow_but([1, 4, 12, 16], 4, 16))
def test_decoded_vectors_are_the_nearest_of_all_codes(vectors, moments, count):
    code = SpectrumCode(bytes=count).fit(moments)
    codes = np.asarray(code.encode(vectors))
    assert codes.shape == (N, count)
    assert codes.dtype == np.uint8
    quantizer, x = code.quantizer(), vectors.astype(np.float64) - code.axes.mean_
    assert quantizer.centroids.shape[:2] == (2 * count, 16)
    assert (quantizer.bits, quantizer.nbytes) == (4, count)
    rotated = quantizer.affine(vectors)
    if count > 4:  # every axis has bits: a rotation
        np.testing.assert_allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(N, -1)
    parts = rotated.reshape(N, 2 * count, -1)
    for half, centroids in enumerate(quantizer.centroids):
        distances = ((parts[:, half, None] - centroids[None]) ** 2).sum(-1)
        chosen = np.take_along_axis(distances, halves[:, half, None].astype(int), axis=1)[:, 0]
        np.testing.assert_allclose(chosen, distances.min(axis=1), atol=1e-6)
    decoded = quantizer.centroids[np.arange(2 * count), halves].reshape(N, -1) @ quantizer.affine.matrix.T
    np.testing.assert_allclose(code.decode(codes), decoded + code.axes.mean_, atol=1e-5)
    np.testing.assert_array_equal(quantizer.quantize(rotated), codes)
    np.testing.assert_array_equal(code.transform(vectors), code.decode(codes))


def test_decoded_vectors_are_unbiased_and_lose_what_is_expected(vectors, moments):
    losses = []
    for count in (2, 4, 8, 16):
        code = SpectrumCode(bytes=count).fit(moments)
        decoded = code.decode(code.encode(vectors))
        assert decoded.dtype == np.float32
        error = decoded.astype(np.float64) - vectors
        lost = (error**2).sum() / ((vectors - vectors.mean(axis=0, dtype=np.float64)) ** 2).sum()
        assert lost == pytest.approx(code.distortion_, rel=0.05)
        assert np.linalg.norm(error.mean(axis=0)) < 3 * np.sqrt((error**2).sum(axis=1).mean() / N)
        assert code.bound_ < code.distortion_ < 1
        losses.append(code.distortion_)
    assert (np.diff(losses) < 0).all()


def test_scalar_levels_for_each_axis_lose_more(moments):
    """Lloyd-Max levels of 2 bits, at which 32 equal axes fill 8 bytes, lose 0.1175 (Max 1960, table I)."""
    code = SpectrumCode(bytes=8).fit(Whitening.from_moments(moments, gamma=1.0, shrinkage="oas"))
    assert code.bound_ == pytest.approx(1 / 16, rel=1e-3)
    assert code.distortion_ < 0.11


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_of_every_float_dtype_are_coded(vectors, moments, dtype):
    code, rows = SpectrumCode(bytes=7).fit(moments), vectors[:500].astype(dtype)
    same = np.asarray(code.encode(rows)) == np.asarray(code.encode(rows.astype(np.float32)))
    assert same.mean() > 0.999


def test_jax_and_numpy_give_the_same_bytes(vectors, moments):
    code = SpectrumCode(bytes=7).fit(moments)
    host = code.encode(vectors)
    compiled = np.asarray(jax.jit(code.encode)(jnp.asarray(vectors)))
    assert compiled.dtype == np.uint8
    rows = np.unique(np.nonzero(compiled != host)[0])
    assert len(rows) < 0.01 * N
    y = vectors[rows]
    np.testing.assert_allclose(
        ((y - code.decode(compiled[rows])) ** 2).sum(1), ((y - code.decode(host[rows])) ** 2).sum(1), atol=1e-5
    )


@pytest.mark.slow
def test_rows_of_many_blocks_get_their_own_codes(vectors, moments, monkeypatch):
    code = SpectrumCode(bytes=5).fit(moments)
    whole = np.concatenate([code.encode(row[None]) for row in vectors[:1300]])
    monkeypatch.setattr("jaxwhiten.codes.code._BLOCK_BYTES", 600 * 4 * D)
    np.testing.assert_array_equal(code.encode(vectors[:1300]), whole)


def test_it_is_fitted_from_moments_or_rows_alike(vectors, moments):
    wanted = SpectrumCode(bytes=5).fit(moments).encode(vectors[:99])
    np.testing.assert_array_equal(SpectrumCode(bytes=5).fit(vectors).encode(vectors[:99]), wanted)
    streamed = SpectrumCode(bytes=5).partial_fit(vectors[:1000]).partial_fit(vectors[1000:])
    assert (streamed.encode(vectors[:99]) != wanted).mean() < 0.002


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_fitted_from_a_whitening_it_is_the_code_of_its_vectors_of_unit_length(vectors, moments, gamma):
    whitening = Whitening.from_moments(moments, gamma=gamma, n_components=20)
    code, x = SpectrumCode(bytes=6).fit(whitening), normalize(whitening.transform(vectors))
    assert code.n_features_in_ == 20
    assert ((code.transform(x) - x) ** 2).sum() / N == pytest.approx(code.distortion_, rel=0.15 if gamma else 0.35)
    by_rows = SpectrumCode(bytes=6).fit(x)
    assert code.distortion_ == pytest.approx(by_rows.distortion_, rel=0.2)
    with pytest.raises(InputError, match="with_mean"):
        SpectrumCode(bytes=6).fit(whitening, mean=moments.mean)


def test_axes_of_one_corpus_about_the_mean_of_another(vectors, moments):
    shifted = vectors + np.float32(0.7)
    alone = SpectrumCode(bytes=6).fit(moments)
    other = SpectrumCode(bytes=6).fit(moments, mean=Moments().update(shifted))
    assert (other.encode(shifted) == alone.encode(vectors)).mean() > 0.99
    assert (alone.encode(shifted) == alone.encode(vectors)).mean() < 0.9
    given = SpectrumCode(bytes=6).fit(moments, mean=shifted.mean(axis=0))
    assert (given.encode(shifted) == other.encode(shifted)).mean() > 0.99
    with pytest.raises(InputError, match="32 finite numbers"):
        SpectrumCode(bytes=6).fit(moments, mean=np.zeros(3))


def test_scores_are_cosines_with_decoded_vectors(vectors, moments):
    code = SpectrumCode(bytes=16).fit(moments)
    codes = code.encode(vectors[:500])
    scores = code.scores(vectors[:20], codes)
    wanted = normalize(vectors[:20].astype(np.float64)) @ normalize(code.decode(codes).astype(np.float64)).T
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    np.testing.assert_array_equal(scores.argmax(axis=1), np.arange(20))
    np.testing.assert_allclose(code.scores(codes[:3], codes).diagonal(), 1, atol=1e-6)
    raw = normalize(vectors[:20]) @ normalize(vectors[:500]).T
    assert np.abs(scores - raw).mean() < 0.03


def test_faiss_codes_and_searches_as_this_does(vectors, moments):
    faiss = pytest.importorskip("faiss")
    code = SpectrumCode(bytes=8).fit(moments)
    index = code.to_faiss()
    index.add(vectors)
    codes = faiss.vector_to_array(faiss.downcast_index(index.index).codes).reshape(N, 8)
    assert (codes != code.encode(vectors)).mean() < 1e-3
    distances, ids = index.search(vectors[:50], 5)
    axes = code.affine.matrix.astype(np.float64)
    wanted = (((vectors[:50, None] - code.decode(codes)[None]) @ axes) ** 2).sum(-1)
    np.testing.assert_allclose(distances, np.sort(wanted, axis=1)[:, :5], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(wanted, ids, axis=1), distances, atol=1e-5)


def test_saved_and_loaded_it_is_the_same_code(vectors, moments, tmp_path):
    moments = Moments(moments.n, moments.mean, moments.M2, {"model": "m"})
    code = SpectrumCode(bytes=6).fit(moments, mean=moments.mean + 0.1)
    code.save(tmp_path / "code.safetensors", {"corpus": "wiki"})
    loaded = load_code(tmp_path / "code.safetensors")
    assert repr(loaded) == repr(code)
    np.testing.assert_array_equal(loaded.encode(vectors), code.encode(vectors))
    facts = loaded.provenance
    assert (facts["model"], facts["corpus"], facts["method"], facts["params"]["bytes"]) == ("m", "wiki", "spectrum", 6)
    with pytest.raises(FormatError, match="contains a 'spectrum'"):
        Whitening.load(tmp_path / "code.safetensors")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("group", lambda x: x[:5]),
        ("group", lambda x: np.zeros_like(x)),
        ("group", lambda x: x + 1),
        ("group", lambda x: x.astype(np.float32)),
        ("centroids", lambda x: x[:-1]),
        ("centroids", lambda x: x[:, :8]),
        ("centroids", lambda x: x.astype(np.float64)),
        ("lost", lambda x: x + 1),
        ("lost", lambda x: x * np.nan),
        ("lost", lambda x: np.zeros(2)),
        ("mean", lambda x: x[:-1]),
        ("components", lambda x: x.T[:-1]),
        ("centroids", None),
        ("lost", None),
        ("eigenvalues", None),
    ],
)
def test_a_damaged_file_is_refused(moments, tmp_path, name, change):
    SpectrumCode(bytes=6).fit(moments).save(tmp_path / "code")
    tensors, header = load_tensors(tmp_path / "code", kind="spectrum")
    tensors = {key: np.array(value) for key, value in tensors.items()}
    tensors[name] = change(tensors[name]) if change else None
    tensors = {key: np.ascontiguousarray(value) for key, value in tensors.items() if value is not None}
    save_tensors(tmp_path / "damaged", tensors, kind="spectrum", header={"provenance": header["provenance"]})
    with pytest.raises(FormatError, match="damaged: "):
        load_code(tmp_path / "damaged")


def test_vectors_along_few_axes_fill_a_code_with_a_warning(vectors, tmp_path):
    few = np.repeat(vectors[:5], 4, axis=0)  # of rank 4, which is less than half of what 20 vectors can have
    with pytest.warns(WhiteningWarning, match="along only 4 axes. Use more texts, or at most 2 bytes"):
        code = SpectrumCode(bytes=8).fit(few)
    codes = code.encode(vectors)
    cosines = np.einsum("nd,nd->n", normalize(code.decode(codes)[:5]), normalize(vectors[:5]))
    assert codes.shape == (len(vectors), 8)
    assert cosines.min() > 0.9
    code.save(tmp_path / "code.safetensors")
    np.testing.assert_array_equal(load_code(tmp_path / "code.safetensors").encode(vectors), codes)


def test_few_vectors_are_warned_of_where_more_would_help(vectors):
    with pytest.warns(WhiteningWarning, match="of 7 bytes was fitted on 31 vectors of 32 dimensions") as caught:
        SpectrumCode(bytes=7).fit(vectors[:31])
    assert "use about 32 texts, or 8 bytes" in str(caught[0].message)
    SpectrumCode(bytes=7).fit(vectors[:32])
    SpectrumCode(bytes=8).fit(vectors[:31])


def test_a_code_of_few_vectors_serves_others(tmp_path):
    """Without shrinkage the small variances of 40 vectors of 96 columns are 0, and the code loses what others have."""
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(2040, 96)) * np.linspace(3, 1, 96)).astype(np.float32)
    few, others = rows[:40], rows[40:]
    moments = Moments.of(few)
    many = Moments(moments.n * 10**9, moments.mean, moments.M2 * 10**9)  # whose covariance is not shrunk

    def lost(code):
        return ((code.transform(others) - others) ** 2).sum() / ((others - few.mean(axis=0)) ** 2).sum()

    code = SpectrumCode(bytes=24).fit(moments)
    with pytest.warns(WhiteningWarning, match="along only"):
        unshrunk = SpectrumCode(bytes=24).fit(many)
    assert lost(code) < 0.7 * lost(unshrunk)
    assert code.distortion_ == pytest.approx(lost(code), rel=0.15)
    code.save(tmp_path / "few")
    loaded = load_code(tmp_path / "few")
    np.testing.assert_array_equal(loaded.encode(others), code.encode(others))
    more = [one.partial_fit(others) for one in (loaded, code)]
    np.testing.assert_array_equal(more[0].encode(others), more[1].encode(others))


def test_moments_in_any_order_and_split_give_the_axes_of_few_vectors():
    """Also those along which the vectors do not vary."""
    rows = np.random.default_rng(0).normal(size=(40, 96)).astype(np.float32)
    code = SpectrumCode(bytes=24).fit(rows)
    for parts in ([rows[:7], rows[7:]], [rows[20:], rows[:20]]):
        merged = SpectrumCode(bytes=24).fit(Moments.of(parts[0]).merge(Moments.of(parts[1])))
        np.testing.assert_allclose(merged.axes.components_, code.axes.components_, atol=1e-5)
        assert merged.distortion_ == pytest.approx(code.distortion_, rel=1e-3)


def test_what_cannot_be_is_refused(vectors, moments):
    with pytest.raises(NotFittedError):
        SpectrumCode().encode(vectors)
    with pytest.raises(InputError, match="at most 16, half a byte per dimension"):
        SpectrumCode(bytes=17).fit(moments)
    with pytest.raises(InputError, match=r"bytes=.*: expected an integer"):
        SpectrumCode(bytes=0).fit(moments)
    with pytest.raises(TypeError, match="gamma"):
        SpectrumCode(bytes=4, gamma=0.5)
    with pytest.raises(InputError, match="empty"):
        SpectrumCode(bytes=4).fit(Moments())
    with pytest.raises(InputError, match="identical up to rounding"):
        SpectrumCode(bytes=3).fit(np.ones((500, 8), np.float32))
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
    code = SpectrumCode(bytes=4).fit(moments)
    assert code.encode(code.axes.mean_[None].astype(np.float32)).shape == (1, 4)
    assert np.isfinite(code.decode(np.arange(256, dtype=np.uint8)[:, None].repeat(4, axis=1))).all()


def test_the_scan_ranks_nearly_like_the_cosine():
    """Of vectors whose lengths vary: the nearest to a query's point are those of the highest cosines."""
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(3000, 24)) * np.arange(1, 25) ** -0.5 * 5 + 1.5).astype(np.float32)
    code = SpectrumCode(bytes=12).fit(x)
    quantizer, codes = code.quantizer(), code.encode(x[:2000])
    asked, products = quantizer.asked(normalize(x[2000:2100]))
    distances = ((quantizer.scanned(asked)[:, None] - quantizer.coordinates(codes)) ** 2).sum(axis=2)
    best = np.argsort(-quantizer.cosines(asked, products, codes), axis=1)[:, :10]
    nearest = np.argsort(distances, axis=1)[:, :40]
    assert np.mean([np.isin(a, b) for a, b in zip(best, nearest, strict=True)]) > 0.98
