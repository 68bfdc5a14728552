"""What mean and eigenvalues tell agrees with what the vectors themselves say."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening
from jaxwhiten.whitening import participation_ratio
from jaxwhiten.whitening.spectrum import spectrum


def cone(n, d, mean=2.0, power=1.0, seed=0):
    """Rows around a common mean, variances falling as a power."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.arange(1, d + 1) ** (-power / 2) + mean / np.sqrt(d)).astype(np.float32)


def test_it_agrees_with_the_vectors():
    x = cone(5000, 40)
    whitening = Whitening(n_components=16, beta=0.5, gamma=0.5).fit(x)
    facts = spectrum(whitening)
    assert (facts["n"], facts["dimension"], facts["rank"]) == (5000, 40, 40)
    for name, rows in (("before", x), ("after", whitening.transform(x))):
        ratio = participation_ratio(Moments().update(rows))
        total = rows.sum(axis=0, dtype=np.float64)
        cosine = (total @ total) / len(rows) / np.square(rows, dtype=np.float64).sum()
        assert facts[name] == pytest.approx({"participation_ratio": ratio, "mean_cosine": cosine}, rel=1e-3)
    variances = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    shares = {row["k"]: row["share"] for row in facts["explained"]}
    wanted = {k: variances[:k].sum() / variances.sum() for k in (8, 16, 32, 40)}
    assert shares == pytest.approx(wanted, rel=1e-3)
    assert facts["condition"] == pytest.approx(variances[0] / variances[-1], rel=1e-2)


@pytest.mark.parametrize(("d", "ks"), [(96, [8, 16, 32, 64, 96]), (64, [8, 16, 32, 64]), (5, [5])])
def test_the_variance_is_told_for_powers_of_two_and_all_dimensions(d, ks):
    assert [row["k"] for row in spectrum(Whitening().fit(cone(2000, d)))["explained"]] == ks
