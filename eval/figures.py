"""The arrays behind the plots of `eval.sts`: the spectrum of every pooling, and one heat map of similarities."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

import jaxwhiten
from eval.runs import Record, Run
from eval.scoring import Fits, with_params
from eval.tasks import Encoded, TaskIndex
from jaxwhiten.datasets import STSTask

HEAT_MAP_PAIRS = 14


def shown_task(tasks: Sequence[TaskIndex]) -> int:
    """The task shown where only one can be shown: STS-B, or the first."""
    return next((i for i, task in enumerate(tasks) if task.name == "STS-B"), 0)


def add_figures(
    run: Run, encoded: Encoded, fits: Fits, whitenings: Sequence[str], tasks: Sequence[STSTask], k: int
) -> Run:
    """The run with the figures of a fit: spectra preferably on NLI, one heat map preferably on a task."""
    if fits.whitening == next((name for name in ("nli", "target") if name in whitenings), None):
        run = add_spectrum(run, encoded, fits)
    in_heat_map = next((name for name in ("target", "nli") if name in whitenings), None)
    if fits.whitening == in_heat_map and run.header.similarity is None:
        run = add_heat_map(run, encoded, fits, tasks, k)
    return run


def add_spectrum(run: Run, encoded: Encoded, fits: Fits) -> Run:
    """The run with the eigenvalues of a pooling."""
    name = encoded.tasks[shown_task(encoded.tasks)].name
    run.figures[f"spectrum/{encoded.pooling}"] = np.asarray(fits.by_task[name].eigenvalues_, np.float64)
    sentences = f"sentences of {name}"
    if fits.whitening == "nli":
        sentences = "NLI sentences"
    return run.with_header(spectrum=sentences)


def add_heat_map(run: Run, encoded: Encoded, fits: Fits, tasks: Sequence[STSTask], k: int) -> Run:
    """The run with the similarities of a few pairs, before and after whitening."""
    number = shown_task(encoded.tasks)
    task = encoded.tasks[number]
    test = tasks[number].splits["test"]
    chosen = _legible_pairs(test.sentence1, test.sentence2, test.score)
    a = encoded.x[task.left[chosen]]
    b = encoded.x[task.right[chosen]]
    whitening = with_params(fits.by_task[task.name], n_components=k, beta=1.0, gamma=1.0)
    run.figures["similarity/before"] = _cosines(a, b)
    run.figures["similarity/after"] = _cosines(whitening.transform(a), whitening.transform(b))
    similarity = Record(pooling=encoded.pooling, whitening=fits.whitening, k=k, task=task.name)
    similarity |= {"gold": [float(test.score[i]) for i in chosen], "sentences": [test.sentence1[i] for i in chosen]}
    return run.with_header(similarity=Record(similarity))


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return jaxwhiten.normalize(a) @ jaxwhiten.normalize(b).T


def _legible_pairs(first: Sequence[str], second: Sequence[str], gold: np.ndarray) -> list[int]:
    """Pairs for the heat map: short sentences that occur once, with human scores from high to low."""
    counts = Counter(itertools.chain(first, second))
    pairs = [
        i
        for i, (a, b) in enumerate(zip(first, second, strict=True))
        if 18 <= len(a) <= 48 and len(b) <= 80 and counts[a] == counts[b] == 1
    ] or list(range(len(first)))
    pairs.sort(key=lambda i: -gold[i])
    spread = np.linspace(0, len(pairs) - 1, min(HEAT_MAP_PAIRS, len(pairs))).round().astype(int)
    return [pairs[i] for i in spread]
