"""Bootstrap intervals of means, of every score of `eval.sts`, and of differences to raw vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from configs.settings import Scored
from eval.aggregates import scores_of, sts_resamples
from eval.runs import Record
from eval.tasks import TaskIndex
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import bootstrap

_BLOCK_ELEMENTS = 1 << 20  # counts held at once


def bootstrap_mean(values: np.ndarray, n_resamples: int, seed: int = 0) -> bootstrap.Interval:
    """The percentile interval of a mean, such as the MRR from its reciprocal ranks.

    A resample is one multinomial draw over the distinct values. Reciprocal ranks have few of them for any number of
    queries.
    """
    if not len(values):
        raise InputError("The bootstrap of a mean needs at least one value.")
    distinct, counts = np.unique(values, return_counts=True)
    shares = counts / len(values)
    rng = np.random.default_rng(seed)
    width = max(1, _BLOCK_ELEMENTS // len(distinct))
    means = [
        rng.multinomial(len(values), shares, size=min(width, n_resamples - start)) @ distinct / len(values)
        for start in range(0, n_resamples, width)
    ]
    return bootstrap.percentile_interval(np.concatenate(means))


def estimate(values: np.ndarray, resamples: int, seed: int) -> Record:
    """The mean with its bootstrap interval."""
    low, high = bootstrap_mean(values, resamples, seed)
    return Record(value=float(values.mean()), low=low, high=high)


def with_ends(value: float, samples: np.ndarray) -> Record:
    """A figure with the interval of its resamples."""
    low, high = bootstrap.percentile_interval(samples)
    return Record(value=value, low=low, high=high)


def resampled(
    similarities: Sequence[Mapping[str, np.ndarray]], tasks: Sequence[TaskIndex], aggregate: str, config: Scored
) -> dict[str, np.ndarray]:
    """The scores [rows, resamples] of every task, and under `"average"` their mean; tasks are resampled separately.

    `similarities` has the similarities of the test pairs, by row and task.
    """
    samples: dict[str, np.ndarray] = {}
    for number, task in enumerate(tasks):
        of_rows = np.stack([by_task[task.name] for by_task in similarities])
        resamples = sts_resamples(of_rows, task.gold, task.subset, config.bootstrap, config.seed + number)
        samples[task.name] = resamples[aggregate]
    return samples | {"average": np.mean(list(samples.values()), axis=0)}


def with_intervals(rows: Sequence[Record], samples: Mapping[str, np.ndarray], aggregate: str) -> list[Record]:
    """Adds intervals of one aggregate to rows, from the resamples of `resampled`: for every task and for their mean.

    Rows share the resamples, so the difference of a row to the raw row of its pooling is a paired bootstrap: it is kept
    in `versus_raw`.
    """
    scores = [scores_of(row, aggregate) for row in rows]

    def estimates(number: int, base: int | None = None) -> dict[str, Record]:
        """The interval of a row, or of its difference to another row."""
        by_name = {}
        for name, values in samples.items():
            value = scores[number][name]
            of_row = values[number]
            if base is not None:
                value = value - scores[base][name]
                of_row = of_row - values[base]
            by_name[name] = with_ends(value, of_row)
        return by_name

    raw = {row.pooling: number for number, row in enumerate(rows) if row.whitening == "none"}
    complete = []
    for number, row in enumerate(rows):
        by_name = estimates(number)
        base = raw.get(row.pooling)
        versus = None if base in (None, number) else estimates(number, base)
        tasks = {name: task.but(low=by_name[name].low, high=by_name[name].high) for name, task in row.tasks.items()}
        intervals = {"average_interval": by_name["average"], "versus_raw": versus}
        complete.append(Record(row | intervals, tasks=Record(tasks)))
    return complete
