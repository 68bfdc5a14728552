"""Rows of `eval.sts`: whitenings and the methods of `eval.methods`, fitted and scored on every task."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from eval import geometry
from eval.aggregates import sts_scores
from eval.common import Notes
from eval.methods import make_method
from eval.runs import Record
from eval.settings import NO_WHITENING, RAW, row_fields
from eval.tasks import Encoded, TaskIndex
from eval.words import weigh
from jaxwhiten import Moments, Whitening, metrics
from jaxwhiten.scoring import cosines

GEOMETRY_ROWS = 4000
POSITIVE = 4.0  # pairs of at least this human score are positive: in SimCSE for the alignment, in EvalRank
# These do not look at the sentences of the tasks.
_BLIND = ("none", "nli", "random-projection")

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
    geometry: Record | None = None

    def add(self, task: TaskIndex, similarity: np.ndarray, n_fit: int, ranking: Record | None = None) -> None:
        scores = sts_scores(similarity, task.gold, task.subset)
        self.tasks[task.name] = Record(scores, n_fit=n_fit, low=None, high=None, ranking=ranking)
        self.similarities[task.name] = similarity

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
            geometry=self.geometry,
            average_interval=None,
            versus_raw=None,
            versus_words=None,
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


def with_params(whitening: Whitening, **changes: Any) -> Whitening:
    """`whitening.with_params`, without repeating the warnings of its fit."""
    with Notes().collect("", ""):
        return whitening.with_params(**changes)


def score(
    encoded: Encoded,
    fits: Fits,
    parameters: Sequence[Mapping[str, Any]],
    ks: Sequence[int],
    measured: TaskIndex | None = None,
    seed: int = 0,
    ranking: bool = False,
) -> Iterator[Scored]:
    """Rows of one pooling and whitening.

    Without whitening there is one row, at the full dimension. Otherwise there is one for each k and each of
    `parameters`, the whitening's parameters except k: the vectors are transformed once, to the largest k, and smaller
    ones are prefixes. `measured` is the task whose sentences' geometry is measured; `ranking` asks for the ranks of
    similar pairs.
    """
    raw = fits.whitening == "none"
    if raw:
        ks = [encoded.x.shape[1]]
        parameters = [RAW]
    for setting in parameters:
        tallies = {k: _Tally(fits.seconds) for k in ks}
        for task in encoded.tasks:
            started = time.perf_counter()
            sentences = task.test_sentences()
            left = np.searchsorted(sentences, task.left)
            right = np.searchsorted(sentences, task.right)
            x = encoded.x[sentences]
            n_fit = 0
            if not raw:
                whitening = with_params(fits.by_task[task.name], n_components=max(ks), **setting)
                x = whitening.transform(x)
                n_fit = int(whitening.n_samples_seen_)
            shared = time.perf_counter() - started
            for k, tally in tallies.items():
                started = time.perf_counter()
                cosines = metrics.cosine_pairs(x[left, :k], x[right, :k])
                partners = None
                if ranking:
                    partners = rank(x[:, :k], task)
                tally.add(task, cosines, n_fit, partners)
                tally.seconds += shared + time.perf_counter() - started
                if task is measured:
                    tally.geometry = measure(x[:, :k], task, seed)
        size = 0
        if not raw:
            size = _file_bytes(fits.by_task[encoded.tasks[-1].name])
        for k, tally in tallies.items():
            fields = {"k": k, "fit_seconds": fits.seconds, "bytes": size}
            yield tally.row(encoded, fits.whitening, fields | row_fields(setting))


def score_method(
    name: str, encoded: Encoded, ks: Sequence[int], notes: Notes, measured: TaskIndex | None = None, seed: int = 0
) -> Iterator[Scored]:
    """Rows of a method under one pooling: one for each k if it can reduce the dimension, else one.

    It is fitted on the same sentences as `target`, task by task. `measured` is as in `score`.
    """
    defaults = make_method(name).get_params()
    fixed = {}
    if "seed" in defaults:
        fixed = {"seed": seed}
    variants = [fixed]
    if "n_components" in defaults:
        variants = [fixed | {"n_components": k} for k in ks]
    for params in variants:
        tally = _Tally()
        fit_seconds = 0.0
        for task in encoded.tasks:
            started = time.perf_counter()
            method = make_method(name, **params)
            with notes.collect(f"{name} {task.name}", encoded.pooling):
                method.fit(encoded.x[task.fit])
            fit_seconds += time.perf_counter() - started
            left, right = (method.transform(encoded.x[side]) for side in (task.left, task.right))
            similarity = metrics.cosine_pairs(left, right)
            tally.add(task, similarity, int(method.n_samples_seen_))
            tally.seconds += time.perf_counter() - started
            if task is measured:
                tally.geometry = measure(method.transform(encoded.x[task.test_sentences()]), task, seed)
        k = method.transform(encoded.x[:1]).shape[1]
        yield tally.row(
            encoded, name, NO_WHITENING | {"k": k, "fit_seconds": fit_seconds, "bytes": _file_bytes(method)}
        )


def score_words(
    name: str, counts: csr_matrix, tasks: Sequence[TaskIndex], fits: Mapping[str, np.ndarray | None]
) -> Iterator[Scored]:
    """Rows of a baseline of `eval.words`, one for each fit: cosines of weighted counts of words.

    `counts` begins with the unique sentences. `fits` has, by name, the rows on which words are counted; None for the
    sentences that `target` is fitted on, task by task.
    """
    for whitening, rows in fits.items():
        tally = _Tally()
        fit_seconds = 0.0
        for task in tasks:
            started = time.perf_counter()
            fit_on = counts[task.fit if rows is None else rows]
            _, weights = weigh(name, counts, fit_on)
            fit_seconds += time.perf_counter() - started
            tally.add(task, cosines(weights, task.left, task.right), fit_on.shape[0])
            tally.seconds += time.perf_counter() - started
        width = counts.shape[1]
        setting = NO_WHITENING | {"k": width, "fit_seconds": fit_seconds, "bytes": 8 * width}
        yield tally.row(Encoded("words", name, counts, tasks), whitening, setting)


def rank(x: np.ndarray, task: TaskIndex) -> Record:
    """The ranks of the positive pairs' partners among the vectors of `task.test_sentences()`."""
    ranks = geometry.partner_ranks(x, *_positive(task))
    if not len(ranks):
        return Record(queries=0, **dict.fromkeys(("hits_at_1", "hits_at_3", "mrr"), math.nan))
    hits_at_1, hits_at_3, mrr = (float(100 * np.mean(gain)) for gain in (ranks <= 1, ranks <= 3, 1 / ranks))
    return Record(queries=len(ranks), hits_at_1=hits_at_1, hits_at_3=hits_at_3, mrr=mrr)


def measure(x: np.ndarray, task: TaskIndex, seed: int) -> Record:
    """The geometry of the vectors of `task.test_sentences()`, and the alignment of its positive pairs."""
    left, right = _positive(task)
    alignment = math.nan
    if len(left):
        alignment = geometry.alignment(x[left], x[right])
    values = geometry.geometry(x, max_rows=GEOMETRY_ROWS, seed=seed)
    return Record(values, task=task.name, alignment=alignment)


def _positive(task: TaskIndex) -> np.ndarray:
    """Left and right of the positive pairs, as rows of `task.test_sentences()`."""
    pairs = np.stack([task.left, task.right])[:, task.gold >= POSITIVE]
    return np.searchsorted(task.test_sentences(), pairs)


def _file_bytes(method: Any) -> int:
    """The size of a fitted method's file: the memory it takes in addition to the vectors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "method.safetensors")
        method.save(path)
        return path.stat().st_size
