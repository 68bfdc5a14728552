"""Published STS scores, and how far a run is from them. The numbers lie in the CSV files beside this one."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxwhiten.report import results

_SETTING = ("model", "pooling", "whitening", "k", "aggregate")


@dataclass(frozen=True)
class Published:
    """One published row: its setting and its scores in points."""

    source: str
    citation: str
    model: str
    pooling: str
    whitening: str
    k: int
    aggregate: str
    scores: dict[str, float]


def read_lines(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The lines of every CSV file of a folder, each with what the comments of its file say, both by name."""
    for path in sorted(folder.glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = dict(line[1:].strip().partition(": ")[::2] for line in lines if line.startswith("# "))
        for line in csv.DictReader(line for line in lines if not line.startswith("#")):
            yield about, line


def comparable(row: results.Row) -> bool:
    """Whether a row is a setting that others publish: raw vectors, or whitening with β = γ = 1."""
    return row.whitening == "none" or (row.beta, row.gamma) == (1.0, 1.0)


def model_name(row: results.Row) -> str:
    """The last part of the model's name, in small letters."""
    return row.model.rstrip("/").rpartition("/")[2].lower()


@functools.cache
def read() -> tuple[Published, ...]:
    """Every published row, file by file."""
    rows = []
    for about, line in read_lines(Path(__file__).parent):
        scores = {task: float(value) for task, value in line.items() if task not in _SETTING and value}
        setting = {name: line[name] for name in _SETTING} | {"k": int(line["k"])}
        rows.append(Published(about["source"], about["citation"], scores=scores, **setting))
    return tuple(rows)


def compare(rows: Sequence[results.STSRow], tasks: Sequence[str]) -> tuple[results.Published, ...]:
    """Published rows of the settings in a run, with this run's difference under the published aggregate.

    Settings are equal when model (the last part of its name), pooling, whitening, k and, for whitened rows,
    β = γ = 1 are.

    Args:
      rows: Rows of results.
      tasks: Tasks of the run; published scores of others are left out.
    """
    matches = []
    for row in filter(comparable, rows):
        setting = (model_name(row), row.pooling, row.whitening, row.k)
        for known in read():
            scores = {task: known.scores[task] for task in tasks if task in known.scores}
            if scores and (known.model.lower(), known.pooling, known.whitening, known.k) == setting:
                ours = {task: row.tasks[task].under(known.aggregate) for task in scores}
                about = (row.name, known.source, known.citation, known.aggregate)
                matches.append(results.Published(*about, scores, ours))
    return tuple(matches)
