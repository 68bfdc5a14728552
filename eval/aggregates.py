"""The three aggregates over the subsets of an STS task that papers report, and their bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from jaxtyping import Float, Real

from eval.runs import Record
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import bootstrap, spearman

AGGREGATES = ("wmean", "mean", "all")


class STSScores(TypedDict):
    """The scores of one STS task, Spearman × 100; NaN if a correlation is undefined."""

    all: float
    mean: float
    wmean: float
    subsets: dict[str, float]


def sts_scores(similarity: Real[np.ndarray, " n"], gold: Real[np.ndarray, " n"], subsets: Sequence[str]) -> STSScores:
    """The three aggregates over the subsets of one STS task.

    Args:
      similarity: The model's score of each pair.
      gold: The human score of each pair.
      subsets: The subset of each pair.

    Returns:
      `all`: one Spearman over all pairs (Sentence-BERT, SimCSE, MTEB). `mean`: the mean of the subsets' Spearman
      (WhiteningBERT). `wmean`: their mean weighted by number of pairs (BERT-flow, BERT-whitening). `subsets`: the score
      of each subset, in order of first appearance. A subset with an undefined score makes `mean` and `wmean` NaN.

    References:
      Su et al. 2021 (BERT-whitening), section 4; Gao et al. 2021 (SimCSE), appendix B, on the aggregates.
    """
    rows = _rows(gold, subsets)
    scores = {name: 100 * spearman(similarity[index], gold[index]) for name, index in rows.items()}
    values = np.array(list(scores.values()))
    weights = np.array([len(index) for index in rows.values()])
    return {
        "all": 100 * spearman(similarity, gold),
        "mean": float(values.mean()),
        "wmean": float(values @ weights / weights.sum()),
        "subsets": scores,
    }


def sts_resamples(
    similarity: Real[np.ndarray, "m n"],
    gold: Real[np.ndarray, " n"],
    subsets: Sequence[str],
    n_resamples: int,
    seed: int,
) -> dict[str, Float[np.ndarray, "m r"]]:
    """The aggregates of every row of similarities in each bootstrap resample; NaN where one is undefined.

    Each subset is resampled on its own, because the subsets of a task are fixed and not a sample. Rows share the
    resamples: the difference of two rows is a paired bootstrap.
    """
    rows = list(_rows(gold, subsets).values())
    overall = bootstrap.correlations(similarity, gold)
    parts = [(index, bootstrap.correlations(similarity[:, index], gold[index])) for index in rows]
    blocks = []
    for counts in bootstrap.draws(np.asarray(subsets, dtype=str), n_resamples, seed):
        blocks.append(np.stack([overall(counts), *(correlate(counts[index]) for index, correlate in parts)]))
    pooled, *by_subset = np.concatenate(blocks, axis=2)
    weights = [len(index) for index in rows]
    return {"all": pooled, "mean": np.mean(by_subset, axis=0), "wmean": np.average(by_subset, axis=0, weights=weights)}


def _rows(gold: Real[np.ndarray, " n"], subsets: Sequence[str]) -> dict[str, np.ndarray]:
    """The rows of each subset, in order of first appearance."""
    if len(subsets) != len(gold):
        raise InputError(f"{len(gold)} gold scores but {len(subsets)} subset names.")
    if not len(gold):
        raise InputError("No scored pairs.")
    names = np.asarray(subsets, dtype=str)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}


def scores_of(row: Record, aggregate: str) -> dict[str, float]:
    """The score of each task of a row, and their mean as `"average"`, which is NaN if a score is undefined."""
    scores = {name: math.nan if task[aggregate] is None else task[aggregate] for name, task in row.tasks.items()}
    return scores | {"average": sum(scores.values()) / len(scores)}
