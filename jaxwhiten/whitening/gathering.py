"""Moments across the processes of one job."""

from __future__ import annotations

import jax
import numpy as np

from jaxwhiten.errors import MismatchError
from jaxwhiten.runtime import distributed
from jaxwhiten.whitening.moments import Moments


def merge_moments(moments: Moments) -> Moments:
    """The moments of all processes' rows, in every process: float64 throughout, merged in the order of the processes.

    Collective: every process has to call it. Memory is that of two summaries, however many processes there are.

    Args:
      moments: Of this process's rows; left as they are. Empty where it has none.

    Returns:
      New moments, bit-equal in all processes.

    Raises:
      MismatchError: The processes' rows have different numbers of columns.
    """
    if jax.process_count() == 1:
        return Moments().merge(moments)
    widths = distributed.gather(len(moments.mean))
    d = max(widths)
    if set(widths) - {0, d}:
        raise MismatchError(f"The processes have moments of different dimensions: {', '.join(map(str, widths))}.")
    total = Moments()
    for source in range(jax.process_count()):
        total.merge(_unpack(distributed.broadcast(_pack(moments, d), source), d))
    return total


def _pack(moments: Moments, d: int) -> np.ndarray:
    packed = np.zeros(4 + 2 * d + d * d)  # moments of no rows are zeros; n is exact up to 2^53
    if moments.n:
        scalars = np.array([moments.n, moments.quartic, *(moments.weights or (0.0, 0.0))])
        packed[:] = np.concatenate([scalars, moments.mean, moments.cubic, moments.M2.ravel()])
    return packed


def _unpack(packed: np.ndarray, d: int) -> Moments:
    (n, quartic, *weights), mean, cubic, M2 = np.split(packed, [4, 4 + d, 4 + 2 * d])
    sums = tuple(map(float, weights)) if any(weights) else ()
    return Moments(int(n), mean, M2.reshape(d, d), cubic, float(quartic), weights=sums)
