"""Published retrieval figures, and the rows of a run that are the same setting. The numbers lie in the CSV file."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.published import comparable, model_name, read_lines
from jaxwhiten.report import results

FIGURES = ("mrr_at_10", "time_ms", "memory_gib")


@dataclass(frozen=True)
class Setting:
    """What has to be the same; `nlist` and `nprobe` are None for an index without lists."""

    model: str
    pooling: str
    whitening: str
    k: int
    backend: str
    nlist: int | None
    nprobe: int | None
    dataset: str
    documents: int
    queries: int


@dataclass(frozen=True)
class Published:
    """One published row."""

    setting: Setting
    source: str
    citation: str
    machine: str
    figures: dict[str, float]


@functools.cache
def read() -> tuple[Published, ...]:
    """Every published row: its setting, its figures and where it comes from."""
    rows = []
    for about, line in read_lines(Path(__file__).parent):
        counts = {name: int(about[name]) for name in ("documents", "queries", "nlist", "nprobe")}
        words = {name: line[name] for name in ("model", "pooling", "whitening")}
        setting = Setting(**words, k=int(line["k"]), backend=about["backend"], dataset=about["dataset"], **counts)
        figures = {name: float(line[name]) for name in FIGURES}
        rows.append(Published(setting, about["source"], about["citation"], about["machine"], figures))
    return tuple(rows)


def compare(rows: Sequence[results.RetrievalRow], dataset: results.Dataset) -> tuple[results.PublishedFigures, ...]:
    """Published rows that are the same setting as a row of the run, with the run's figures beside.

    The same means: model (the last part of its name), pooling, whitening with β = γ = 1, k, backend with its `nlist`
    and `nprobe`, and the whole data set with its numbers of documents and queries.

    Args:
      rows: Rows of results.
      dataset: Name and numbers of documents and queries of the run.
    """
    matches = []
    for row in filter(comparable, rows):
        lists = (row.options.get("nlist"), row.options.get("nprobe"))
        searched = (dataset.name, dataset.documents, dataset.queries)
        setting = Setting(model_name(row), row.pooling, row.whitening, row.k, row.backend, *lists, *searched)
        ours = {name: getattr(row, name) for name in FIGURES}
        matches += [
            results.PublishedFigures(
                f"{row.name}, {row.backend}", known.source, known.citation, known.machine, known.figures, ours
            )
            for known in read()
            if known.setting == setting
        ]
    return tuple(matches)
