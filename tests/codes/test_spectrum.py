"""The code that follows from the moments: bytes, what they stand for, and what it is fitted from."""

import os
import subprocess
import sys

import numpy as np
import pytest

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import SpectrumCode, load_code
from jaxwhiten.errors import MismatchError
from jaxwhiten.whitening import Moments, Whitening, WhiteningWarning
from tests.conftest import ROOT, slow_but

N, D = 3000, 32


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    x = rng.standard_normal((N, D)) * np.arange(1, D + 1) ** -0.6 @ turn
    return (x + 0.1 * rng.standard_normal(D)).astype(np.float32)


@pytest.fixture(scope="module")
def moments(vectors):
    return Moments().update(vectors)


@pytest.mark.parametrize("count", slow_but([1, 4, 12, 16], 4))
def test_decoded_vectors_are_the_nearest_of_all_codes(vectors, moments, count):
    code = SpectrumCode(bytes=count).fit(moments)
    codes = np.asarray(code.encode(vectors))
    quantizer, x = code.quantizer(), vectors.astype(np.float64) - code.axes.mean_
    assert quantizer.centroids.shape[:2] == (2 * count, 16)
    rotated = quantizer.affine(vectors)
    if count > 4:  # every axis has bits: a rotation
        np.testing.assert_allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    halves = np.stack([codes & 15, codes >> 4], axis=2).reshape(N, -1)
    parts = rotated.reshape(N, 2 * count, -1)
    for half, centroids in enumerate(quantizer.centroids):
        distances = ((parts[:, half, None] - centroids[None]) ** 2).sum(-1)
        chosen = np.take_along_axis(distances, halves[:, half, None].astype(int), axis=1)[:, 0]
        np.testing.assert_allclose(chosen, distances.min(axis=1), atol=1e-6)


def test_decoded_vectors_are_unbiased_and_lose_what_is_expected(vectors, moments):
    losses = []
    for count in (2, 4, 8, 16):
        code = SpectrumCode(bytes=count).fit(moments)
        error = code.transform(vectors).astype(np.float64) - vectors
        lost = (error**2).sum() / ((vectors - vectors.mean(axis=0, dtype=np.float64)) ** 2).sum()
        assert lost == pytest.approx(code.distortion_, rel=0.05)
        assert np.linalg.norm(error.mean(axis=0)) < 3 * np.sqrt((error**2).sum(axis=1).mean() / N)
        assert code.bound_ < code.distortion_ < 1
        losses.append(code.distortion_)
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_fitted_from_a_whitening_it_is_the_code_of_its_vectors_of_unit_length(vectors, moments, gamma):
    whitening = Whitening.from_moments(moments, gamma=gamma, n_components=20)
    code, x = SpectrumCode(bytes=6).fit(whitening), normalize(whitening.transform(vectors))
    assert code.n_features_in_ == 20
    assert ((code.transform(x) - x) ** 2).sum() / N == pytest.approx(code.distortion_, rel=0.15 if gamma else 0.35)


def test_axes_of_one_corpus_about_the_mean_of_another(vectors, moments):
    shifted = vectors + np.float32(0.7)
    alone = SpectrumCode(bytes=6).fit(moments)
    other = SpectrumCode(bytes=6).fit(moments, mean=Moments().update(shifted))
    assert (other.encode(shifted) == alone.encode(vectors)).mean() > 0.99
    assert (alone.encode(shifted) == alone.encode(vectors)).mean() < 0.9
    given = SpectrumCode(bytes=6).fit(moments, mean=shifted.mean(axis=0))
    assert (given.encode(shifted) == other.encode(shifted)).mean() > 0.99
    of_others = [Moments(moments.n, moments.mean, moments.M2, {"pooling": name}) for name in ("mean", "cls")]
    with pytest.raises(MismatchError, match="pooling='mean', got 'cls'"):
        SpectrumCode(bytes=6).fit(of_others[0], mean=of_others[1])


def test_vectors_along_few_axes_fill_a_code_with_a_warning(vectors, tmp_path):
    few = np.repeat(vectors[:5], 4, axis=0)  # of rank 4, which is less than half of what 20 vectors can have
    with pytest.warns(WhiteningWarning, match="along only 4 axes. Use more texts, or at most 2 bytes"):
        code = SpectrumCode(bytes=8).fit(few)
    cosines = np.einsum("nd,nd->n", normalize(code.transform(vectors[:5])), normalize(vectors[:5]))
    assert cosines.min() > 0.9
    code.save(tmp_path / "code")
    np.testing.assert_array_equal(load_code(tmp_path / "code").encode(vectors), code.encode(vectors))


def test_few_vectors_are_warned_of_where_more_would_help(vectors):
    with pytest.warns(WhiteningWarning, match="of 7 bytes was fitted on 31 vectors of 32 dimensions") as caught:
        SpectrumCode(bytes=7).fit(vectors[:31])
    assert "use about 32 texts, or 8 bytes" in str(caught[0].message)
    SpectrumCode(bytes=7).fit(vectors[:32])
    SpectrumCode(bytes=8).fit(vectors[:31])


def test_a_code_of_few_vectors_serves_others(tmp_path):
    """Without shrinkage the small variances of 40 vectors of 96 columns are 0, and the code loses what others have."""
    rows = (np.random.default_rng(0).normal(size=(2040, 96)) * np.linspace(3, 1, 96)).astype(np.float32)
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
    more = [one.partial_fit(others) for one in (load_code(tmp_path / "few"), code)]
    np.testing.assert_array_equal(more[0].encode(others), more[1].encode(others))


def test_moments_in_any_order_and_split_give_the_axes_of_few_vectors():
    """Also those along which the vectors do not vary."""
    rows = np.random.default_rng(0).normal(size=(40, 96)).astype(np.float32)
    code = SpectrumCode(bytes=24).fit(rows)
    for parts in ([rows[:7], rows[7:]], [rows[20:], rows[:20]]):
        merged = SpectrumCode(bytes=24).fit(Moments.of(parts[0]).merge(Moments.of(parts[1])))
        np.testing.assert_allclose(merged.axes.components_, code.axes.components_, atol=1e-5)
        assert merged.distortion_ == pytest.approx(code.distortion_, rel=1e-3)


FIT = """
import sys
import numpy as np
from jaxwhiten import Moments, SpectrumCode, Whitening
d = 256
rows = np.random.default_rng(0).standard_normal((d, d)) * np.arange(1, d + 1) ** -0.5
moments = Moments(5000, np.linspace(0, 0.3, d), 5000 * rows.T @ rows)
for fitted in (moments, Whitening.from_moments(moments)):
    for array in SpectrumCode(bytes=8).fit(fitted).tensors().values():
        sys.stdout.buffer.write(array.tobytes())
"""


@pytest.mark.slow
def test_a_code_has_the_same_bytes_with_one_thread_and_with_two():
    def fitted(threads):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        return subprocess.run([sys.executable, "-c", FIT], capture_output=True, cwd=ROOT, env=environment, check=True)

    one, two = fitted("1").stdout, fitted("2").stdout
    assert len(one) > 256**2
    assert one == two
