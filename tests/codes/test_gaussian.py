"""Rates against the theorem, groups of equal rates, and codebooks against those that are known to be best."""

import numpy as np
import pytest

from jaxwhiten.codes.gaussian import bound, deal, design, rates

FALLING = np.arange(1, 65) ** -1.0


@pytest.mark.parametrize("bits", [4, 64, 300])
def test_rates_are_those_of_reverse_water_filling(bits):
    found = rates(FALLING, bits)
    assert found.sum() == pytest.approx(bits)
    left = FALLING * 4.0**-found
    level = left[found > 0]
    np.testing.assert_allclose(level, level[0])
    assert (FALLING[found == 0] <= level[0] * (1 + 1e-9)).all()
    assert bound(FALLING, bits) == pytest.approx(left.sum() / FALLING.sum())
    capped = rates(FALLING, min(bits, 200), most=4)
    assert capped.sum() == pytest.approx(min(bits, 200))
    assert capped.max() <= 4 + 1e-9


@pytest.mark.parametrize("groups", [4, 16, 64])
def test_groups_carry_about_the_same_rate(groups):
    group = deal(FALLING, groups, 8)
    assert set(group) == set(range(groups))
    if groups < 64:
        loads = np.bincount(group, rates(FALLING, 8 * groups, most=8)[: len(group)])
        assert np.ptp(loads) < 0.2 * loads.mean()


def test_one_dominant_axis_does_not_leave_a_byte_empty():
    group = deal(np.r_[1.0, np.full(7, 1e-9)], 6, 8)
    assert set(group) == set(range(6))


def test_one_axis_gets_the_levels_of_max():
    """Max 1960, table I: 2 and 4 bits lose 0.1175 and 0.009497."""
    for bits, lost in ((2, 0.1175), (4, 0.009497)):
        assert design(np.ones(1), 1, bits).lost == pytest.approx(lost, rel=0.05)


def test_more_axes_in_a_byte_come_closer_to_the_bound():
    above = [design(np.ones(w), 1, 2 * w).lost / bound(np.ones(w), 2 * w) for w in (1, 2, 4)]
    assert above[0] > above[1] > above[2] > 1
    assert above[2] < 1.6  # of 1.88 for levels of each axis


def test_it_is_deterministic_and_seeds_differ_little():
    one, same, other = (design(FALLING, 4, 8, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.centroids, same.centroids)
    assert one.lost == same.lost != other.lost
    assert other.lost == pytest.approx(one.lost, rel=0.02)
    np.testing.assert_array_equal(one.centroids[:, 128:], -one.centroids[:, :128])
