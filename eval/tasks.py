"""STS tasks as rows of one array of unique sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eval.aggregates import sts_scores
from eval.encoding import nonempty
from jaxwhiten import metrics
from jaxwhiten.datasets import STSTask


@dataclass(frozen=True)
class TaskIndex:
    """A task as rows of the array of unique sentences: left and right of each scored test pair, and what `target`
    is fitted on (both sides of all scored pairs of all splits, with multiplicity)."""

    name: str
    left: np.ndarray
    right: np.ndarray
    gold: np.ndarray
    subset: list[str]
    fit: np.ndarray

    def test_sentences(self) -> np.ndarray:
        """The unique sentences of the test pairs, in rising order."""
        return np.unique(np.concatenate([self.left, self.right]))

    def mapped(self, x: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Vectors of the unique sentences, those of the test pairs transformed and all others zero."""
        sentences = self.test_sentences()
        rows = transform(x[sentences])
        mapped = np.zeros((len(x), rows.shape[1]), rows.dtype)
        mapped[sentences] = rows
        return mapped

    def similarity(self, x: np.ndarray) -> np.ndarray:
        """The cosine of every test pair, from vectors of the unique sentences."""
        return metrics.cosine_pairs(x[self.left], x[self.right])

    def score(self, similarity: np.ndarray) -> float:
        """Spearman × 100 of the test pairs, weighted over the subsets."""
        return sts_scores(similarity, self.gold, self.subset)["wmean"]


@dataclass(frozen=True)
class Encoded:
    """The unique sentences of all tasks as vectors under one pooling."""

    model: str
    pooling: str
    x: np.ndarray
    tasks: Sequence[TaskIndex]


def index_sentences(tasks: Sequence[STSTask], test_only: bool = False) -> tuple[list[str], list[TaskIndex]]:
    """Unique sentences of all tasks in order of first appearance, and each task as indices into them."""
    number: dict[str, int] = {}

    def numbers(texts: Sequence[str]) -> np.ndarray:
        clean = map(nonempty, texts)
        return np.fromiter((number.setdefault(text, len(number)) for text in clean), np.int64, count=len(texts))

    indices = []
    for task in tasks:
        splits = task.splits
        if test_only:
            splits = {"test": splits["test"]}
        sides = {name: (numbers(pairs.sentence1), numbers(pairs.sentence2)) for name, pairs in splits.items()}
        test = task.splits["test"]
        fit_on = np.concatenate([side for pair in sides.values() for side in pair])
        indices.append(TaskIndex(task.name, *sides["test"], test.score, list(test.subset), fit_on))
    return list(number), indices
