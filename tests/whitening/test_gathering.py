"""Moments of one process, and how those of several travel. `tests/programs/test_distributed.py` has real processes."""

import numpy as np

from jaxwhiten import Moments
from jaxwhiten.whitening import gathering, merge_moments


def test_merged_moments_are_a_copy():
    moments = Moments().update(np.random.default_rng(0).standard_normal((9, 3)))
    merged = merge_moments(moments)
    before = moments.M2.copy()
    merged.update(np.ones((4, 3)))
    assert (moments.n, merged.n) == (9, 13)
    np.testing.assert_array_equal(moments.M2, before)


def test_moments_travel_bit_for_bit():
    moments = Moments().update(np.random.default_rng(1).standard_normal((7, 4)) * 1e-9 + 1e3)
    words = gathering._pack(moments, 4).view(np.uint32).copy()
    found = gathering._unpack(words.view(np.float64), 4)
    assert (found.n, found.quartic, found.weights) == (moments.n, moments.quartic, ())
    for name in ("mean", "M2", "cubic"):
        assert getattr(found, name).tobytes() == getattr(moments, name).tobytes()
    assert gathering._unpack(gathering._pack(Moments(), 4), 4).n == 0
    weighted = Moments().update(np.eye(3), [1.0, 2.5, 1e-7])
    assert gathering._unpack(gathering._pack(weighted, 3), 3).weights == weighted.weights
