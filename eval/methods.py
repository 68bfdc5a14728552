"""Rows of `eval.sts` for the methods of `jaxwhiten.methods`, and the geometry of the vectors behind every row."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.settings import choices
from eval.tasks import TaskIndex
from jaxwhiten import metrics
from jaxwhiten.methods import METHODS, make_method, pair_similarity
from jaxwhiten.metrics.geometry import alignment, geometry

GEOMETRY_ROWS = 4000
POSITIVE = 4.0  # pairs of at least this human score are the alignment's positive pairs, as SimCSE takes them
# These do not look at the sentences they are fitted on.
_BLIND = ("none", "random-projection")

Row = dict[str, Any]


def names_of(value: Any) -> tuple[str, ...]:
    """The methods a config names; an empty string is none.

    Raises:
      InputError: A name is not one of `METHODS`.
    """
    return choices("methods", value, tuple(METHODS)) if value else ()


def score_methods(
    names: Sequence[str],
    setting: Mapping[str, str],
    vectors: np.ndarray,
    tasks: Sequence[TaskIndex],
    ks: Sequence[int],
    seed: int,
    measured: TaskIndex | None,
    warned: dict[str, list[str]],
) -> Iterator[tuple[Row, dict[str, np.ndarray]]]:
    """Rows of results for methods of one pooling, and the similarity of every test pair by task.

    Every method is fitted on the sentences `target` is fitted on, task by task. Methods that can reduce the dimension
    have a row for each k, the others one.

    Args:
      names: Names in `METHODS`.
      setting: Model and pooling.
      vectors: The unique sentences' vectors.
      tasks: The tasks.
      ks: Dimensions.
      seed: Seed of the methods that have one.
      measured: The task whose sentences' geometry is measured, or None.
      warned: For each warning the fits it is about; added to.

    Yields:
      A row and the similarities.
    """
    for name in names:
        known = make_method(name).get_params()
        fixed = {"seed": seed} if "seed" in known else {}
        for params in [fixed | {"n_components": k} for k in ks] if "n_components" in known else [fixed]:
            row: Row = {**setting, "whitening": name, "k": vectors.shape[1], "beta": None, "gamma": None}
            row |= {"n_fit": 0, "transductive": name not in _BLIND, "seconds": 0.0, "fit_seconds": 0.0, "bytes": 0}
            row["tasks"] = {}
            similarities: dict[str, np.ndarray] = {}
            for task in tasks:
                started = time.perf_counter()
                method = make_method(name, **params)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    method.fit(vectors[task.fit])
                for warning in caught:
                    warned.setdefault(str(warning.message), []).append(f"{name} {task.name}")
                row["fit_seconds"] += time.perf_counter() - started
                found = pair_similarity(method, vectors[task.left], vectors[task.right])
                similarities[task.name] = found
                scores = metrics.sts_scores(found, task.gold, task.subset)
                row["tasks"][task.name] = {**scores, "n_fit": int(method.n_samples_seen_)}
                row["seconds"] += time.perf_counter() - started
                row["n_fit"] += int(method.n_samples_seen_)
                if task is measured and hasattr(method, "transform"):
                    row["geometry"] = measure(method.transform(vectors[test_sentences(task)]), task, seed)
            row["bytes"] = file_bytes(method)
            if hasattr(method, "transform"):
                row["k"] = method.transform(vectors[:1]).shape[1]
            yield row, similarities


def test_sentences(task: TaskIndex) -> np.ndarray:
    """The unique sentences of a task's test pairs."""
    return np.unique(np.concatenate([task.left, task.right]))


def measure(x: np.ndarray, task: TaskIndex, seed: int) -> dict[str, Any]:
    """The geometry of the vectors of `test_sentences(task)`, and the alignment of its positive pairs."""
    place = np.searchsorted(test_sentences(task), np.stack([task.left, task.right])[:, task.gold >= POSITIVE])
    aligned = alignment(x[place[0]], x[place[1]]) if place.shape[1] else math.nan
    return {"task": task.name, **geometry(x, max_rows=GEOMETRY_ROWS, seed=seed), "alignment": aligned}


def file_bytes(method: Any) -> int:
    """The size of a fitted method's file: the memory it takes beside the vectors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "method.safetensors")
        method.save(path)
        return path.stat().st_size
