"""Levels of a scalar quantiser for N(0, 1), and the allocation of bits to the axes of a spectrum.

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

MOST_BITS = 8  # per axis: an axis fits into one byte
_NEWTON_STEPS = 50


class Levels(NamedTuple):
    """A scalar quantiser of least mean squared error."""

    values: Float64[np.ndarray, " levels"]  # ascending: the decoded value of each level
    thresholds: Float64[np.ndarray, " thresholds"]  # a number has level i if i thresholds lie below it
    distortion: float  # mean squared error


@functools.lru_cache(maxsize=MOST_BITS + 1)
def lloyd_max(bits: int) -> Levels:
    """The Lloyd-Max quantiser of N(0, 1) with 2^bits levels.

    Each level is the mean of its cell, and each threshold the middle of two levels. Newton's method solves this for the
    thresholds, starting from the companding quantiser.

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
        # Derivative of a cell's mean by its upper and by its lower end.
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
    """The density at the thresholds, and the probability and mean of every cell between them."""
    from scipy.special import ndtr

    density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
    mass = np.diff(ndtr(t), prepend=0.0, append=1.0)
    return density, mass, -np.diff(density, prepend=0.0, append=0.0) / mass


def distortions(most: int = MOST_BITS) -> Float64[np.ndarray, " bits"]:
    """Mean squared errors on N(0, 1) for 0 to `most` bits."""
    return np.array([lloyd_max(bits).distortion for bits in range(most + 1)])


def allocate(variances: Float64[np.ndarray, " k"], total: int, most: int = MOST_BITS) -> Int[np.ndarray, " k"]:
    """The number of bits of each axis, at most `most` and `total` in sum, that minimises the mean squared error.

    Reverse water-filling in whole bits: every bit goes to the axis whose error it lowers most. This is optimal because
    each further bit of an axis lowers its error by less.

    References:
      Cover, Thomas 2006, theorem 10.3.3.
    """
    gains = -np.diff(distortions(most))[:, None] * variances
    best = np.argsort(-gains, axis=None, kind="stable")[:total]
    return np.bincount(best % len(variances), minlength=len(variances))


class Packing(NamedTuple):
    """Where the bits of each axis lie in a code."""

    bits: Int[np.ndarray, " k"]  # how many
    group: Int[np.ndarray, " k"]  # 0 for axes without bits
    shift: Int[np.ndarray, " k"]  # the lowest bit of each axis in its group

    @property
    def places(self) -> Float32[np.ndarray, "k groups"]:
        """The weight of each axis's level in each group: a power of two in its own group, 0 elsewhere."""
        places = np.zeros((len(self.bits), int(self.group.max()) + 1), np.float32)
        places[np.arange(len(self.bits)), self.group] = np.where(self.bits > 0, 2.0**self.shift, 0.0)
        return places


def pack(variances: Float64[np.ndarray, " k"], groups: int, size: int = 8) -> Packing:
    """Allocates bits to axes in groups of exactly `size` bits, so that no axis is split between two groups.

    Axes are placed by falling number of optimal bits: into the fullest group with enough room, or else cut to fit the
    emptiest group. Then `allocate` distributes the bits of each group among its axes. There must be at least as many
    axes as groups.
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
