"""All-but-the-top, ZCA and Cholesky whitening, PCA and shrunk whitening, against numpy and scipy."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten import Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.methods import AllButTheTop, CholeskyWhitening, ZCAWhitening, make_method, pair_similarity
from jaxwhiten.whitening.whitening import WhiteningWarning

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


def test_zca_is_the_inverse_root_of_the_covariance(rows):
    expected = (rows - rows.mean(0)) @ scipy.linalg.inv(scipy.linalg.sqrtm(covariance(rows)))
    np.testing.assert_allclose(ZCAWhitening().fit_transform(rows), expected, atol=1e-8)


def test_cholesky_is_the_factor_of_the_precision(rows):
    factor = np.linalg.cholesky(np.linalg.inv(covariance(rows)))
    z = CholeskyWhitening().fit_transform(rows)
    np.testing.assert_allclose(z, (rows - rows.mean(0)) @ factor, atol=1e-8)
    np.testing.assert_allclose(covariance(z), np.eye(D), atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**31), st.booleans())
def test_the_three_whitenings_have_the_same_cosines(d, seed, deficient):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((90, d)) @ rng.standard_normal((d, d))
    if deficient and d > 1:
        x[:, -1] = x[:, 0]
    found = [pair_similarity(m.fit(x), x[:40], x[40:80]) for m in (Whitening(), ZCAWhitening(), CholeskyWhitening())]
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)


def test_few_rows_are_warned_of_and_null_directions_stay_small(rows):
    for method in (ZCAWhitening(), CholeskyWhitening()):
        with pytest.warns(WhiteningWarning, match="8 columns was fitted on 5 rows"):
            method.fit(rows[:5])
        z = method.transform(rows[:5])
        assert np.isfinite(z).all()
        assert np.linalg.matrix_rank(z, tol=1e-3) == 4


def test_parameters_act_at_once(rows):
    method = ZCAWhitening().fit(rows)
    method.transform(rows)
    method.set_params(eigenvalue_floor=1.0)
    values = np.linalg.eigvalsh(covariance(rows))
    expected = (rows - rows.mean(0)) / np.sqrt(values[-1])
    np.testing.assert_allclose(method.transform(rows), expected, atol=1e-10)
    method.set_params(eigenvalue_floor=-1)
    with pytest.raises(InputError, match="eigenvalue_floor"):
        method.transform(rows)


def test_pca_keeps_the_directions_of_largest_variance(rows):
    z = make_method("pca", n_components=3).fit_transform(rows)
    _, _, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    expected = (rows - rows.mean(0)) @ directions[:3].T
    np.testing.assert_allclose(np.abs(z), np.abs(expected), atol=1e-9)


def test_shrunk_whitening_equals_whitening_by_scikit_learns_covariance(rows):
    shrunk = pytest.importorskip("sklearn.covariance").ledoit_wolf(rows[:60])[0]
    with pytest.warns(WhiteningWarning):
        method = make_method("shrunk-whitening").fit(rows[:60])
    z = method.transform(rows[:60])
    precision = np.linalg.inv(shrunk)
    centred = rows[:60] - rows[:60].mean(0)
    np.testing.assert_allclose(z @ z.T, centred @ precision @ centred.T, atol=1e-8)
