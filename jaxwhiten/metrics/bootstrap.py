"""Bootstrap confidence intervals for Spearman scores and for means, vectorised over resamples.

A resample of n pairs is a row of n multinomial counts. Values are sorted once; running sums of the counts then give the
average ranks of a resample, so a resample costs O(n) and no further sort. Every setting scored on the same pairs sees
the same resamples, so the difference of two rows is a paired bootstrap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Real

from jaxwhiten.errors import InputError

Array = np.ndarray | jax.Array

_LEVEL = 0.95  # of intervals
_BLOCK_ELEMENTS = 1 << 20  # counts held at once: resamples in a block × pairs


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class _Order(NamedTuple):
    """Values sorted within groups: the pair at each place, and the places low .. high − 1 of the ties of each pair."""

    order: Array
    low: Array
    high: Array


class _Grouping(NamedTuple):
    """The constants of all resamples, for one way of grouping the pairs (all together, or by subset).

    Pairs are numbered by subset. Each group is contiguous in every sorted order, and its resample has as many draws as
    the group has pairs, so the running sum at the start of a group equals its starting index.
    """

    centre: Array  # [n, 1] float32: the mean rank in the pair's group, counted from the start of all pairs
    member: Array  # [g, n] float32: 1 if the pair belongs to the group
    gold: _Order
    similarity: _Order  # one row per setting: each array is [m, n]


def _sorted_order(values: np.ndarray, group: np.ndarray) -> _Order:
    n = len(values)
    order = np.lexsort((values, group))
    new = np.ones(n, dtype=bool)
    new[1:] = (values[order][1:] != values[order][:-1]) | (group[order][1:] != group[order][:-1])
    starts = np.flatnonzero(new)
    run = np.cumsum(new) - 1
    low, high = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    low[order], high[order] = starts[run], np.append(starts[1:], n)[run]
    return _Order(order.astype(np.int32), low, high)


def _grouping(similarity: np.ndarray, gold: np.ndarray, group: np.ndarray) -> _Grouping:
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    orders = [_sorted_order(row, group) for row in similarity]
    return _Grouping(
        (starts + (sizes + 1) / 2)[group][:, None].astype(np.float32),
        (group == np.arange(len(sizes))[:, None]).astype(np.float32),
        _sorted_order(gold, group),
        _Order(*(np.stack(arrays) for arrays in zip(*orders, strict=True))),
    )


def _running_sum(x: jax.Array) -> jax.Array:
    """Cumulative sums along the first axis. On CPU a loop over rows is the fastest way, and quick to compile."""
    if jax.default_backend() != "cpu":
        return jnp.cumsum(x, axis=0)

    def add(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return total + row, total + row

    return jax.lax.scan(add, jnp.zeros_like(x[0]), x)[1]


def _centred_ranks(counts: jax.Array, place: _Order, centre: Array) -> jax.Array:
    """Average ranks [n, b] of every pair in each of b resamples, minus the mean rank of its group."""
    before = jnp.pad(_running_sum(counts[place.order]), ((1, 0), (0, 0)))
    # A run of ties holds draws before[low] + 1 .. before[high]; the average rank is their middle.
    return (before[place.low] + before[place.high] + 1) / 2 - centre


def _correlations(counts: jax.Array, grouping: _Grouping) -> jax.Array:
    """Spearman of every setting in every group of the resamples `counts` [n, b]: [m, g, b]."""

    def total(values: jax.Array) -> jax.Array:
        return jnp.matmul(grouping.member, values, precision=jax.lax.Precision.HIGHEST)

    gold = _centred_ranks(counts, grouping.gold, grouping.centre)
    weighted = counts * gold
    gold_scale = jnp.sqrt(total(weighted * gold))

    def one(place: _Order) -> jax.Array:
        ranks = _centred_ranks(counts, place, grouping.centre)
        scale = gold_scale * jnp.sqrt(total(counts * ranks * ranks))
        return jnp.where(scale > 0, total(weighted * ranks) / scale, jnp.nan)

    found: jax.Array = jax.lax.map(one, grouping.similarity)
    return found


@functools.partial(jax.jit, static_argnames="width")
def _resample_block(
    key: jax.Array, starts: jax.Array, sizes: jax.Array, groupings: tuple[_Grouping, ...], width: int
) -> list[jax.Array]:
    """Spearman of every setting and group in `width` resamples: one array [m, g, width] per grouping."""
    n = len(starts)
    # Stratified: each subset gets as many draws as it has pairs. 32 random bits modulo the size have bias n / 2^32.
    bits = jax.random.bits(key, (n, width), jnp.uint32)
    draws = (bits % sizes[:, None]).astype(jnp.int32) + starts[:, None]
    flat = draws * width + jnp.arange(width, dtype=jnp.int32)
    counts = jnp.zeros(n * width, jnp.float32).at[flat.ravel()].add(1).reshape(n, width)
    return [_correlations(counts, grouping) for grouping in groupings]


def spearman_resamples(
    similarity: Real[np.ndarray, "m n"],
    gold: Real[np.ndarray, " n"],
    subsets: Sequence[str],
    n_resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Float[np.ndarray, "m r"]]:
    """The three STS aggregates of every setting in each bootstrap resample of the pairs.

    Each subset is resampled with replacement on its own, because the subsets of a task are fixed and not a sample.
    Settings share the resamples: the difference of two rows is a paired bootstrap.

    Args:
      similarity: One row of similarities per setting, over the same pairs.
      gold: The human score of each pair.
      subsets: The subset of each pair.
      n_resamples: The number of resamples.
      seed: Seed of the draws.

    Returns:
      `all`, `mean` and `wmean`, each [m, n_resamples], × 100; NaN if a resample's correlation is undefined.

    References:
      Efron & Tibshirani 1993, chapters 6 and 13.
    """
    n = len(gold)
    if similarity.shape[1] != n or len(subsets) != n:
        raise InputError(f"{similarity.shape[1]} similarities, {n} gold scores, {len(subsets)} subset names.")
    if not n or not len(similarity) or n_resamples < 1:
        raise InputError(f"Nothing to resample: {len(similarity)} settings, {n} pairs, {n_resamples} resamples.")
    _, group, sizes = np.unique(np.asarray(subsets, dtype=str), return_inverse=True, return_counts=True)
    by_subset = np.argsort(group, kind="stable")
    group, gold, similarity = group[by_subset], gold[by_subset], similarity[:, by_subset]
    groupings = (_grouping(similarity, gold, np.zeros(n, dtype=np.int64)), _grouping(similarity, gold, group))
    starts = (np.cumsum(sizes) - sizes)[group].astype(np.int32)
    width = max(1, min(n_resamples, _BLOCK_ELEMENTS // n))
    key = jax.random.key(seed)
    blocks: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    arguments = jax.device_put((starts, sizes[group].astype(np.uint32), groupings))
    for block in range(math.ceil(n_resamples / width)):
        for kept, found in zip(blocks, _resample_block(jax.random.fold_in(key, block), *arguments, width), strict=True):
            kept.append(np.asarray(found, dtype=np.float64))
    pooled, by_group = (100 * np.concatenate(kept, axis=2)[:, :, :n_resamples] for kept in blocks)
    weights = sizes / sizes.sum()
    return {"all": pooled[:, 0], "mean": by_group.mean(axis=1), "wmean": np.einsum("g,mgr->mr", weights, by_group)}


def percentile_interval(samples: Real[np.ndarray, " r"]) -> Interval:
    """The percentile interval that contains 95% of the samples (Efron & Tibshirani 1993, chapter 13).

    NaN samples are ignored; if all are NaN, both ends are NaN.
    """
    defined = samples[~np.isnan(samples)]
    if not len(defined):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(defined, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(float(low), float(high))


def mean_resamples(
    values: Real[np.ndarray, "m n"], n_resamples: int = 10_000, seed: int = 0
) -> Float[np.ndarray, "m r"]:
    """The mean of every row in each bootstrap resample of the columns, such as the scores of n queries.

    Rows share the resamples: the difference of two rows is a paired bootstrap.
    """
    m, n = values.shape
    if not n:
        raise InputError("The bootstrap of a mean needs at least one value.")
    rng, width = np.random.default_rng(seed), max(1, _BLOCK_ELEMENTS // n)
    sizes = [min(width, n_resamples - done) for done in range(0, n_resamples, width)]
    parts = [rng.multinomial(n, np.full(n, 1 / n), size=size) @ values.T / n for size in sizes]
    return np.concatenate(parts).T if parts else np.zeros((m, 0))
