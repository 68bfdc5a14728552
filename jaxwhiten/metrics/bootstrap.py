"""Bootstrap confidence intervals for Spearman scores and for means, vectorised over resamples.

A resample of n pairs is a column of n counts. Values are sorted once; running sums of the counts then give the average
ranks of a resample, so a resample costs O(n) and no further sort. Every setting scored on the same pairs sees the same
resamples, so the difference of two rows is a paired bootstrap. Pairs that depend on each other, such as those that
share a sentence, are drawn together, as one unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.types import Float, Float32, Int, Real, Shaped

_LEVEL = 0.95  # of intervals
_NORMAL = 1.959964  # the normal distribution's quantile at this level
_EXACT = 12  # parts of which all signs are tried; of more, as many random ones
_FLIPPED = 512  # parts whose signs are held at once
_BLOCK_ELEMENTS = 1 << 18  # counts held at once, so that they stay in a cache
LEAST = 6  # units that an interval needs: of fewer, all change in one direction by chance in more than 2.5% of cases

Counts = Float32[np.ndarray, "n b"]


class Interval(NamedTuple):
    """A confidence interval.

    >>> Interval(0.1, 0.4).low
    0.1
    """

    low: float
    high: float


def draws(groups: Shaped[np.ndarray, " n"], n_resamples: int, seed: int) -> Iterator[Counts]:
    """Blocks of resamples: how often each of n items is drawn. Every group is drawn from on its own, with replacement.

    >>> [counts.sum(axis=0).tolist() for counts in draws(np.zeros(5), 3, seed=0)]
    [[5.0, 5.0, 5.0]]

    References:
      Efron & Tibshirani 1993, chapters 6 and 13.
    """
    n = len(groups)
    rng = np.random.default_rng(seed)
    if not n or n_resamples < 1:
        raise InputError(f"Nothing to resample: {n} items, {n_resamples} resamples.")
    parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    most = max(1, _BLOCK_ELEMENTS // n)
    for width in (min(most, n_resamples - done) for done in range(0, n_resamples, most)):
        counts = np.empty((n, width), np.float32)
        for part in parts:
            places = rng.integers(len(part), size=(len(part), width)) * width + np.arange(width)
            counts[part] = np.bincount(places.ravel(), minlength=places.size).reshape(-1, width)
        yield counts


def resamples(
    statistic: Callable[[Counts], Real[np.ndarray, "*m b"]],
    units: Int[np.ndarray, " n"],
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Real[np.ndarray, "*m r"]:
    """A statistic in each bootstrap resample; those of one seed are shared, so that differences are paired.

    >>> resamples(means(np.array([[1.0, 2.0, 3.0]])), np.arange(3), 10).shape
    (1, 10)

    Args:
      statistic: Maps blocks of counts to values of each resample, such as `means` or `correlations`.
      units: The unit of each item, 0 to u - 1; items of a unit are drawn together.

    References:
      Field & Welsh 2007, "Bootstrapping clustered data".
    """
    alone = np.zeros(int(units.max(initial=-1)) + 1)
    return np.concatenate([statistic(counts[units]) for counts in draws(alone, n_resamples, seed)], axis=-1)


def means(values: Real[np.ndarray, "*m n"]) -> Callable[[Counts], Float[np.ndarray, "*m b"]]:
    """A function from counts to the mean of every row, such as the scores of n queries.

    >>> means(np.array([[1.0, 2.0]]))(np.array([[2.0], [0.0]], np.float32))
    array([[1.]])
    """
    return lambda counts: values @ counts / counts.sum(axis=0)


def _ranks(values: Real[np.ndarray, " n"]) -> Callable[[Counts], Counts]:
    """A function from counts to every item's average rank in each resample, minus the mean rank."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)  # of the runs of ties
    ends = np.append(starts[1:], len(values))
    run = np.empty(len(values), np.int64)
    run[order] = np.repeat(np.arange(len(starts)), ends - starts)

    def ranks(counts: Counts) -> Counts:
        before = np.zeros((len(counts) + 1, counts.shape[1]), np.float32)
        np.cumsum(counts[order], axis=0, out=before[1:])
        # A run of ties holds draws before[start] + 1 .. before[end]; the average rank is their middle.
        return ((before[starts] + before[ends] - before[-1]) / 2)[run]

    return ranks


def correlations(
    similarity: Real[np.ndarray, "m n"], gold: Real[np.ndarray, " n"]
) -> Callable[[Counts], Float[np.ndarray, "m b"]]:
    """A function from counts of n draws each to the Spearman × 100 of every row with `gold`; NaN if it is undefined.

    >>> correlations(np.array([[1.0, 2.0, 3.0]]), np.array([1.0, 3.0, 2.0]))(np.ones((3, 1), np.float32))
    array([[50.]])
    """
    of_gold = _ranks(gold)
    of_rows = [_ranks(row) for row in similarity]

    def correlate(counts: Counts) -> Float[np.ndarray, "m b"]:
        ranks = of_gold(counts)
        weighted = counts * ranks
        products, squares = np.empty((2, len(of_rows), counts.shape[1]))
        for row, of_row in enumerate(of_rows):
            weights = of_row(counts)
            products[row], squares[row] = (np.einsum("nb,nb->b", x, weights) for x in (weighted, counts * weights))
        with np.errstate(invalid="ignore"):
            return 100 * products / np.sqrt(squares * np.einsum("nb,nb->b", weighted, ranks, dtype=np.float64))

    return correlate


