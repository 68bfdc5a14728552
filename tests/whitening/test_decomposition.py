"""The decomposition: what float64 cannot resolve counts as nothing, whatever floor was asked for."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening
from jaxwhiten.whitening.whitening import eigen, oas

EPSILON = np.finfo(np.float64).eps


def fitted_with(values, n=1000, **params):
    """A whitening of n rows with these variances."""
    d, values = len(values), np.array(values, np.float64)
    tensors = {
        "n": np.array([n]),
        "mean": np.zeros(d),
        "components": np.eye(d),
        "eigenvalues": values,
        "noise": 0 * values,
    }
    result = Whitening(**params)
    result.restore(tensors, d)
    return result


def deficient(rows=400, d=12, rank=7):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, d)) + 5.0


def test_eigenvalues_and_vectors_are_numpys():
    x = np.random.default_rng(0).normal(size=(300, 6)) * np.linspace(3, 0.1, 6)
    values, vectors, noise = eigen(Moments().update(x))
    sigma = np.cov(x.T, ddof=0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(sigma)[::-1], rtol=1e-9)
    np.testing.assert_allclose((vectors * values) @ vectors.T, sigma, atol=1e-12)
    assert (vectors[np.abs(vectors).argmax(axis=0), np.arange(6)] > 0).all()
    assert (noise < 1e-28).all()


def test_a_floor_of_zero_is_what_float64_resolves():
    fitted = fitted_with([1.0, 1e-3, 3 * EPSILON, 0.0], eigenvalue_floor=0.0)
    assert fitted.rank_ == 2
    np.testing.assert_allclose(fitted.scales_, np.array([1.0, 1e-3, 4 * EPSILON, 4 * EPSILON]) ** -0.5)


def test_a_higher_floor_is_kept():
    fitted = fitted_with([2.0, 1e-1, 1e-4], eigenvalue_floor=1e-2)
    assert fitted.rank_ == 2
    np.testing.assert_allclose(fitted.scales_, np.array([2.0, 1e-1, 2e-2]) ** -0.5)


def test_the_rank_is_below_the_number_of_rows():
    assert fitted_with([3.0, 2.0, 1.0], n=2, eigenvalue_floor=0.0).rank_ == 1


def test_rank_deficient_rows_under_a_floor_of_zero():
    x = deficient()
    fitted = Whitening(eigenvalue_floor=0.0).fit(x)
    assert fitted.rank_ == 7
    assert np.isfinite(fitted.kernel[0]).all()
    largest = (len(x[0]) * EPSILON * fitted.eigenvalues_[0]) ** -0.5
    assert np.linalg.norm(fitted.kernel[0], axis=0).max() <= largest * (1 + 1e-6)
    whitened = fitted.transform(x)[:, :7]
    np.testing.assert_allclose(np.cov(whitened.T, ddof=0), np.eye(7), atol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(40, 15), (12, 60), (400, 3), (5, 2)])
def test_oas_is_equation_23_and_near_scikit_learns(n, d):
    """scikit-learn leaves the terms 2/d of the published formula out."""
    covariance = pytest.importorskip("sklearn.covariance")
    x = np.random.default_rng(1).normal(size=(n, d)) * np.linspace(2, 0.2, d)
    S = np.cov(x.T, ddof=0)
    squares, square = np.trace(S @ S), np.trace(S) ** 2
    expected = min(((1 - 2 / d) * squares + square) / ((n + 1 - 2 / d) * (squares - square / d)), 1)
    found = oas(eigen(Moments().update(x))[0], n)
    assert found == pytest.approx(expected, rel=1e-10)
    assert Whitening(gamma=0, shrinkage="oas").fit(x).shrinkage_ == pytest.approx(found)
    theirs = covariance.OAS().fit(x).shrinkage_
    omitted = (squares + square) / ((n + 1) * (squares - square / d))
    assert theirs == pytest.approx(min(omitted, 1), rel=1e-10)
    assert found <= theirs <= found + 2 / d


def test_oas_of_equal_variances_shrinks_fully():
    assert oas(np.array([2.0, 2.0, 2.0]), 10) == 1.0
    assert oas(np.array([0.0, 0.0]), 10) == 1.0
    assert oas(np.array([3.0]), 10) == 1.0
