"""Drift: nothing where nothing changed, and each measure moves with what it measures."""

import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode, drift
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import Moments, Whitening

D = 24
SPREAD = np.arange(1, D + 1) ** -0.6


def rows(n, seed, spread=SPREAD, mean=0.0):
    return (np.random.default_rng(seed).standard_normal((n, D)) * spread + mean).astype(np.float32)


@pytest.fixture(scope="module")
def code():
    return SpectrumCode(bytes=6, gamma=0.5).fit(rows(20_000, 0))


def measured(fitted, new):
    found = drift(fitted, Moments().update(new))
    return found, {measure.name: measure.value for measure in found.measures}


def test_more_of_the_same_is_fine(code):
    for n in (300, 20_000):
        found, values = measured(code, rows(n, 1))
        assert found.verdict == "fine"
        assert found.n == n
        assert values["loss of the code"] == pytest.approx(code.distortion_, rel=0.1)
        assert values["mean shift"] < 0.005
        assert values["divergence of the axes"] < 0.01


def test_the_expected_loss_is_the_loss(code):
    new = rows(20_000, 2, spread=SPREAD[::-1])
    loss = code.expected_loss(Moments().update(new))
    whitening = code.whitening.with_params(n_components=None)
    y = whitening.transform(new)
    k = len(code.bits_)
    kept = np.sqrt(whitening.eigenvalues_[:k] * whitening.scales_[:k] ** 2)
    z = code._decode(code.quantise((y[:, :k] / np.linalg.norm(kept)).astype(np.float32), code.plan.constants))
    seen = ((y[:, :k] - z * np.linalg.norm(kept)) ** 2).sum() + (y[:, k:] ** 2).sum()
    assert loss == pytest.approx(seen / (y**2).sum(), rel=0.02)
    assert loss > 1.5 * code.distortion_


@pytest.mark.parametrize("shift", [0.3, 2.0])
def test_a_shifted_mean(code, shift):
    step = np.zeros(D)
    step[0] = shift
    found, values = measured(code, rows(5000, 3, mean=step))
    assert values["mean shift"] == pytest.approx(shift**2 / (SPREAD**2).sum(), rel=0.1)
    assert found.verdict == ("fine" if shift < 1 else "refit now")


def test_divergence_is_that_of_normal_distributions():
    whitening = Whitening().fit(rows(50_000, 4))
    _, values = measured(whitening, rows(50_000, 5, spread=SPREAD * 2))
    assert values["divergence of the axes"] == pytest.approx((4 - 1 - np.log(4)) / 2, rel=0.05)
    assert "loss of the code" not in values


def test_variance_outside_the_axes_kept():
    whitening = Whitening(n_components=4).fit(rows(20_000, 6))
    found, values = measured(whitening, rows(20_000, 7, spread=SPREAD[::-1]))
    assert values["variance outside the axes"] == pytest.approx((SPREAD[:-4] ** 2).sum() / (SPREAD**2).sum(), rel=0.05)
    assert found.verdict == "refit now"


def test_what_cannot_be_is_refused(code):
    with pytest.raises(InputError, match="Moments of 24 columns"):
        drift(code, Moments().update(np.ones((3, 5))))
    with pytest.raises(InputError, match="Moments of 24 columns"):
        drift(code, Moments())
