"""Published scores and figures, and the differences of a run to them. The CSV files of this folder hold the numbers."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.runs import Record
from eval.settings import setting_name

_SETTING = ("model", "pooling", "whitening", "k", "aggregate")


@dataclass(frozen=True)
class Published:
    """One published row: its setting and source, as in the file, and its figures."""

    setting: dict[str, str]
    figures: dict[str, float]


@functools.cache
def read(folder: str = "") -> tuple[Published, ...]:
    """Every published row of a folder of CSV files; the comments of a file apply to all its rows."""
    rows = []
    for path in sorted((Path(__file__).parent / folder).glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines()
        metadata = dict(line[1:].strip().partition(": ")[::2] for line in lines if line.startswith("# "))
        for line in csv.DictReader(line for line in lines if not line.startswith("#")):
            setting = {name: line[name] for name in _SETTING if name in line}
            figures = {name: float(value) for name, value in line.items() if name not in _SETTING and value}
            rows.append(Published(metadata | setting, figures))
    return tuple(rows)


def compare(rows: Sequence[Record], tasks: Sequence[str]) -> list[Record]:
    """Published rows of the settings in a run, with this run's scores under the published aggregate."""
    matches = []
    for row in rows:
        for entry in _same_setting(row):
            scores = {task: entry.figures[task] for task in tasks if task in entry.figures}
            aggregate = entry.setting["aggregate"]
            if scores:
                ours = Record({task: row.tasks[task][aggregate] for task in scores})
                reference = {name: entry.setting[name] for name in ("source", "citation")}
                match = {"note": aggregate, "published": Record(scores), "ours": ours}
                matches.append(Record(setting=setting_name(row), **reference, **match))
    return matches


def _same_setting(row: Record) -> Iterator[Published]:
    """Published rows with the last part of the model's name, pooling, whitening and k of a row.

    Others publish raw vectors, and whitening with β = γ = 1.
    """
    if row.whitening != "none" and (row.beta, row.gamma, row.further) != (1.0, 1.0, None):
        return
    model = row.model.rstrip("/").rpartition("/")[2].lower()
    for entry in read():
        same = all(entry.setting[name] == str(row[name]) for name in ("pooling", "whitening", "k"))
        if same and entry.setting["model"].lower() == model:
            yield entry
