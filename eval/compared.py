"""Tables over several runs of `eval.codes`: codes over tasks, and whitenings before codes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from statistics import fmean

from eval.report.table import SIGNIFICANT, Table, mark
from eval.runs import Record, Run
from jaxwhiten.whitening import is_spread

_CODE = "spectrum"
_LITTLE = 0.5  # points
# Of a normal distribution: 95% of one side and of both, and the power of 80% that a detectable loss is found with.
_ONE = 1.645
_BOTH = 1.96
_POWER = 0.842


def tasks_table(*runs: Run) -> Table:
    """The difference of the spectrum code to float32 by task, fit and size, and the smallest size that is enough.

    A run is a search; where it has them, STS on decoded vectors and labels of decoded pairs are tasks of their own.
    Every γ of a whitening before the code has a line. Behind the difference of a search stands the share of float32's
    first ten among the first ten.

    A size is enough where the one-sided 95% bound of the loss is below half a point. Where no size is, and the largest
    may be, the sample cannot tell: the smallest loss that it detects is named.
    """
    sizes = sorted(set.intersection(*({row.bytes for row in run.rows if row.code == _CODE} for run in runs)))
    cells = []
    for run in runs:
        raw = run.rows[0]
        tasks: dict[str, tuple[float, Callable[[Record], Record | None]]] = {}
        if not raw.sts:
            tasks[run.header.dataset.name] = 100 * raw.mrr_at_10, lambda row: row.versus_raw
        else:
            tasks["STS"] = raw.sts, lambda row: row.sts_versus_raw
        for name, right in (raw.accuracy or {}).items():
            tasks[f"labels of {name}"] = right.value, lambda row, name=name: (row.accuracy_versus_raw or {}).get(name)
        for task, (value, difference) in tasks.items():
            for fit, gamma in dict.fromkeys((row.whitening, row.gamma) for row in run.rows if row.code == _CODE):
                rows = {row.bytes: row for row in _rows(run) if (row.whitening, row.gamma) == (fit, gamma)}
                differences = {size: difference(rows[size]) for size in sizes if size in rows}
                searched = task == run.header.dataset.name
                figures = []
                for size in sizes:
                    e = differences.get(size)
                    figures.append("")
                    if e:
                        figures[-1] = f"{e.value:+.2f}{mark(e)}" + _recall(rows[size]) * searched
                cells.append([task, fit, _of_gamma(gamma), f"{value:.2f}", *figures, _sufficient(differences)])
    heads = ["task", "fitted on", "γ", "float32", *(f"{size} B" for size in sizes), "enough"]
    caption = f"{runs[0].header.model}: difference to float32, in points. {SIGNIFICANT}: its interval leaves out 0."
    return Table(heads, cells, 2, caption)


def _of_gamma(gamma: float | None) -> str:
    if gamma is None:
        return "none"
    return f"{gamma:g}"


def _recall(row: Record) -> str:
    if row.float32_recall_at_10 is None:
        return ""
    return f" {row.float32_recall_at_10:.3f}"


def _sufficient(differences: dict[int, Record | None]) -> str:
    """The smallest size whose loss is surely below half a point, or why there is none."""
    estimates = {size: estimate for size, estimate in differences.items() if estimate}
    sizes = [size for size, e in estimates.items() if e.value - (e.value - e.low) * _ONE / _BOTH > -_LITTLE]
    if not estimates:
        return ""
    if sizes:
        return f"{min(sizes)}"
    last = estimates[max(estimates)]
    detected = (_ONE + _POWER) * (last.high - last.low) / (2 * _BOTH)
    if last.high > -_LITTLE:
        return f"cannot tell below {detected:.1f}"
    return "none"


def rivals_table(*runs: Run, fit: str = "documents") -> Table:
    """The difference of every code to float32 by task, and the mean over the tasks that all of its codes have.

    Every size of a task is a row. Codes are those of that `fit`, and those that have no fit; one of fewer bytes
    stands at the next size. A row of a later run of the same task takes the place of an earlier one. The arrows are
    those of the paired difference to the spectrum code, whose expected loss of variance, in per cent, stands beside its
    bound. Behind each difference stands the share of float32's first ten among the first ten.
    """
    sizes = sorted(set.intersection(*({row.bytes for row in run.rows if row.code == _CODE} for run in runs)))
    tasks: dict[str, dict[tuple[int, str], Record]] = {}
    for run in runs:
        by_size = tasks.setdefault(f"{run.header.dataset.name}, {100 * run.rows[0].mrr_at_10:.2f}", {})
        for row in run.rows[1:]:
            size = next((size for size in sizes if row.bytes <= size), None)
            if size is not None and row.versus_raw is not None and row.whitening in (fit, "none"):
                by_size[size, row.code] = row
    codes = list(dict.fromkeys([_CODE, "scalar", *(code for by_size in tasks.values() for _, code in by_size)]))
    codes = [code for code in codes if any(code == name for by_size in tasks.values() for _, name in by_size)]
    cells = [
        [task, f"{size}", _lost(by_size[size, _CODE]), *(_loss_cell(by_size.get((size, code))) for code in codes)]
        for task, by_size in tasks.items()
        for size in sizes
    ]
    for size in sizes:
        means = [_mean([by_size.get((size, code)) for by_size in tasks.values()]) for code in codes]
        cells.append(["mean", f"{size}", "", *means])
    caption = (
        f"{runs[0].header.model}: difference to float32, in points. {_MARKS[1]} and {_MARKS[-1]}: the interval of the"
        " paired difference to the spectrum code leaves out 0."
    )
    return Table(["task, float32", "bytes", "lost/bound", *codes], cells, 1, caption)


_MARKS = {1: "↑", 0: "", -1: "↓"}


def _mean(rows: Sequence[Record | None]) -> str:
    present = [row for row in rows if row is not None]
    differences = [row.versus_raw.value for row in present if row.versus_raw is not None]
    recalls = [row.float32_recall_at_10 for row in present if row.float32_recall_at_10 is not None]
    if len(differences) < len(rows):
        return "–"
    cell = f"{fmean(differences):+.2f}"
    if len(recalls) == len(rows):
        cell += f" {fmean(recalls):.3f}"
    return cell


def _loss_cell(row: Record | None) -> str:
    if row is None or row.versus_raw is None:
        return "–"
    difference = row.versus_raw
    if row.code == _CODE:
        return f"{difference.value:+.2f}±{(difference.high - difference.low) / 2:.2f}{_recall(row)}"
    versus = row.versus_spectrum or Record(low=0, high=0)
    mark = _MARKS[int(versus.low > 0) - int(versus.high < 0)]
    return f"{difference.value:+.2f}{mark}{_recall(row)}"


def _lost(row: Record) -> str:
    if row.distortion is None:
        return ""
    return f"{100 * row.distortion:.1f}/{100 * (row.bound or 0.0):.1f}"


GAMMAS = (None, 0.0, 0.25, 0.5, 1.0)  # of the whitening before a code; None: unchanged vectors
RULE = "rule"


def _rows(run: Run) -> list[Record]:
    return [row for row in run.rows if row.code == _CODE]


def _tuned(run: Run) -> bool:
    return is_spread(run.header.participation_ratio or 0.0, run.header.dimension)


RULES: dict[str, Callable[[Run], float | None]] = {
    "unchanged": lambda _: None,
    **{f"γ = {gamma:g}": lambda _, gamma=gamma: gamma for gamma in GAMMAS if gamma is not None},
    RULE: lambda run: None if _tuned(run) else 1.0,
}


def regrets(run: Run) -> dict[float | None, list[float]]:
    """By γ, the loss of each size against the best γ of the run, × 100."""
    best: dict[int, float] = {}
    for row in _rows(run):
        best[row.bytes] = max(best.get(row.bytes, 0.0), row.mrr_at_10)
    return {
        gamma: [100 * (best[row.bytes] - row.mrr_at_10) for row in _rows(run) if row.gamma == gamma] for gamma in GAMMAS
    }


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
    "tasks_table": tasks_table,
    "rivals_table": rivals_table,
    "outside_table": functools.partial(rivals_table, fit="outside"),
    "regret_table": regret_table,
}
