"""Views of runs of `eval.codes`: quality against bytes, of one run as a table and a plot, and tables over several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from eval.report import views
from eval.report.front import draw_quality
from eval.report.table import SIGNIFICANT, Columns, Table, bounds, figure, mark, number, table
from eval.runs import Record, Run
from jaxwhiten.whitening import is_spread

_CODE = "spectrum"
_COLUMNS: Columns = {
    "code": "code",
    "γ": figure("gamma", 2),
    "bytes": "bytes",
    "MRR@10 − raw": lambda row: bounds(row.versus_raw, signed=True),
    "MRR@10 − spectrum": lambda row: bounds(row.versus_spectrum, signed=True),
    "MRR@10": figure("mrr_at_10", 4),
    "nDCG@10": figure("ndcg_at_10", 4),
    "recall@10": figure("recall_at_10", 4),
    "of float32's ten": figure("float32_recall_at_10", 3),
    "rescored MRR@10": figure("rescored_mrr_at_10", 4),
    "build µs": figure("build_us", 1),
}
GAMMAS = (None, 0.0, 0.25, 0.5, 1.0)  # of the whitening before a code; None: unchanged vectors
RULE = "rule"


def figures_table(run: Run) -> Table:
    """All measurements, one line per code and size."""
    data = run.header.dataset
    protocol = run.header.protocol
    caption = (
        f"{data.name}: {data.documents:,} documents, {protocol['quality']}. {run.header.model}, at most"
        f" {protocol['max_length']} tokens. Rescored: {protocol['rescored'] or 'not run'}. build: fitting, coding and"
        " adding, per document."
    )
    return table(run.rows, _COLUMNS, 1, caption, key_columns=3)


def plot_codes(run: Run, path: Path) -> Path | None:
    """`draw_quality` of a run, of each code with the first γ; None without intervals, and for codes of one size."""
    if len({row.bytes for row in run.rows if row.versus_raw is not None}) < 2:
        return None
    first: dict[tuple[str, int], Record] = {}
    for row in run.rows:
        first.setdefault((row.code, row.bytes), row)
    return draw_quality({run.header.title: Run(run.header, [*first.values()])}, path)


_STORED = {
    ("float32", 1536): ("float32", "FAISS float32"),
    ("spectrum", 96): ("jaxwhiten", "jaxwhiten"),
    ("opq", 96): ("OPQ", None),
    ("turbovec", 96): ("turbovec", "turbovec"),
    ("pq", 96): ("PQ", "FAISS PQ, fast scan"),
    ("truncated", 96): ("Matryoshka", None),
    ("spectrum", 48): ("jaxwhiten", "jaxwhiten"),
    ("opq", 48): ("OPQ", None),
    ("turbovec", 48): ("turbovec", "turbovec"),
    ("rabitq", 48): ("RaBitQ", "rabitq"),
    ("ubinary", 48): ("binary", None),
}
_DOCUMENTS = 1_000_000  # of a search that is timed


def promise_table(*runs: Run) -> Table:
    """Means over runs of tasks, beside the speed of one query by a run of `benchmarks.search_batches`.

    Truncated vectors are those of the other encoder among the runs, which is trained for them.
    """
    tasks = [run for run in runs if run.header.program == "eval.codes"]
    (timed,) = (run for run in runs if run not in tasks)
    speeds = {
        (row.index, row.bytes): row.speed_to_float32.median
        for row in timed.rows
        if (row.documents, row.queries) == (_DOCUMENTS, 1)
    }
    cells = list[list[str]]()
    for (code, size), (name, index) in _STORED.items():
        of_encoder = [run for run in tasks if (run.header.model == tasks[0].header.model) == (code != "truncated")]
        rows = [row for run in of_encoder for row in run.rows if (row.code, row.bytes) == (code, size)]
        if not rows:
            continue
        agreement = "1.00"
        lost = "0.0"
        speed = "1"
        if code != "float32":
            agreement = number(float(np.mean([row.float32_recall_at_10 for row in rows])))
            lost = number(float(np.mean([row.versus_raw.value for row in rows])), 1)
            speed = number(speeds.get((index, size)), 0)
        cells.append([name, f"{size:,}", agreement, lost, speed])
    heads = ["stored", "bytes", "of float32's ten", "MRR@10 − float32, points", "times as fast"]
    return Table(heads, cells, 1)


def _sizes(runs: Sequence[Run]) -> list[int]:
    """The sizes of the spectrum code that all runs have."""
    return sorted(set.intersection(*({row.bytes for row in run.rows if row.code == _CODE} for run in runs)))


def _recall(row: Record) -> str:
    return "" if row.float32_recall_at_10 is None else f" {row.float32_recall_at_10:.3f}"


def tasks_table(*runs: Run) -> Table:
    """The difference of the spectrum code to float32 by search, γ and size, and the share of float32's first ten."""
    sizes = _sizes(runs)
    cells = []
    for run in runs:
        of_code = [row for row in run.rows if row.code == _CODE and row.whitening == "documents"]
        for gamma in dict.fromkeys(row.gamma for row in of_code):
            rows = {row.bytes: row for row in of_code if row.gamma == gamma}
            figures = [f"{rows[s].versus_raw.value:+.2f}{mark(rows[s].versus_raw)}{_recall(rows[s])}" for s in sizes]
            label = "none" if gamma is None else f"{gamma:g}"
            cells.append([run.header.dataset.name, label, f"{100 * run.rows[0].mrr_at_10:.2f}", *figures])
    heads = ["task", "γ", "float32", *(f"{size} B" for size in sizes)]
    caption = f"{runs[0].header.model}: difference to float32, in points. {SIGNIFICANT}: its interval leaves out 0."
    return Table(heads, cells, 2, caption)


