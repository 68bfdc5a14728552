"""The decomposition: what float64 cannot resolve counts as nothing, whatever the floor; OAS by its formula."""

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.whitening.whitening import oas

EPSILON = np.finfo(np.float64).eps


def fitted_with(values, n=1000, **params):
    """A whitening of n rows with these variances."""
    d, values = len(values), np.array(values, np.float64)
    tensors = {"n": np.array([n]), "mean": np.zeros(d), "components": np.eye(d)}
    result = Whitening(**params)
    result.restore(tensors | {"eigenvalues": values, "noise": 0 * values}, d)
    return result


@pytest.mark.parametrize(
    ("values", "n", "floor", "rank", "floored"),
    [
        ([1.0, 1e-3, 3 * EPSILON, 0.0], 1000, 0.0, 2, [1.0, 1e-3, 4 * EPSILON, 4 * EPSILON]),
        ([2.0, 1e-1, 1e-4], 1000, 1e-2, 2, [2.0, 1e-1, 2e-2]),
        ([3.0, 2.0, 1.0], 2, 0.0, 1, [3.0, 2.0, 1.0]),  # below the number of rows
    ],
)
def test_rank_and_scales_follow_the_floor_and_what_float64_resolves(values, n, floor, rank, floored):
    fitted = fitted_with(values, n, eigenvalue_floor=floor)
    assert fitted.rank_ == rank
    np.testing.assert_allclose(fitted.scales_, np.array(floored) ** -0.5)


@pytest.mark.parametrize(("n", "d"), [(40, 15), (12, 60), (400, 3), (5, 2)])
def test_oas_is_equation_23_and_near_scikit_learns(n, d):
    """scikit-learn leaves the terms 2/d of the published formula out."""
    covariance = pytest.importorskip("sklearn.covariance")
    x = np.random.default_rng(1).normal(size=(n, d)) * np.linspace(2, 0.2, d)
    S = np.cov(x.T, ddof=0)
    squares, square = np.trace(S @ S), np.trace(S) ** 2
    expected = min(((1 - 2 / d) * squares + square) / ((n + 1 - 2 / d) * (squares - square / d)), 1)
    found = Whitening(gamma=0, shrinkage="oas").fit(x).shrinkage_
    assert found == pytest.approx(expected, rel=1e-10)
    assert found <= covariance.OAS().fit(x).shrinkage_ <= found + 2 / d


@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0], [0.0, 0.0], [3.0]])
def test_equal_variances_are_shrunk_fully(values):
    assert oas(np.array(values), 10) == 1.0
