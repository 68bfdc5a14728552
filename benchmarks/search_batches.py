"""Full scans by FAISS in float32, by jaxwhiten's codes, and by codes of others, in calls of one query and of many.

    python -m benchmarks.search_batches [--documents 10000,100000,1000000] [--rounds 5]

The documents are normal vectors of unit length, whose variances fall as those of an encoder: how many bytes of a code a
scan reads depends on that. `recall` is that of float32's first ten. Calls follow each other until 16 queries are
answered; `ms_after_a_pause` is that of a single query, when the processor's caches hold something else. Packages that
are not installed are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.contestants import FLOATS, indexes
from benchmarks.harness import OURS, figure, interleave, median, ratio, table, times
from configs.settings import Config, setting
from eval.plotting import COLORS, new_figure
from eval.report import Table
from eval.runs import Record, Run
from jaxwhiten import metrics, normalize

WIDTH = 384
# Standard deviations. The first 32, 64, 128 and 192 directions have 0.35, 0.55, 0.77 and 0.88 of the variance; those of
# all-MiniLM-L6-v2 on 150,000 sentences of Wikipedia have 0.36, 0.53, 0.75 and 0.88.
SCALE = np.exp(-((np.arange(WIDTH, dtype=np.float32) / 50) ** 0.7) / 2)
K = 10
BATCHES = (1, 2, 16, 256, 1024)
QUERIES = 16  # of a run, at least
SCORED = 256  # queries whose recall is measured
_SECONDS = 20  # that a contestant may take for one call; slower ones are left out of larger calls


@dataclass(slots=True)
class Batches(Config):
    """The settings of benchmarks.search_batches."""

    documents: str = setting("10000,100000,1000000", "numbers of them")
    bytes: str = setting("24,48,96", "sizes of a code")
    rounds: int = setting(5, "of each contestant")


def documents(rows: int, seed: int = 0) -> np.ndarray:
    """Normal vectors of unit length."""
    x = np.random.default_rng(seed).standard_normal((rows, WIDTH), dtype=np.float32)
    return normalize(x * SCALE)


def calls(index: Any, queries: np.ndarray, batch: int) -> None:
    """Searches in calls of so many queries."""
    for start in range(0, max(batch, QUERIES), batch):
        index.search(queries[start : start + batch], K)


def measure(config: Batches) -> Iterator[harness.Row]:
    """Every number of documents, size of a code and number of queries in a call."""
    queries = documents(max(BATCHES), seed=1)
    for count in map(int, config.documents.split(",")):
        x = documents(count)
        for size in map(int, config.bytes.split(",")):
            contestants = indexes(x, size)
            found = {name: index.search(queries[:SCORED], K)[1] for name, index in contestants.items()}
            for batch in BATCHES:
                runs = {name: functools.partial(calls, index, queries, batch) for name, index in contestants.items()}
                single = {name: functools.partial(index.search, queries[:1], K) for name, index in contestants.items()}
                seconds = interleave(runs, config.rounds)
                paused = interleave(single, config.rounds) if batch == 1 else {}
                for name, series in seconds.items():
                    row = {
                        "documents": count,
                        "bytes": size,
                        "queries": batch,
                        "index": name,
                        "recall": float(metrics.recalls(found[name], list(found[FLOATS]), K).mean()),
                        "ms_a_query": 1000 * median(series) / max(batch, QUERIES),
                        "speed_to_float32": ratio(seconds, name, FLOATS),
                        "speed_to_ours": ratio(seconds, name, OURS),
                    }
                    yield row | ({"ms_after_a_pause": 1000 * median(paused[name])} if paused else {})
                slow = {name for name, series in seconds.items() if median(series) * 4 > _SECONDS} - {FLOATS, OURS}
                contestants = {name: index for name, index in contestants.items() if name not in slow}


def batches_table(run: Run) -> Table:
    """Full scans by float32 and by codes: what they find, and how long a query takes by queries in a call."""
    batches = list(dict.fromkeys(row.queries for row in run.rows))
    by_index: dict[tuple[int, int, str], dict[int, Record]] = {}
    for row in run.rows:
        by_index.setdefault((row.documents, row.bytes, row["index"]), {})[row.queries] = row
    rows = [
        Record(next(iter(by_batch.values())), one=by_batch[batches[0]], by=by_batch) for by_batch in by_index.values()
    ]
    columns = {"documents": lambda row: f"{row.documents:,}", "bytes": "bytes", "index": "index"}
    columns["recall@10"] = figure("recall", 3)
    if "ms_after_a_pause" in run.rows[0]:
        columns["1 after a pause, ms"] = lambda row: f"{row.one.ms_after_a_pause:,.3f}"
    for batch in batches:
        columns[f"{batch:,} a call, ms"] = lambda row, batch=batch: _milliseconds(row.by.get(batch))
    columns["one query, float32 ÷ it"] = lambda row: times(row.one.speed_to_float32)
    return table(run, columns, 3, rows)


def _milliseconds(row: Record | None) -> str:
    if row is None:
        return ""
    return f"{row.ms_a_query:,.3f}"


TABLES = {"batches_table": batches_table}
DRAWN = 1_000_000  # documents
TICKS = (0.3, 1, 3, 10, 30, 100)


def draw(run: Run, path: Path) -> Path:
    """Recall against the time of a query, in calls of one and in the largest ones; points have their bytes."""
    panels = {BATCHES[0]: "one query a call", BATCHES[-1]: f"{BATCHES[-1]:,} queries a call"}
    rows = [row for row in run.rows if row.documents == DRAWN]
    names = sorted({row["index"] for row in rows}, key=lambda name: (name != OURS, name))
    with new_figure(path, 8.6, 3.6) as drawing:
        axes = drawing.subplots(1, len(panels), sharey=True)
        for axis, (batch, title) in zip(axes, panels.items(), strict=True):
            for name, color in zip(names, COLORS, strict=False):
                points = [row for row in rows if (row["index"], row.queries) == (name, batch)]
                milliseconds = [row.ms_a_query for row in points]
                axis.plot(
                    milliseconds, [row.recall for row in points], marker="o", ms=5, lw=1.6, color=color, label=name
                )
                for row in points:
                    if name != FLOATS:
                        place = (row.ms_a_query, row.recall)
                        axis.annotate(
                            str(row.bytes), place, (0, 5), textcoords="offset points", color=color, ha="center"
                        )
            axis.set(xscale="log", ylim=(0, 1.1), xlabel="ms a query", title=title)
            low, high = axis.get_xlim()
            axis.set_xticks([tick for tick in TICKS if low < tick < high])
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
        axes[0].set(ylabel="recall@10 of float32's ten")
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    return path


if __name__ == "__main__":
    harness.run(measure, Batches)
