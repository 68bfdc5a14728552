"""Published scores and figures, and the differences of a run to them. The CSV files of this folder hold the numbers."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.runs import Record
from eval.settings import setting_name

_FIGURES = ("mrr_at_10", "time_ms", "memory_gib")
_SETTING = ("model", "pooling", "whitening", "k", "aggregate", "backend", "nlist", "nprobe")


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
    """Published rows of the settings in a run, with this run's difference under the published aggregate."""
    matches = []
    for row in rows:
        for entry in _same_setting(row, "", {}):
            scores = {task: entry.figures[task] for task in tasks if task in entry.figures}
            reference = (entry.setting["source"], entry.setting["citation"], entry.setting["aggregate"])
            if scores:
                measured = {task: row.tasks[task][entry.setting["aggregate"]] for task in scores}
                matches.append(_comparison(setting_name(row), *reference, scores, measured))
    return matches


def compare_retrieval(rows: Sequence[Record], dataset: Record) -> list[Record]:
    """Published rows of the settings in a run, on the whole data set with its numbers of documents and queries."""
    data = {"dataset": dataset.name, "documents": dataset.documents, "queries": dataset.queries}
    matches = []
    for row in rows:
        index = {"backend": row.backend, "nlist": row.options.get("nlist"), "nprobe": row.options.get("nprobe")}
        for entry in _same_setting(row, "retrieval", data | index):
            reference = (entry.setting["source"], entry.setting["citation"], entry.setting["machine"])
            measured = {name: row[name] for name in _FIGURES}
            matches.append(_comparison(f"{setting_name(row)}, {row.backend}", *reference, entry.figures, measured))
    return matches


def _comparison(setting: str, source: str, citation: str, note: str, published: dict, measured: dict) -> Record:
    """Published figures of a setting and those of a run; `note` names the aggregate or the machine."""
    return Record(
        setting=setting, source=source, citation=citation, note=note, published=Record(published), ours=Record(measured)
    )


def _same_setting(row: Record, folder: str, extra: dict[str, object]) -> Iterator[Published]:
    """Published rows with the last part of the model's name, pooling, whitening, k and `extra` of a row.

    Others publish raw vectors, and whitening with β = γ = 1.
    """
    if row.whitening != "none" and (row.beta, row.gamma, row.further) != (1.0, 1.0, None):
        return
    setting = {"pooling": row.pooling, "whitening": row.whitening, "k": row.k, **extra}
    model = row.model.rstrip("/").rpartition("/")[2].lower()
    for entry in read(folder):
        matches = all(entry.setting[name] == str(value) for name, value in setting.items())
        if matches and entry.setting["model"].lower() == model:
            yield entry
