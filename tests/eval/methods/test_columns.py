"""Centring, z-score and nothing, against numpy and scikit-learn."""

import numpy as np
import pytest

from eval.methods import Centring, Identity, ZScore
from jaxwhiten.errors import InputError


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    return rng.standard_normal((500, 6)) * [1, 2, 0.1, 30, 4, 0.5] + [0, 5, -3, 100, 1, 1]


def test_against_numpy(rows):
    np.testing.assert_array_equal(Identity().fit_transform(rows), rows)
    np.testing.assert_allclose(Centring().fit_transform(rows), rows - rows.mean(0), atol=1e-12)
    np.testing.assert_allclose(ZScore().fit_transform(rows), (rows - rows.mean(0)) / rows.std(0), atol=1e-12)


def test_a_column_without_variance_is_not_blown_up(rows):
    rows[:, 2] = 7 + 1e-9 * rows[:, 2]
    method = ZScore().fit(rows)
    z = method.transform(rows + np.eye(6)[2] * 1e-6)
    assert np.abs(z[:, 2]).max() < 1e-4
    np.testing.assert_allclose(z[:, 0].std(), 1)
    with pytest.raises(InputError, match="variance_floor"):
        ZScore(variance_floor=2.0).fit(rows)
