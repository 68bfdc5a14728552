"""All-but-the-top, PCA and shrunk whitening, against numpy and scikit-learn."""

import numpy as np
import pytest

from eval.methods import AllButTheTop, make_method
from jaxwhiten.errors import InputError

D = 8


@pytest.fixture
def rows():
    rng = np.random.default_rng(2)
    return rng.standard_normal((600, D)) @ rng.standard_normal((D, D)) + 3


def covariance(x):
    return np.cov(x.T, ddof=0)


@pytest.mark.parametrize("D_removed", [0, 1, 3])
def test_all_but_the_top_removes_projections_one_by_one(rows, D_removed):
    centred = rows - rows.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred.copy()
    for u in directions[:D_removed]:
        expected -= np.outer(expected @ u, u)
    np.testing.assert_allclose(AllButTheTop(D_removed).fit_transform(rows), expected, atol=1e-10)


@pytest.mark.parametrize(("d", "removed"), [(1, 0), (2, 1), (99, 1), (200, 2), (384, 3)])
def test_all_but_the_top_removes_a_hundredth_by_default(d, removed):
    x = np.random.default_rng(0).standard_normal((d + 50, d))
    assert np.linalg.matrix_rank(AllButTheTop().fit_transform(x)) == d - removed


def test_all_but_the_top_keeps_at_least_one_direction(rows):
    for wrong in (D, -1, 1.5, True):
        with pytest.raises(InputError, match="n_directions"):
            AllButTheTop().set_params(n_directions=wrong).fit(rows)


def test_pca_keeps_the_directions_of_largest_variance(rows):
    z = make_method("pca", n_components=3).fit_transform(rows)
    _, _, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    expected = (rows - rows.mean(0)) @ directions[:3].T
    np.testing.assert_allclose(np.abs(z), np.abs(expected), atol=1e-9)


def test_shrunk_whitening_equals_whitening_by_scikit_learns_covariance(rows):
    method = make_method("shrunk-whitening").fit(rows[:60])
    shrunk = pytest.importorskip("sklearn.covariance").shrunk_covariance(covariance(rows[:60]), method.shrinkage_)
    assert 0 < method.shrinkage_ < 1
    z = method.transform(rows[:60])
    precision = np.linalg.inv(shrunk)
    centred = rows[:60] - rows[:60].mean(0)
    np.testing.assert_allclose(z @ z.T, centred @ precision @ centred.T, atol=1e-8)
