"""Bootstrap intervals of every score of `eval.sts`, and of every difference to the raw vectors of the same pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.tasks import TaskIndex
from jaxwhiten import report
from jaxwhiten.metrics import bootstrap

LEVEL = 0.95


def add_intervals(
    result: report.Run,
    indices: Sequence[TaskIndex],
    similarities: Mapping[str, Sequence[np.ndarray]],
    resamples: int,
    seed: int,
) -> None:
    """Adds intervals of the aggregate shown to the rows of a run.

    Every task's score gets `low` and `high`, and every row `intervals["average"]` for the mean of the tasks. Rows
    share the resamples, so the difference of a row to the raw row of its pooling is a paired bootstrap: it is kept
    in `versus_raw`, by task and for the average, each with `value`, `low` and `high`. Tasks are resampled apart.

    Args:
      result: The run; its rows are changed.
      indices: The tasks.
      similarities: For each task the similarities of its test pairs, one array a row.
      resamples: How many.
      seed: Of the resamples.
    """
    aggregate = result.header["aggregate"]
    samples: dict[str, np.ndarray] = {}
    for number, task in enumerate(indices):
        samples[task.name] = bootstrap.spearman_resamples(
            np.stack(similarities[task.name]), task.gold, task.subset, resamples, seed + number
        )[aggregate]
    samples["average"] = np.mean(list(samples.values()), axis=0)
    raw = {row["pooling"]: number for number, row in enumerate(result.rows) if row["whitening"] == "none"}
    for number, row in enumerate(result.rows):
        row["intervals"] = {"average": _ends(samples["average"][number])}
        for task in indices:
            row["tasks"][task.name] |= _ends(samples[task.name][number])
        base = raw.get(row["pooling"], number)
        if base != number:
            ours, theirs = (_scores(result.rows[i], result.header["tasks"], aggregate) for i in (number, base))
            row["versus_raw"] = {
                name: {"value": ours[name] - theirs[name], **_ends(of_name[number] - of_name[base])}
                for name, of_name in samples.items()
            }
    result.header["bootstrap"] = {"resamples": resamples, "level": LEVEL, "seed": seed}


def _ends(samples: np.ndarray) -> dict[str, float]:
    return bootstrap.percentile_interval(samples, LEVEL)._asdict()


def _scores(row: Mapping[str, Any], tasks: Sequence[str], aggregate: str) -> dict[str, float]:
    """A row's scores by task, and their average."""
    return {task: row["tasks"][task][aggregate] for task in tasks} | {"average": report.average(row, tasks, aggregate)}
