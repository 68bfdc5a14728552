"""Measures of several systems on the same items, × 100: scores, intervals and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxwhiten.metrics import (
    binary_scores,
    discounted_gains,
    precision_parts,
    recalls,
    reciprocal_ranks,
    spearman,
    spearman_parts,
)
from jaxwhiten.metrics.bootstrap import (
    Counts,
    Interval,
    by_unit,
    chosen_intervals,
    correlations,
    means,
    resamples,
    score_interval,
)
from jaxwhiten.metrics.scores import GoldLike
from jaxwhiten.types import Float, Int, Real


class Change(NamedTuple):
    """A paired difference with its confidence interval, whose ends are NaN if too few items were scored."""

    value: float
    interval: Interval

    def __str__(self) -> str:
        if math.isnan(self.interval.low):
            return "" if math.isnan(self.value) else f"{self.value:+.2f}"
        return f"{self.value:+.2f} ({self.interval.low:+.2f} to {self.interval.high:+.2f})"


NO_CHANGE = Change(math.nan, Interval(math.nan, math.nan))  # of a system itself, or undefined


class Measured(NamedTuple):
    """Scores × 100 of several systems, which share their resamples; differences are of the first measure.

    >>> measured = of_queries({"mrr_at_10": np.array([[1.0, 0.0], [1.0, 1.0]])}, 100)
    >>> measured.scores["mrr_at_10"].tolist(), measured.changes(0, [[1]])[1].value
    ([50.0, 100.0], 50.0)
    """

    scores: Mapping[str, Float[np.ndarray, " m"]]  # by measure
    drawn: Mapping[str, Float[np.ndarray, "m r"]]  # in every resample, of the measures that have intervals
    units: int  # that were resampled
    parts: Float[np.ndarray, "m u"]  # what each unit adds to the first measure, up to a factor

    def intervals(self, system: int) -> dict[str, Interval]:
        """The 95% intervals of a system's measures."""
        return {name: score_interval(drawn[system], self.units) for name, drawn in self.drawn.items()}

    def changes(self, base: int, families: Iterable[Sequence[int]]) -> list[Change]:
        """The difference of each system to another one; in a family, the intervals of all differences hold at once."""
        scores, drawn = (next(iter(values.values())) for values in (self.scores, self.drawn))
        found = [NO_CHANGE] * len(scores)
        for family in families:
            if others := [system for system in family if system != base]:
                parts = self.parts[others] - self.parts[base]
                intervals = chosen_intervals(drawn[others] - drawn[base], self.units, parts)
                for system, interval in zip(others, intervals, strict=True):
                    found[system] = Change(float(scores[system] - scores[base]), interval)
        return found


def of_ranks(
    ids: Int[np.ndarray, "q k"], gold: GoldLike, depths: Sequence[int] = (1, 10, 100)
) -> dict[str, np.ndarray]:
    """Of each query with gold: nDCG and the reciprocal rank among the first ten results, and recalls at some depths.

    >>> {name: found.round(2).tolist() for name, found in of_ranks(np.array([[7, 3]]), [[3]], (1,)).items()}
    {'ndcg_at_10': [0.63], 'mrr_at_10': [0.5], 'recall_at_1': [0.0]}
    """
    found = {"ndcg_at_10": discounted_gains(ids, gold), "mrr_at_10": reciprocal_ranks(ids, gold)}
    return found | {f"recall_at_{k}": recalls(ids, gold, k) for k in depths}


def of_queries(
    values: Mapping[str, Real[np.ndarray, "m q"]],
    n_resamples: int,
    seed: int = 0,
    units: Int[np.ndarray, " q"] | None = None,
) -> Measured:
    """Means over queries; those of a unit, by default each alone, are resampled together."""
    if units is None:
        units = np.arange(next(iter(values.values())).shape[1])
    table = 100 * np.stack([*values.values()])
    parts = by_unit(table[0], units)
    of_measures = table.mean(axis=2), resamples(means(table), units, n_resamples, seed)
    scores, drawn = (dict(zip(values, rows, strict=True)) for rows in of_measures)
    return Measured(scores, drawn, parts.shape[1], parts)


def of_pairs(
    similarities: Real[np.ndarray, "m n"],
    gold: Float[np.ndarray, " n"],
    units: Int[np.ndarray, " n"],
    n_resamples: int,
    seed: int = 0,
) -> Measured:
    """Correlations of the similarities of pairs with their scores; pairs of a unit are resampled together."""
    drawn = resamples(correlations(similarities, gold), units, n_resamples, seed)
    parts = by_unit(np.stack([spearman_parts(row, gold) for row in similarities]), units)
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = {
            "spearman": np.array([100 * spearman(row, gold) for row in similarities]),
            "pearson": np.array([100 * np.corrcoef(row, gold, dtype=np.float64)[0, 1] for row in similarities]),
        }
    return Measured(scores, {"spearman": drawn}, parts.shape[1], parts)


def of_labels(
    similarities: Real[np.ndarray, "m n"],
    labels: Float[np.ndarray, " n"],
    units: Int[np.ndarray, " n"],
    n_resamples: int,
    seed: int = 0,
) -> Measured:
    """How well similarities separate two labels; NaN in a resample without one of them.

    Labels are drawn with their pairs, and at most twice the units of the rarer label count: with as many pairs of each
    label in every resample, or counting all pairs, intervals of the average precision are too narrow.
    """

    def separated(counts: Counts) -> Float[np.ndarray, "2 m b"]:
        return 100 * np.stack([binary_scores(row, labels, counts) for row in similarities], axis=1)

    names = "average_precision", "roc_auc"
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = resamples(separated, units, n_resamples, seed)
    whole = separated(np.ones((len(labels), 1), np.float32))[:, :, 0]
    rarer = min(len(np.unique(units[labels == label])) for label in np.unique(labels))
    parts = by_unit(np.stack([precision_parts(row, labels) for row in similarities]), units)
    count = min(2 * rarer, parts.shape[1])
    return Measured(dict(zip(names, whole, strict=True)), dict(zip(names, drawn, strict=True)), count, parts)
