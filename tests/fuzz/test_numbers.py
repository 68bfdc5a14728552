"""Numbers nobody would choose: any rows at all. What holds for ordinary samples is tested in tests/whitening."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jaxwhiten import Moments, Whitening
from jaxwhiten.errors import InputError
from tests.fuzz.common import fuzz

pytestmark = pytest.mark.filterwarnings("ignore::jaxwhiten.whitening.whitening.WhiteningWarning")

# Equal rows, columns of zeros and values of every size, which generators of normal rows avoid; padded to a few sizes on
# the device, so few shapes are compiled.
SHAPES = st.tuples(st.integers(1, 24), st.sampled_from([1, 2, 5]))
VALUES = st.floats(-1e3, 1e3, allow_subnormal=False) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
ROWS = SHAPES.flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=VALUES))


@pytest.mark.slow
@fuzz()
@given(X=ROWS)
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
