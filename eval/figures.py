"""The arrays behind the plots of `eval.sts`: the spectrum of every pooling, and one heat map of similarities."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import jaxwhiten
from eval.tasks import TaskIndex
from jaxwhiten import Whitening, report
from jaxwhiten.datasets import STSTask

HEAT_MAP_PAIRS = 14


def with_params(whitening: Whitening, **changes: Any) -> Whitening:
    """`whitening.with_params`, without the warnings its fit has given already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return whitening.with_params(**changes)


def shown_task(indices: Sequence[TaskIndex]) -> int:
    """The task that stands for all where only one is shown: STS-B, or the first."""
    return next((i for i, task in enumerate(indices) if task.name == "STS-B"), 0)


def add_figures(
    result: report.Run,
    setting: Mapping[str, str],
    fits: Mapping[str, Whitening],
    vectors: np.ndarray,
    indices: Sequence[TaskIndex],
    tasks: Sequence[STSTask],
    k: int,
    whitenings: Sequence[str],
) -> None:
    """Keeps the arrays behind the plots: the spectrum of every pooling, and one heat map of similarities."""
    whitening = setting["whitening"]
    place = shown_task(indices)
    task = indices[place]
    if whitening == ("nli" if "nli" in whitenings else "target"):
        eigenvalues = np.asarray(fits[task.name].eigenvalues_, np.float64)
        result.figures[f"spectrum/{setting['pooling']}"] = eigenvalues
        result.header["figures"]["spectrum"] = "NLI sentences" if whitening == "nli" else f"sentences of {task.name}"
    if whitening == ("target" if "target" in whitenings else "nli") and "similarity" not in result.header["figures"]:
        test = tasks[place].splits["test"]
        chosen = _legible_pairs(test.sentence1, test.sentence2, test.score)
        a, b = vectors[task.left[chosen]], vectors[task.right[chosen]]
        whitener = with_params(fits[task.name], n_components=k, beta=1.0, gamma=1.0)
        result.figures["similarity/before"] = _cosines(a, b)
        result.figures["similarity/after"] = _cosines(whitener.transform(a), whitener.transform(b))
        about = {**setting, "task": task.name, "k": k, "gold": [float(test.score[i]) for i in chosen]}
        result.header["figures"]["similarity"] = {**about, "sentences": [test.sentence1[i] for i in chosen]}


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return jaxwhiten.normalize(a) @ jaxwhiten.normalize(b).T


def _legible_pairs(first: Sequence[str], second: Sequence[str], gold: np.ndarray) -> list[int]:
    """Pairs for the heat map: short sentences that occur once, the human scores spread from high to low."""
    seen = Counter(itertools.chain(first, second))
    pairs = [
        i
        for i, (a, b) in enumerate(zip(first, second, strict=True))
        if 18 <= len(a) <= 48 and len(b) <= 80 and seen[a] == seen[b] == 1
    ] or list(range(len(first)))
    pairs.sort(key=lambda i: -gold[i])
    spread = np.linspace(0, len(pairs) - 1, min(HEAT_MAP_PAIRS, len(pairs))).round().astype(int)
    return [pairs[i] for i in spread]
