"""Bootstrap confidence intervals for Spearman scores and for means, vectorised over resamples.

A resample of n pairs is a column of n counts. Values are sorted once; running sums of the counts then give the average
ranks of a resample, so a resample costs O(n) and no further sort. Every setting scored on the same pairs sees the same
resamples, so the difference of two rows is a paired bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.shapes import Float, Float32, Real, Shaped

_LEVEL = 0.95  # of intervals
_BLOCK_ELEMENTS = 1 << 18  # counts held at once, so that they stay in a cache

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
    n, rng = len(groups), np.random.default_rng(seed)
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


def _ranks(values: Real[np.ndarray, " n"]) -> Callable[[Counts], Counts]:
    """A function from counts to every item's average rank in each resample, minus the mean rank."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)  # of the runs of ties
    ends, run = np.append(starts[1:], len(values)), np.empty(len(values), np.int64)
    run[order] = np.repeat(np.arange(len(starts)), ends - starts)

    def ranks(counts: Counts) -> Counts:
        before = np.zeros((len(counts) + 1, counts.shape[1]), np.float32)
        np.cumsum(counts[order], axis=0, out=before[1:])
        # A run of ties holds draws before[start] + 1 .. before[end]; the average rank is their middle.
        return ((before[starts] + before[ends] - len(counts)) / 2)[run]

    return ranks


def correlations(
    similarity: Real[np.ndarray, "m n"], gold: Real[np.ndarray, " n"]
) -> Callable[[Counts], Float[np.ndarray, "m b"]]:
    """A function from counts of n draws each to the Spearman × 100 of every row with `gold`; NaN if it is undefined.

    >>> correlations(np.array([[1.0, 2.0, 3.0]]), np.array([1.0, 3.0, 2.0]))(np.ones((3, 1), np.float32))
    array([[50.]])
    """
    of_gold, of_rows = _ranks(gold), [_ranks(row) for row in similarity]

    def correlate(counts: Counts) -> Float[np.ndarray, "m b"]:
        ranks = of_gold(counts)
        weighted = counts * ranks
        products, squares = np.empty((2, len(of_rows), counts.shape[1]))
        for row, of_row in enumerate(of_rows):
            own = of_row(counts)
            products[row], squares[row] = (np.einsum("nb,nb->b", x, own) for x in (weighted, counts * own))
        with np.errstate(invalid="ignore"):
            return 100 * products / np.sqrt(squares * np.einsum("nb,nb->b", weighted, ranks, dtype=np.float64))

    return correlate


def spearman_resamples(
    similarity: Real[np.ndarray, "m n"], gold: Real[np.ndarray, " n"], n_resamples: int = 10_000, seed: int = 0
) -> Float[np.ndarray, "m r"]:
    """Spearman × 100 of every row of similarities with the gold scores of the same pairs, in each bootstrap resample.

    Rows share the resamples: the difference of two rows is a paired bootstrap. NaN if a correlation is undefined.

    >>> spearman_resamples(np.array([[1.0, 2.0, 3.0]]), np.arange(3.0), n_resamples=10).shape
    (1, 10)
    """
    correlate = correlations(similarity, gold)
    return np.concatenate([correlate(counts) for counts in draws(np.zeros(len(gold)), n_resamples, seed)], axis=1)


def mean_resamples(
    values: Real[np.ndarray, "m n"], n_resamples: int = 10_000, seed: int = 0
) -> Float[np.ndarray, "m r"]:
    """As `spearman_resamples`, of the mean of every row, such as the scores of n queries.

    >>> mean_resamples(np.array([[1.0, 2.0, 3.0]]), n_resamples=10).shape
    (1, 10)
    """
    n = values.shape[1]
    return np.concatenate([values @ counts / n for counts in draws(np.zeros(n), n_resamples, seed)], axis=1)


def percentile_interval(samples: Real[np.ndarray, " r"]) -> Interval:
    """The percentile interval that contains 95% of the samples (Efron & Tibshirani 1993, chapter 13).

    NaN samples are ignored; if all are NaN, both ends are NaN.

    >>> percentile_interval(np.arange(201.0)).high
    195.0
    """
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(defined, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(low), float(high))
