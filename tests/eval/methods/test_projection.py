"""Random projection: its distribution and its seed."""

import numpy as np
import pytest

from eval.methods import RandomProjection

D = 64


def matrix(method):
    return method.transform(np.eye(D))


def test_it_multiplies_by_a_gaussian_matrix_of_variance_one_over_k():
    m = matrix(RandomProjection(200, seed=3).fit(np.zeros((1, D))))
    assert m.shape == (D, 200)
    assert m.mean() == pytest.approx(0, abs=0.003)
    assert m.var() == pytest.approx(1 / 200, rel=0.05)
    scipy_stats = pytest.importorskip("scipy.stats")
    assert scipy_stats.kstest(m.ravel() * np.sqrt(200), "norm").pvalue > 1e-3
    x = np.random.default_rng(0).standard_normal((9, D))
    np.testing.assert_allclose(RandomProjection(200, seed=3).fit_transform(x), x @ m, atol=1e-12)
