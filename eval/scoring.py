"""Rows of `eval.sts`: whitenings and the methods of `eval.methods`, fitted and scored on every task."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from eval.aggregates import sts_scores
from eval.common import Notes
from eval.methods import make_method
from eval.runs import Record
from eval.settings import NO_WHITENING, RAW, row_fields
from eval.tasks import Encoded, TaskIndex
from jaxwhiten import Moments, Whitening
from jaxwhiten.scoring import BM25, TFIDF, cosines, weigh

# Controls that use words and no encoder.
WORDS = {
    "tfidf": "lower-cased runs of letters and digits, "
    "1 + log of the count times the smoothed idf of what a whitening is fitted on, cosine",
    "bm25": "the words of tfidf, k1 = 1.5, b = 0.75",
}
_WEIGHTS = {"tfidf": TFIDF, "bm25": BM25}
# These do not look at the sentences of the tasks.
_BLIND = ("none", "nli")

Scored = tuple[Record, dict[str, np.ndarray]]  # a row, and by task the similarity of every test pair


@dataclass(frozen=True)
class Fits:
    """The whitening of each task under one setting (none without whitening), and the seconds that fitting took."""

    whitening: str
    by_task: Mapping[str, Whitening]
    seconds: float


@dataclass
class _Tally:
    """A row whose tasks are scored one after another."""

    seconds: float = 0.0
    tasks: Record = field(default_factory=Record)
    similarities: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, task: TaskIndex, similarity: np.ndarray, n_fit: int, started: float) -> None:
        scores = sts_scores(similarity, task.gold, task.subset)
        self.tasks[task.name] = Record(scores, n_fit=n_fit, low=None, high=None)
        self.similarities[task.name] = similarity
        self.seconds += time.perf_counter() - started

    def row(self, encoded: Encoded, whitening: str, setting: Mapping[str, object]) -> Scored:
        n_fit = [scores.n_fit for scores in self.tasks.values()]
        row = Record(
            setting,
            model=encoded.model,
            pooling=encoded.pooling,
            whitening=whitening,
            n_fit=n_fit[0] if whitening == "nli" else sum(n_fit),  # one fit serves all tasks, or each has its own
            transductive=whitening not in _BLIND,
            seconds=self.seconds,
            tasks=self.tasks,
            average_interval=None,
            versus_raw=None,
        )
        return row, self.similarities


def fit(whitening: str, encoded: Encoded, nli: Moments | None, k: int, notes: Notes, *, gamma: float = 1.0) -> Fits:
    """Fits the whitening of each task, to the largest dimension `k` and power `gamma` that will be asked for."""
    started = time.perf_counter()
    fits: dict[str, Whitening] = {}
    if whitening == "nli":
        with notes.collect("nli", encoded.pooling):
            fitted = Whitening.from_moments(nli, n_components=k, gamma=gamma)
        fits = dict.fromkeys((task.name for task in encoded.tasks), fitted)
    elif whitening == "target":
        for task in encoded.tasks:
            with notes.collect(f"target {task.name}", encoded.pooling):
                moments = Moments().update(encoded.x[task.fit])
                fits[task.name] = Whitening.from_moments(moments, n_components=k, gamma=gamma)
    return Fits(whitening, fits, time.perf_counter() - started)


def score(encoded: Encoded, fits: Fits, parameters: Sequence[Mapping[str, Any]], ks: Sequence[int]) -> Iterator[Scored]:
    """Rows of one pooling and whitening.

    Without whitening there is one row, at the full dimension. Otherwise there is one for each k and each of
    `parameters`, the whitening's parameters except k: the vectors are transformed once, to the largest k, and smaller
    ones are prefixes.
    """
    raw = fits.whitening == "none"
    if raw:
        ks = [encoded.x.shape[1]]
        parameters = [RAW]
    for setting in parameters:
        tallies = {k: _Tally(fits.seconds) for k in ks}
        for task in encoded.tasks:
            x = encoded.x
            n_fit = 0
            started = time.perf_counter()
            if not raw:
                with Notes().collect("", ""):  # the fit has given its warnings
                    whitening = fits.by_task[task.name].with_params(n_components=max(ks), **setting)
                x = task.mapped(encoded.x, whitening.transform)
                n_fit = int(whitening.n_samples_seen_)
            for k, tally in tallies.items():
                tally.add(task, task.similarity(x[:, :k]), n_fit, started)
        for k, tally in tallies.items():
            yield tally.row(encoded, fits.whitening, {"k": k, "fit_seconds": fits.seconds} | row_fields(setting))


def score_method(name: str, encoded: Encoded, ks: Sequence[int], notes: Notes, seed: int = 0) -> Iterator[Scored]:
    """Rows of a method under one pooling: one for each k if it can reduce the dimension, else one.

    It is fitted on the same sentences as `target`, task by task.
    """
    defaults = make_method(name).get_params()
    fixed = {"seed": seed} if "seed" in defaults else {}
    variants = [fixed | {"n_components": k} for k in ks] if "n_components" in defaults else [fixed]
    for params in variants:
        tally = _Tally()
        fit_seconds = 0.0
        for task in encoded.tasks:
            started = time.perf_counter()
            method = make_method(name, **params)
            with notes.collect(f"{name} {task.name}", encoded.pooling):
                method.fit(encoded.x[task.fit])
            fit_seconds += time.perf_counter() - started
            similarity = task.similarity(task.mapped(encoded.x, method.transform))
            tally.add(task, similarity, int(method.n_samples_seen_), started)
        k = method.transform(encoded.x[:1]).shape[1]
        yield tally.row(encoded, name, NO_WHITENING | {"k": k, "fit_seconds": fit_seconds})


def score_words(
    name: str, counts: csr_matrix, tasks: Sequence[TaskIndex], fits: Mapping[str, np.ndarray | None]
) -> Iterator[Scored]:
    """Rows of a baseline of `WORDS`, one for each fit: cosines of weighted counts of words.

    `counts` begins with the unique sentences. `fits` has, by name, the rows on which words are counted; None for the
    sentences that `target` is fitted on, task by task.
    """
    for whitening, rows in fits.items():
        tally = _Tally()
        for task in tasks:
            started = time.perf_counter()
            fit_on = counts[task.fit if rows is None else rows]
            _, weights = weigh(_WEIGHTS[name], counts, fit_on, k1=1.5)
            tally.add(task, cosines(weights, task.left, task.right), fit_on.shape[0], started)
        setting = NO_WHITENING | {"k": counts.shape[1], "fit_seconds": 0.0}
        yield tally.row(Encoded("words", name, counts, tasks), whitening, setting)
