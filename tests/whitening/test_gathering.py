"""Moments of one process, and how those of several travel. `tests/programs/test_distributed.py` has real processes."""

import numpy as np

from jaxwhiten import Moments
from jaxwhiten.runtime import distributed
from jaxwhiten.whitening import merge_moments


def test_merged_moments_are_a_copy():
    moments = Moments().update(np.random.default_rng(0).standard_normal((9, 3)))
    merged = merge_moments(moments)
    before = moments.M2.copy()
    merged.update(np.ones((4, 3)))
    assert (moments.n, merged.n) == (9, 13)
    np.testing.assert_array_equal(moments.M2, before)


def test_moments_travel_bit_for_bit(monkeypatch):
    """Of two processes, the other of which has no rows."""
    moments = Moments().update(np.random.default_rng(1).standard_normal((7, 4)) * 1e-9 + 1e3)
    sent = []

    def broadcast(packed, source):
        sent.append(packed.view(np.uint32).copy().view(np.float64))
        return sent[-1] if source == 0 else np.zeros_like(packed)

    monkeypatch.setattr(distributed, "broadcast", broadcast)
    monkeypatch.setattr(distributed, "gather", lambda d: [4, 0])
    found = merge_moments(moments)
    assert found.n == moments.n
    for name in ("mean", "M2"):
        assert getattr(found, name).tobytes() == getattr(moments, name).tobytes()
    assert merge_moments(Moments()).n == 0
    assert not sent[-1].any()
