"""Numbers nobody would choose: any rows at all, sizes at both ends, merges in any tree.

What holds for ordinary samples is tested in tests/test_moments.py and tests/test_whitening.py.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jaxwhiten import Moments, Whitening
from jaxwhiten.errors import InputError
from tests.fuzz.common import fuzz

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")

# Rows are padded to a few sizes on the device, so few shapes are compiled.
SHAPES = st.tuples(st.integers(1, 24), st.sampled_from([1, 2, 5]))


def rows(dtype, low=-1e3, high=1e3):
    """Any rows: equal ones, columns of zeros, values of every size, all of which generators of normal rows avoid."""
    width = 8 * np.dtype(dtype).itemsize
    elements = st.floats(low, high, width=width, allow_subnormal=False) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
    return SHAPES.flatmap(lambda shape: arrays.arrays(dtype, shape, elements=elements))


@pytest.mark.slow
@fuzz()
@given(X=rows(np.float64))
def test_any_rows_have_finite_answers_and_as_many_white_directions_as_their_rank(X):
    if 0 < np.abs(Moments().update(X).mean).max() < 1.49e-154:
        with pytest.raises(InputError, match="squares underflow float64"):
            Whitening().fit(X)
        return
    fitted = Whitening().fit(X)
    Z = fitted.transform(X)
    assert np.isfinite(Z).all()
    rank = fitted.rank_
    assert 0 <= rank <= min(len(X) - 1, X.shape[1])
    values = fitted.eigenvalues_[:rank]
    # What rounding leaves of the smallest direction, relative to its size.
    digits = 1e-14 * (np.abs(X).max() + 1) ** 2 / values[-1] if rank else 0.0
    assume(digits < 1e-4)
    covariance = np.atleast_2d(np.cov(Z[:, :rank], rowvar=False, ddof=0)) if rank else np.zeros((0, 0))
    assert np.allclose(covariance, np.eye(rank), atol=1e-6 + 100 * digits)


@pytest.mark.slow
@fuzz(0.5)
@given(X=rows(np.float32), power=st.integers(-40, 40))
def test_the_unit_of_the_rows_does_not_matter(X, power):
    """Multiplying by a power of two is exact, so the whitened rows may differ by rounding only."""
    scaled = np.ldexp(X, power)
    assume(np.isfinite(scaled).all() and (np.ldexp(scaled, -power) == X).all())
    one, other = Whitening().fit(X), Whitening().fit(scaled)
    assume(one.rank_ and one.eigenvalues_[one.rank_ - 1] > 1e-4 * one.eigenvalues_[0])
    assert other.rank_ == one.rank_
    k = one.rank_
    a = np.abs(one.transform(X)[:, :k])
    values = one.eigenvalues_[:k]
    apart = k == 1 or (values[:-1] / values[1:]).min() > 1.01  # equal eigenvalues leave their vectors free
    if apart:
        assert np.allclose(a, np.abs(other.transform(scaled)[:, :k]), atol=2e-2 * (1 + a.max()))
