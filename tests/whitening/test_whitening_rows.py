"""The warning of few rows: it counts them against the columns kept, and what it advises silences it."""

import re
import warnings

import numpy as np
import pytest

from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning, effective_dimensions, eigen, unseen_variances
from tests.conftest import slow_but


def sample(n, d, spread, seed=0):
    """Rows whose standard deviations span a factor `spread`."""
    return np.random.default_rng(seed).standard_normal((n, d)) * np.geomspace(1, 1 / spread, d)


def test_rows_are_counted_against_the_columns_kept():
    X = sample(200, 40, 1000)
    with pytest.warns(
        WhiteningWarning, match=r"^A whitening of 40 columns was fitted on 200 rows, fewer than"
    ) as caught:
        Whitening().fit(X)
    most = int(re.search(r"keep at most (\d+) columns: n_components=\1\.$", str(caught[0].message)).group(1))
    assert 1 <= most < 40
    with pytest.warns(WhiteningWarning, match=rf"^A whitening to {most + 1} of 40 columns was fitted on 200 rows"):
        Whitening(n_components=most + 1).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Whitening(n_components=most).fit(X)
        Whitening(gamma=0).fit(X)  # PCA scales by nothing
        Whitening(shrinkage="oas").fit(X)


@pytest.mark.parametrize("k", slow_but([2, 5, 10, 20], 10))
def test_without_a_warning_fresh_rows_have_the_variances_fitted(k):
    """Within a third. Where the spectrum is flat, the first columns need more rows."""
    steep = Whitening(n_components=k).fit(sample(400, 60, 100))
    np.testing.assert_allclose(steep.transform(sample(20_000, 60, 100, seed=1)).var(axis=0), 1, rtol=1 / 3)
    with pytest.warns(
        WhiteningWarning, match=f"to {k} of 300 columns was fitted on 400 rows, fewer than 5 for each of"
    ):
        flat = Whitening(n_components=k).fit(sample(400, 300, 1))
    assert flat.transform(sample(20_000, 300, 1, seed=1)).var(axis=0).min() < 2 / 3


def test_effective_dimensions():
    flat, steep = (eigen(Moments().update(sample(50_000, 6, spread)))[0] for spread in (1, 1e4))
    np.testing.assert_allclose(effective_dimensions(flat), 6, rtol=0.05)
    np.testing.assert_allclose(effective_dimensions(steep), np.minimum(1, steep / steep[:, None]).sum(axis=1))
    np.testing.assert_array_equal(effective_dimensions(np.zeros(3)), [1, 2, 3])
    falling = np.append(np.geomspace(1, 1e-3, 383), 1e-20)
    assert effective_dimensions(falling)[-1] == 384  # nothing lies after the last, whatever the sum rounds to


def test_unseen_variances_are_their_formula():
    X = np.random.default_rng(3).normal(size=(40, 5)) * [16, 8, 4, 2, 1]
    degrees = 39  # of freedom: the mean is taken out
    values = np.linalg.eigvalsh(np.cov(X, rowvar=False))[::-1]
    expected = []
    for value in values:
        g = np.mean([1 / (value - other * (1 + 1j / np.sqrt(degrees))) for other in values])
        expected.append(value / abs(1 - 5 / degrees + 5 / degrees * value * g) ** 2)
    known = unseen_variances(Whitening(gamma=0).fit(X))
    np.testing.assert_allclose(known[:2], expected[:2], rtol=1e-9)
    least = np.trace(np.cov(X, rowvar=False, ddof=0)) / 5 * Whitening(gamma=0, shrinkage="oas").fit(X).shrinkage_
    np.testing.assert_allclose(known[3:], least)


@pytest.mark.parametrize("n", [30, 64, 70, 200, 2000])
@pytest.mark.parametrize("pairs", [0, 1])
def test_the_variances_of_unseen_rows(n, pairs):
    """Also if two rows are nearly equal."""
    spread = np.arange(1, 65) ** -0.6
    X = np.random.default_rng(1).standard_normal((n, 64)) * spread
    X[:pairs] = X[-1] * 1.001
    fitted = Whitening(gamma=0).fit(X.astype(np.float32))
    known = unseen_variances(fitted)
    true = (fitted.components_**2 * spread[:, None] ** 2).sum(axis=0)
    assert (np.diff(known) <= 0).all()
    for part in (slice(0, 8), slice(8, 24), slice(24, 64)):
        assert known[part].sum() == pytest.approx(true[part].sum(), rel=0.25)
