"""Levels of a scalar quantiser for N(0, 1), and how many bits each axis of a spectrum gets.

References:
  Max 1960, "Quantizing for minimum distortion", table I (levels and distortions); Lloyd 1982, "Least squares
  quantization in PCM".
  Cover, Thomas 2006, "Elements of Information Theory", section 10.3.3 (reverse water-filling).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int

MOST_BITS = 8  # of an axis: codes are made of bytes
_NEWTON_STEPS = 50


class Levels(NamedTuple):
    """A scalar quantiser of least mean squared error."""

    values: Float64[np.ndarray, " levels"]  # ascending: what a level decodes to
    thresholds: Float64[np.ndarray, " thresholds"]  # a number lies on level i where i thresholds lie below it
    distortion: float  # mean squared error


@functools.lru_cache(maxsize=MOST_BITS + 1)
def lloyd_max(bits: int) -> Levels:
    """The Lloyd-Max quantiser of N(0, 1) with 2^bits levels.

    Each level is the mean of its cell and each threshold the middle of its levels; Newton's method solves that for the
    thresholds from those of the companding quantiser.

    References:
      Max 1960, equations 6 and 7. Panter, Dite 1951, for the start.
    """
    from scipy.linalg import solve_banded
    from scipy.special import ndtri

    t = np.sqrt(3.0) * ndtri(np.arange(1, 2**bits) / 2**bits)
    for _ in range(_NEWTON_STEPS):
        if not len(t):
            break
        density, mass, means = _cells(t)
        # d mean / d end of a cell, for its upper and its lower end.
        upper = density * (t - means[:-1]) / mass[:-1]
        lower = density * (means[1:] - t) / mass[1:]
        banded = np.zeros((3, len(t)))
        banded[0, 1:], banded[1], banded[2, :-1] = -upper[1:] / 2, 1 - (upper + lower) / 2, -lower[:-1] / 2
        step = solve_banded((1, 1), banded, t - (means[:-1] + means[1:]) / 2)
        t = t - step
        if np.abs(step).max() < 1e-14:
            break
    t = (t - t[::-1]) / 2
    _, mass, means = _cells(t)
    return Levels(means, t, float(1 - mass @ means**2))


def _cells(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The density at the thresholds, and probability and mean of every cell between them."""
    from scipy.special import ndtr

    density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
    mass = np.diff(ndtr(t), prepend=0.0, append=1.0)
    return density, mass, -np.diff(density, prepend=0.0, append=0.0) / mass


def distortions(most: int = MOST_BITS) -> Float64[np.ndarray, " bits"]:
    """Mean squared errors of 0 to `most` bits on N(0, 1)."""
    return np.array([lloyd_max(bits).distortion for bits in range(most + 1)])


def allocate(variances: Float64[np.ndarray, " k"], total: int, most: int = MOST_BITS) -> Int[np.ndarray, " k"]:
    """Of `total` bits those of each axis, at most `most`, so that the sum of mean squared errors is least.

    Reverse water-filling in whole bits: every bit goes to the axis whose error it lowers most. Since each further bit
    of an axis lowers its error by less, that is the optimum.

    References:
      Cover, Thomas 2006, theorem 10.3.3.
    """
    gains = -np.diff(distortions(most))[:, None] * variances
    best = np.argsort(-gains, axis=None, kind="stable")[:total]
    return np.bincount(best % len(variances), minlength=len(variances))


class Packing(NamedTuple):
    """Where the bits of each axis lie in a code."""

    bits: Int[np.ndarray, " k"]  # how many
    group: Int[np.ndarray, " k"]  # 0 for axes of no bits
    shift: Int[np.ndarray, " k"]  # the lowest bit of each axis in its group

    @property
    def places(self) -> Float32[np.ndarray, "k groups"]:
        """What a level of each axis counts for in each group: a power of two in its own."""
        places = np.zeros((len(self.bits), int(self.group.max()) + 1), np.float32)
        places[np.arange(len(self.bits)), self.group] = np.where(self.bits > 0, 2.0**self.shift, 0.0)
        return places


def pack(variances: Float64[np.ndarray, " k"], groups: int, size: int = 8) -> Packing:
    """Bits of each axis, in groups of exactly `size` bits, so that no axis is split between two groups.

    The axes of the optimum, largest first, go to the fullest group that has room for them, those that find none to the
    emptiest one. Each group then gives its bits to its axes by `allocate`. There are at least as many axes as groups.
    """
    bits = allocate(variances, groups * size, size)
    free, group, shift = np.full(groups, size), np.zeros(len(bits), np.int64), np.zeros(len(bits), np.int64)
    for axis in np.argsort(-bits, kind="stable"):
        bits[axis] = min(bits[axis], free.max())
        if bits[axis]:
            group[axis] = np.argmin(np.where(free >= bits[axis], free, size + 1))
            free[group[axis]] -= bits[axis]
    used = bits > 0
    for number in range(groups):
        inside = np.flatnonzero(used & (group == number))
        bits[inside] = allocate(variances[inside], size, size)
        shift[inside] = np.cumsum(bits[inside]) - bits[inside]
    return Packing(bits, group, shift)
