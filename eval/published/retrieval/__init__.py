"""Published retrieval figures, and the rows of a run that are the same setting. The numbers lie in the CSV file."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FIGURES = ("mrr_at_10", "time_ms", "memory_gib")


@functools.cache
def read() -> tuple[Row, ...]:
    """Every published row: its setting, its figures and where it comes from."""
    rows = []
    for path in sorted(Path(__file__).parent.glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = dict(line[1:].strip().partition(": ")[::2] for line in lines if line.startswith("# "))
        for number in ("documents", "queries", "nlist", "nprobe"):
            about[number] = int(about[number])
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            rows.append({**about, **row, "k": int(row["k"]), **{name: float(row[name]) for name in FIGURES}})
    return tuple(rows)


def compare(rows: Sequence[Row], dataset: Mapping[str, Any]) -> list[Row]:
    """Published rows that are the same setting as a row of the run, with the run's figures beside.

    The same means: model (the last part of its name), pooling, whitening with β = γ = 1, k, backend with its `nlist`
    and `nprobe`, and the whole data set with its numbers of documents and queries.

    Args:
      rows: Rows of results.
      dataset: Name and numbers of documents and queries of the run.

    Returns:
      One dictionary a match: setting, source, citation, machine, published and ours, each by figure.
    """
    matches = []
    for row in rows:
        if row["whitening"] != "none" and (row["beta"], row["gamma"]) != (1.0, 1.0):
            continue
        ours = {
            "model": row["model"].rstrip("/").rpartition("/")[2].lower(),
            **{name: row[name] for name in ("pooling", "whitening", "k", "backend")},
            **{name: row["options"].get(name) for name in ("nlist", "nprobe")},
            "dataset": dataset["name"],
            **{name: dataset[name] for name in ("documents", "queries")},
        }
        for known in read():
            if all(known[name] == value for name, value in ours.items()):
                about = {name: known[name] for name in ("source", "citation", "machine")}
                setting = {name: row[name] for name in ("pooling", "whitening", "transductive", "k", "backend")}
                figures = {name: known[name] for name in FIGURES}
                matches.append(
                    {**about, **setting, "published": figures, "ours": {name: row[name] for name in FIGURES}}
                )
    return matches
