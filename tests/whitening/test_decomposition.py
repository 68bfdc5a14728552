"""The decomposition: what float64 cannot resolve counts as nothing, whatever floor was asked for."""

import numpy as np
import pytest

from jaxwhiten import Moments, Whitening
from jaxwhiten.whitening.decomposition import Decomposition

EPSILON = np.finfo(np.float64).eps


def decomposition(values, n=1000):
    d = len(values)
    return Decomposition(n, np.zeros(d), np.eye(d), np.array(values, np.float64), np.zeros(d), 0.0)


def deficient(rows=400, d=12, rank=7):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, d)) + 5.0


def test_eigenvalues_and_vectors_are_numpys():
    x = np.random.default_rng(0).normal(size=(300, 6)) * np.linspace(3, 0.1, 6)
    found = Decomposition.of(Moments().update(x))
    sigma = np.cov(x.T, ddof=0)
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(sigma)[::-1], rtol=1e-9)
    np.testing.assert_allclose((found.vectors * found.values) @ found.vectors.T, sigma, atol=1e-12)
    assert (found.vectors[np.abs(found.vectors).argmax(axis=0), np.arange(6)] > 0).all()
    np.testing.assert_allclose(found.moments().M2, sigma * 300, atol=1e-9)


def test_a_floor_of_zero_is_what_float64_resolves():
    found = decomposition([1.0, 1e-3, 3 * EPSILON, 0.0])
    assert found.floor(found.values, 0.0) == 4 * EPSILON
    assert found.rank(0.0) == 2
    expected = np.array([1.0, 1e-3, 4 * EPSILON, 4 * EPSILON]) ** -0.5
    np.testing.assert_allclose(found.scales(1.0, 0.0, 0.0), expected)


def test_a_higher_floor_is_kept():
    found = decomposition([2.0, 1e-1, 1e-4])
    assert found.floor(found.values, 1e-2) == pytest.approx(2e-2)
    assert found.rank(1e-2) == 2
    np.testing.assert_allclose(found.scales(1.0, 0.0, 1e-2), np.array([2.0, 1e-1, 2e-2]) ** -0.5)


def test_the_rank_is_below_the_number_of_rows():
    assert decomposition([3.0, 2.0, 1.0], n=2).rank(0.0) == 1


def test_rank_deficient_rows_under_a_floor_of_zero():
    x = deficient()
    fitted = Whitening(eigenvalue_floor=0.0).fit(x)
    assert fitted.rank_ == 7
    assert np.isfinite(fitted.kernel[0]).all()
    largest = (len(x[0]) * EPSILON * fitted.eigenvalues_[0]) ** -0.5
    assert np.linalg.norm(fitted.kernel[0], axis=0).max() <= largest * (1 + 1e-6)
    whitened = fitted.transform(x)[:, :7]
    np.testing.assert_allclose(np.cov(whitened.T, ddof=0), np.eye(7), atol=1e-6)


def test_shrinkage_moves_the_eigenvalues_towards_their_mean():
    np.testing.assert_allclose(decomposition([3.0, 1.0, 0.5]).shrunk(0.25), [2.625, 1.125, 0.75])


def test_ledoit_wolf_is_scikit_learns():
    covariance = pytest.importorskip("sklearn.covariance")
    x = np.random.default_rng(1).normal(size=(40, 15)) * np.linspace(2, 0.2, 15)
    _, expected = covariance.ledoit_wolf(x)
    assert Decomposition.of(Moments().update(x)).ledoit_wolf() == pytest.approx(expected, rel=1e-9)
