"""What mean and eigenvalues tell agrees with what the vectors themselves say."""

import numpy as np
import pytest

from eval.geometry import average_cosine
from jaxwhiten import Moments, Whitening, normalize
from jaxwhiten.metrics import isoscore_from_covariance
from jaxwhiten.whitening.spectrum import doubling, spectrum, spread, suggest


def cone(n, d, mean=2.0, power=1.0, seed=0):
    """Rows around a common mean, variances falling as a power."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** (-power / 2) + mean / np.sqrt(d)).astype(np.float32)


def test_it_agrees_with_the_vectors():
    x = cone(5000, 40)
    whitening = Whitening(n_components=16, beta=0.5, gamma=0.5).fit(x)
    facts = spectrum(whitening)
    z = whitening.transform(x)
    assert (facts["n"], facts["dimension"], facts["rank"]) == (5000, 40, 40)
    assert facts["before"]["isoscore"] == pytest.approx(isoscore_from_covariance(np.cov(x.T, ddof=0)), rel=1e-3)
    assert facts["after"]["isoscore"] == pytest.approx(
        isoscore_from_covariance(np.cov(z.T, ddof=0).astype(np.float64)), rel=1e-3
    )
    for name, rows in (("before", x), ("after", z)):
        unscaled = rows.astype(np.float64)
        total = unscaled.sum(axis=0)
        cosine = (total @ total) / len(rows) / (unscaled**2).sum()
        assert facts[name]["mean_cosine"] == pytest.approx(cosine, rel=1e-3)
    assert facts["before"]["mean_cosine"] == pytest.approx(average_cosine(normalize(x)), abs=0.1)
    variances = np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1]
    shares = {row["k"]: row["share"] for row in facts["explained"]}
    assert list(shares) == [8, 16, 32, 40]
    assert shares[16] == pytest.approx(variances[:16].sum() / variances.sum(), rel=1e-3)
    assert shares[40] == pytest.approx(1)
    assert facts["condition"] == pytest.approx(variances[0] / variances[-1], rel=1e-2)


def test_full_whitening_is_isotropic():
    after = spectrum(Whitening().fit(cone(2000, 20)))["after"]
    assert after["isoscore"] == pytest.approx(1, abs=1e-5)
    assert after["mean_cosine"] == 0


@pytest.mark.parametrize("n", [100, 5000])
def test_spread_is_the_isoscore_of_the_directions_whatever_mean_and_rows(n):
    variances = np.arange(1, 65) ** -1.0
    expected = (variances.sum() ** 2 / (variances @ variances) - 1) / 63
    found = [spread(Moments().update(cone(n, 64, mean, seed=seed))) for seed in range(20) for mean in (0.0, 6.0)]
    assert np.mean(found) == pytest.approx(expected, rel=0.05)
    assert spread(Whitening(n_components=5, shrinkage=0.5).fit(cone(n, 64))) == pytest.approx(
        spread(Moments().update(cone(n, 64)))
    )


@pytest.mark.filterwarnings("ignore:Column 0 has")
def test_suggestions_follow_the_rows():
    narrow = suggest(Whitening().fit(cone(5000, 64, mean=6.0, power=4)))
    assert (narrow.n_components, narrow.beta, narrow.gamma, narrow.shrinkage) == (8, 1.0, 1.0, None)
    for mean in (0.05, 6.0):
        wide = suggest(Whitening().fit(cone(5000, 64, mean=mean, power=1)))
        assert (wide.gamma, wide.n_components) == (0, 64)
        assert all(reason.partition("=")[0] in ["k", "β", "γ", "shrinkage"] for reason in wide.reasons)


@pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")
def test_few_rows_ask_for_shrinkage_and_a_smaller_k():
    few = suggest(Whitening().fit(cone(200, 64, mean=6.0, power=0.1)))
    assert (few.n_components, few.shrinkage) == (20, "oas")
    assert "200 rows support no more" in few.reasons[0]


@pytest.mark.filterwarnings("ignore:3 of 3 directions vary too little")
def test_one_dimension_and_equal_rows_do_not_fail():
    assert suggest(Whitening().fit(np.random.default_rng(0).normal(size=(100, 1)))).n_components == 1
    facts = spectrum(Whitening().fit(np.ones((50, 3), np.float32)))
    assert facts["rank"] == 0
    assert np.isnan(facts["condition"])
    assert suggest(Whitening().fit(np.ones((50, 3), np.float32))).n_components == 1


def test_doubling():
    assert doubling(768) == [8, 16, 32, 64, 128, 256, 512, 768]
    assert doubling(64) == [8, 16, 32, 64]
    assert doubling(5) == [5]