def rivals_table(*runs: Run) -> Table:
    """The difference of every code to float32 by search, and the mean over the searches that all of its codes have.

    Every size is a row; a code of fewer bytes stands at the next size. Behind each difference stands the share of
    float32's first ten among the first ten.
    """
    sizes = _sizes(runs)
    tasks: dict[str, dict[tuple[int, str], Record]] = {}
    for run in runs:
        by_size = tasks.setdefault(f"{run.header.dataset.name}, {100 * run.rows[0].mrr_at_10:.2f}", {})
        for row in run.rows[1:]:
            size = next((size for size in sizes if row.bytes <= size), None)
            if size is not None and row.versus_raw is not None and row.whitening in ("documents", "none"):
                by_size[size, row.code] = row
    found = dict.fromkeys(code for by_size in tasks.values() for _, code in by_size)
    codes = [code for code in dict.fromkeys([_CODE, "scalar", *found]) if code in found]
    cells = [
        [task, f"{size}", *(_mean([by_size.get((size, code))]) for code in codes)]
        for task, by_size in tasks.items()
        for size in sizes
    ]
    for size in sizes:
        means = [_mean([by_size.get((size, code)) for by_size in tasks.values()]) for code in codes]
        cells.append(["mean", f"{size}", *means])
    caption = f"{runs[0].header.model}: difference to float32, in points."
    return Table(["task, float32", "bytes", *codes], cells, 1, caption)


def _mean(rows: Sequence[Record | None]) -> str:
    present = [row for row in rows if row is not None]
    recalls = [row.float32_recall_at_10 for row in present if row.float32_recall_at_10 is not None]
    if len(present) < len(rows):
        return "–"
    cell = f"{fmean(row.versus_raw.value for row in present):+.2f}"
    if len(recalls) == len(rows):
        cell += f" {fmean(recalls):.3f}"
    return cell


RULES: Mapping[str, Callable[[Run], float | None]] = {
    "unchanged": lambda _: None,
    **{f"γ = {gamma:g}": lambda _, gamma=gamma: gamma for gamma in GAMMAS if gamma is not None},
    RULE: lambda run: None if is_spread(run.header.participation_ratio or 0.0, run.header.dimension) else 1.0,
}


def regrets(run: Run) -> dict[float | None, list[float]]:
    """By γ, the loss of each size against the best γ of the run, × 100."""
    rows = [row for row in run.rows if row.code == _CODE]
    best: dict[int, float] = {}
    for row in rows:
        best[row.bytes] = max(best.get(row.bytes, 0.0), row.mrr_at_10)
    return {gamma: [100 * (best[row.bytes] - row.mrr_at_10) for row in rows if row.gamma == gamma] for gamma in GAMMAS}


def regret_table(*runs: Run) -> Table:
    """The mean and the largest regret of each whitening before a code by encoder, over its corpora and sizes."""
    regrets_of: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        pooling = run.header.arguments.pooling
        label = run.header.model.rpartition("/")[2] + f", {pooling}" * (pooling != "auto")
        lost = regrets(run)
        for name, rule in RULES.items():
            for line in (label, "all"):
                regrets_of.setdefault(line, {}).setdefault(name, []).extend(lost[rule(run)])
    cells = [
        [label, f"{len(of_rule[RULE])}", *(f"{fmean(x):.2f} ({max(x):.2f})" if x else "" for x in of_rule.values())]
        for label, of_rule in sorted(regrets_of.items(), key=lambda item: item[0] == "all")
    ]
    caption = "Points of MRR@10 lost against the best of the same encoder, corpus and size: the mean (the largest)."
    return Table(["encoder", "cells", *RULES], cells, 1, caption)


TABLES: dict[str, Callable[..., Table]] = {
    view.__name__: view for view in (figures_table, promise_table, tasks_table, rivals_table, regret_table)
}
VIEWS = views.Views(
    {"Quality against bytes": figures_table},
    {"quality_by_bytes.png": (plot_codes, "Quality of search against bytes per vector")},
)
