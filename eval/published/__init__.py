"""Published STS scores, and how far a run is from them. The numbers lie in the CSV files beside this one."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxwhiten.report import setting_name

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


@functools.cache
def read() -> tuple[Published, ...]:
    """Every published row, file by file."""
    rows = []
    for path in sorted(Path(__file__).parent.glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = dict(line[1:].strip().partition(": ")[::2] for line in lines if line.startswith("# "))
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            scores = {task: float(value) for task, value in row.items() if task not in _SETTING and value}
            setting = {name: row[name] for name in _SETTING}
            rows.append(Published(about["source"], about["citation"], scores=scores, **{**setting, "k": int(row["k"])}))
    return tuple(rows)


def compare(rows: Sequence[dict[str, Any]], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Published rows of the settings in a run, with this run's difference under the published aggregate.

    Settings are equal when model (the last part of its name), pooling, whitening, k and, for whitened rows,
    β = γ = 1 are.

    Args:
      rows: Rows of results.
      tasks: Tasks of the run; published scores of others are left out.

    Returns:
      One dictionary a match: setting, source, citation, aggregate, scores and difference by task.
    """
    matches = []
    for row in rows:
        if row["whitening"] != "none" and (row["beta"], row["gamma"]) != (1.0, 1.0):
            continue
        name = row["model"].rstrip("/").rpartition("/")[2].lower()
        setting = (name, row["pooling"], row["whitening"], row["k"])
        for known in read():
            if (known.model.lower(), known.pooling, known.whitening, known.k) != setting:
                continue
            scores = {task: known.scores[task] for task in tasks if task in known.scores}
            ours = {task: row["tasks"][task][known.aggregate] for task in scores}
            if scores:
                matches.append(
                    {
                        "setting": setting_name(row),
                        "source": known.source,
                        "citation": known.citation,
                        "aggregate": known.aggregate,
                        "scores": scores,
                        "difference": {t: round(ours[t] - s, 2) for t, s in scores.items() if ours[t] is not None},
                    }
                )
    return matches