def percentile_interval(samples: Real[np.ndarray, " r"], units: int | None = None) -> Interval:
    """The percentile interval that contains 95% of the samples (Efron & Tibshirani 1993, chapter 13).

    NaN samples are ignored; if all are NaN, both ends are NaN. Given the number of units that were resampled, the
    interval is widened as `chosen_intervals` describes.

    >>> percentile_interval(np.arange(201.0)).high
    195.0
    """
    return chosen_intervals(samples[None], units)[0]


def by_unit(values: Real[np.ndarray, "m n"], units: Int[np.ndarray, " n"]) -> Float[np.ndarray, "m u"]:
    """The sum of the values of each unit, 0 to u - 1.

    >>> by_unit(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 0]))
    array([[5., 2.]])
    """
    return np.stack([np.bincount(units, row) for row in values])


def score_interval(samples: Real[np.ndarray, " r"], units: int) -> Interval:
    """As `percentile_interval`, of a score up to 100: of equal samples it is Wilson's, since other units may differ.

    >>> [round(end, 1) for end in score_interval(np.full(1000, 100.0), 10)]  # ten right of ten
    [72.2, 100.0]

    References:
      Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    [found] = chosen_intervals(samples[None], units)
    low, high = found
    if not math.isclose(low, high, abs_tol=1e-4):
        return found
    share = _NORMAL**2 / (units + _NORMAL**2)
    room = [share * abs(low), share * (100 - abs(low))]
    down, up = room if low >= 0 else room[::-1]
    return Interval(low - down, high + up)


def chosen_intervals(
    samples: Real[np.ndarray, "m r"], units: int | None = None, parts: Real[np.ndarray, "m u"] | None = None
) -> list[Interval]:
    """Intervals for m quantities that all hold at once in 95% of cases, so also for one that is chosen by its value.

    Each is the percentile interval whose level is raised until, in 95% of the resamples, no quantity is outside its
    interval: 2.5% leave one below, 2.5% one above. The more the quantities vary together, the less this costs; of one
    quantity it is the interval of `percentile_interval`.

    Percentile intervals are too narrow for few units: the levels are those of Student's t in place of the normal
    distribution (Hesterberg 2015), of a third as many units, since most differences of reciprocal ranks are 0. With
    fewer than `LEAST` units, all ends are NaN.

    Resamples of paired differences, of which few are not 0, may all have one sign by chance. Given the `parts` of
    each unit, whose sums are proportional to the quantities, an interval is extended to 0 unless a sign-flip test at
    its level finds a difference: two systems that are equally good would exchange their scores of any unit.

    >>> round(chosen_intervals(np.stack([np.arange(201.0), np.arange(201.0)[::-1]]))[0].high, 1)  # of one alone, 195
    197.5

    References:
      Beran 1988, "Balanced simultaneous confidence sets"; Mandel & Betensky 2008, "Simultaneous confidence intervals
      based on the percentile bootstrap approach".
      Hesterberg 2015, "What teachers should know about the bootstrap".
    """
    valid = ~np.isnan(samples).all(axis=1)
    defined = samples[valid][:, ~np.isnan(samples[valid]).any(axis=0)]
    intervals = [Interval(math.nan, math.nan)] * len(samples)
    if not defined.size or (units is not None and units < LEAST):
        return intervals
    low = (1 - _LEVEL) / 2
    high = (1 + _LEVEL) / 2
    if len(defined) > 1:
        places = np.stack([_places(row) for row in defined])
        low = np.quantile(places.min(axis=0), low)
        high = np.quantile(places.max(axis=0), high)
    if units is not None:
        low = _widened(low, units)
        high = 1 - _widened(1 - high, units)
    chance = low + 1 - high
    for row, ends in zip(np.flatnonzero(valid), np.quantile(defined, [low, high], axis=1).T, strict=True):
        interval = Interval(*ends.tolist())
        if parts is not None and (interval.low > 0 or interval.high < 0) and flips(parts[row]) > chance:
            interval = Interval(min(interval.low, 0.0), max(interval.high, 0.0))
        intervals[row] = interval
    return intervals


def flips(parts: Real[np.ndarray, " u"]) -> float:
    """The p-value of a sum: the share of random signs of its parts that bring it as far from 0.

    >>> flips(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    0.0625

    References:
      Phipson & Smyth 2010, "Permutation p-values should never be zero".
    """
    parts = parts[parts != 0]
    n = len(parts)
    if n <= _EXACT:
        negative = np.arange(1 << n)[:, None] >> np.arange(n) & 1
        turned = negative @ parts
    else:
        turned = np.zeros(1 << _EXACT)
        rng = np.random.default_rng(0)
        for first in range(0, n, _FLIPPED):
            some = parts[first : first + _FLIPPED]
            bits = rng.integers(256, size=(len(turned), (len(some) + 7) // 8), dtype=np.uint8)
            turned += np.unpackbits(bits, axis=1, count=len(some)).astype(some.dtype) @ some
        turned[0] = 0  # the parts as they are
    total = parts.sum()
    return float(np.mean(np.abs(total - 2 * turned) >= abs(total) * (1 - 1e-9)))


def _places(samples: Real[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
    """The share of the samples below each one; of equal ones, half are below."""
    order = np.sort(samples)
    below = np.searchsorted(order, samples) + np.searchsorted(order, samples, side="right")
    return below / (2 * len(samples))


def _widened(level: float, units: int) -> float:
    """The level of the normal distribution at the quantile that Student's t has at this one."""
    from scipy.special import ndtr, stdtrit

    third = units / 3
    return float(ndtr(stdtrit(third - 1, level) * math.sqrt(third / (third - 1))))
