"""Drift: fresh rows of the same kind are fine at any size of the fit, and each measure moves with what it measures."""

import numpy as np
import pytest

from eval.drift import LEAST, drift, verdict
from jaxwhiten import SpectrumCode, Whitening
from jaxwhiten.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")  # of few rows
D = 24
SPREAD = np.arange(1, D + 1) ** -0.6


def rows(n, seed, spread=SPREAD, mean=0.0):
    return (np.random.default_rng(seed).standard_normal((n, len(spread))) * spread + mean).astype(np.float32)


def clustered(n, seed, spread, centres=60):
    """Rows about few centres, with heavy tails, as texts of few subjects have."""
    rng = np.random.default_rng(seed)
    middle = np.random.default_rng(0).standard_normal((centres, len(spread))) * spread
    noise = rng.standard_normal((n, len(spread))) * spread * rng.gamma(2, 0.5, (n, 1))
    return (middle[rng.integers(centres, size=n)] + noise).astype(np.float32)


@pytest.fixture(scope="module")
def code():
    return SpectrumCode(bytes=6).fit(rows(20_000, 0))


FITS = {
    "code": lambda x: SpectrumCode(bytes=12).fit(x),
    "whitening": lambda x: Whitening(n_components=16, gamma=0).fit(x),
    "all axes": lambda x: Whitening(gamma=0).fit(x),
}


def measured(fitted, new):
    found = drift(fitted, new)
    return found, {measure.name: measure.value for measure in found}


@pytest.mark.slow
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("kind", [rows, clustered])
def test_halves_of_one_corpus_are_fine_and_other_domains_are_not(fit, kind):
    """With fewer rows than axes, about as many, and more: a fit describes its own rows better than any others."""
    d = 64
    spread, other = np.arange(1, d + 1) ** -0.6, np.roll(np.arange(1, d + 1) ** -0.6, d // 2)
    refit = {"same": 0, "other": 0}
    for n in (50, 64, 80, 200, 1000) if fit != "code" else (64, 1000):
        for seed in (1, 2, 3, 4):
            old, new = np.split(kind(2 * n, seed, spread), 2)
            fitted = FITS[fit](old)
            refit["same"] += verdict(drift(fitted, new)) != "fine"
            refit["other"] += verdict(drift(fitted, kind(n, seed, other))) != "fine"
    assert refit["same"] <= 1, refit
    assert refit["other"] >= (19 if fit != "code" else 8), refit


def test_more_of_the_same_is_fine(code):
    for n in (300, 20_000):
        found, values = measured(code, rows(n, 1))
        assert verdict(found) == "fine"
        assert values["mean shift"] < 0.005
        assert values["divergence of the axes"] < 0.01
        loss = found[-1]
        assert loss.value == pytest.approx(loss.before, rel=0.1)
        assert loss.low < loss.value < loss.high


@pytest.mark.slow
def test_intervals_cover_the_value_of_many_rows(code):
    new = {"spread": SPREAD[::-1], "mean": np.r_[0.5, np.zeros(D - 1)]}
    truth = [measure.value for measure in drift(code, rows(200_000, 99, **new))]
    found = [drift(code, rows(500, seed, **new)) for seed in range(25)]
    covered = np.mean([[m.low <= t <= m.high for m, t in zip(one, truth, strict=True)] for one in found], axis=0)
    assert (covered > 0.8).all(), covered


def test_the_expected_loss_is_the_loss(code):
    new = rows(20_000, 2, spread=SPREAD[::-1])
    loss = measured(code, new)[1]["code distortion"]
    x = new - code.axes.mean_
    assert loss == pytest.approx(((new - code.transform(new)) ** 2).sum() / (x**2).sum(), rel=0.05)
    assert loss > 1.5 * drift(code, rows(20_000, 1))[-1].value


@pytest.mark.parametrize("shift", [0.3, 2.0])
def test_a_shifted_mean(code, shift):
    step = np.zeros(D)
    step[0] = shift
    found, values = measured(code, rows(5000, 3, mean=step))
    assert values["mean shift"] == pytest.approx(shift**2 / (SPREAD**2).sum(), rel=0.1)
    assert verdict(found) == ("fine" if shift < 1 else "refit now")


def test_divergence_is_that_of_normal_distributions():
    whitening = Whitening().fit(rows(50_000, 4))
    _, values = measured(whitening, rows(50_000, 5, spread=SPREAD * 2))
    assert values["divergence of the axes"] == pytest.approx((4 - 1 - np.log(4)) / 2, rel=0.05)
    assert "code distortion" not in values


def test_variance_outside_the_axes_kept():
    whitening = Whitening(n_components=4).fit(rows(20_000, 6))
    found, values = measured(whitening, rows(20_000, 7, spread=SPREAD[::-1]))
    assert values["variance outside the axes"] == pytest.approx((SPREAD[:-4] ** 2).sum() / (SPREAD**2).sum(), rel=0.05)
    assert verdict(found) == "refit now"


@pytest.mark.parametrize(
    ("new", "message"), [(np.ones((LEAST, D)), "identical"), (rows(LEAST - 1, 9), f"least {LEAST}")]
)
def test_what_cannot_be_judged_is_refused(code, new, message):
    with pytest.raises(InputError, match=message):
        drift(code, new)
