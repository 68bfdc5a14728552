"""Tables over several runs, for `eval.tables`: codes over tasks, rules for γ over encoders, maps between encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from eval.report import Run, Table
from eval.report.results import SIGNIFICANT, CodeRow, CodesHeader, Estimate, UpgradeHeader, UpgradeRow
from jaxwhiten.whitening import is_spread

_CODE = "spectrum"
_LITTLE = 0.5  # points
# Of a normal distribution: 95% of one side and of both, and the power of 80% that a detectable loss is found with.
_ONE, _BOTH, _POWER = 1.645, 1.96, 0.842
CodesRun = Run[CodesHeader, CodeRow]


def tasks_table(runs: Sequence[CodesRun]) -> Table:
    """The difference of the spectrum code to float32 by task, fit and size, and the smallest size that is enough.

    A run is a search; where it has them, STS on decoded vectors and labels of decoded pairs are tasks of their own. A
    size is enough where the one-sided 95% bound of the loss is below half a point. Where no size is, and the largest
    may be, the sample cannot tell: the smallest loss that it detects is named.
    """
    sizes = sorted(set.intersection(*({row.bytes for row in run.rows if row.code == _CODE} for run in runs)))
    cells = []
    for run in runs:
        raw = run.rows[0]
        tasks: dict[str, tuple[float, Callable[[CodeRow], Estimate | None]]] = {}
        if not raw.sts:
            tasks[run.header.dataset.name] = 100 * raw.mrr_at_10, lambda row: row.versus_raw
        else:
            tasks["STS"] = raw.sts, lambda row: row.sts_versus_raw
        for name, right in (raw.accuracy or {}).items():
            tasks[f"labels of {name}"] = right.value, lambda row, name=name: (row.accuracy_versus_raw or {}).get(name)
        for task, (value, difference) in tasks.items():
            for fit in dict.fromkeys(row.whitening for row in run.rows[1:]):
                rows = {row.bytes: row for row in run.rows if (row.whitening, row.code) == (fit, _CODE)}
                found = {size: difference(rows[size]) for size in sizes if size in rows}
                gamma = ", ".join(f"{gamma:g}" for gamma in dict.fromkeys(row.gamma for row in rows.values()))
                shown = [f"{e.value:+.2f}{e.mark}" if (e := found.get(size)) else "" for size in sizes]
                cells.append([task, fit, gamma, f"{value:.2f}", *shown, _enough(found)])
    heads = ["task", "fitted on", "γ", "float32", *(f"{size} B" for size in sizes), "enough"]
    caption = f"{runs[0].header.model}: difference to float32, in points. {SIGNIFICANT}: its interval leaves out 0."
    return Table(heads, cells, 2, caption)


def _enough(found: dict[int, Estimate | None]) -> str:
    """The smallest size whose loss is surely below half a point, or why there is none."""
    known = {size: estimate for size, estimate in found.items() if estimate}
    enough = [size for size, e in known.items() if e.value - (e.value - e.low) * _ONE / _BOTH > -_LITTLE]
    if enough or not known:
        return f"{min(enough)}" if enough else ""
    last = known[max(known)]
    detected = (_ONE + _POWER) * (last.high - last.low) / (2 * _BOTH)
    return f"cannot tell below {detected:.1f}" if last.high > -_LITTLE else "none"


def rivals_table(runs: Sequence[CodesRun]) -> Table:
    """The difference of every code to float32 by encoder, task and size; a code of fewer bytes stands at the next size.

    Codes are those that are fitted on the documents, and those that have no fit.
    """
    sizes = sorted(set.intersection(*({row.bytes for row in run.rows if row.code == _CODE} for run in runs)))
    cells = []
    for run in runs:
        found: dict[str, dict[int, str]] = {}
        for row in run.rows[1:]:
            size = next((size for size in sizes if row.bytes <= size), None)
            if size is not None and row.versus_raw is not None and row.whitening in ("documents", "none"):
                found.setdefault(row.code, {})[size] = f"{row.versus_raw.value:+.2f}{row.versus_raw.mark}"
        task, raw = run.header.dataset.name, f"{100 * run.rows[0].mrr_at_10:.2f}"
        cells += [[task, raw, code, *(shown.get(size, "") for size in sizes)] for code, shown in found.items()]
    heads = ["task", "float32", "code", *(f"{size} B" for size in sizes)]
    caption = f"{runs[0].header.model}: difference to float32, in points. {SIGNIFICANT}: its interval leaves out 0."
    return Table(heads, cells, 3, caption)


RULES: dict[str, Callable[[CodesHeader], float]] = {
    "γ = 0": lambda header: 0.0,
    "0.25": lambda header: 0.25,
    "0.5": lambda header: 0.5,
    "1": lambda header: 1.0,
    "rule": lambda header: 0.25 if is_spread(header.participation_ratio or 0.0, header.dimension) else 1.0,
}


def regrets(run: CodesRun) -> dict[str, list[float]]:
    """By rule, the loss of each size against the best γ of the run, × 100; between measured γ by interpolation."""
    rows = [row for row in run.rows if row.code == _CODE]
    sizes = sorted({row.bytes for row in rows})
    found: dict[str, list[float]] = {name: [] for name in RULES}
    for size in sizes:
        of_size = sorted((row for row in rows if row.bytes == size), key=lambda row: row.gamma or 0.0)
        gammas, scores = ([getattr(row, name) for row in of_size] for name in ("gamma", "mrr_at_10"))
        for name, rule in RULES.items():
            reached = np.interp(rule(run.header), gammas, scores)
            found[name].append(100 * float(max(scores) - reached))
    return found


def _who(run: CodesRun) -> str:
    return f"{run.header.model.rpartition('/')[2]}, {run.header.config['pooling']}"


def _shown(worst: Sequence[dict[str, float]]) -> list[str]:
    return [f"{max(lost[rule] for lost in worst):.2f} ({fmean(lost[rule] for lost in worst):.2f})" for rule in RULES]


def regret_summary_table(runs: Sequence[CodesRun]) -> Table:
    """The largest and the mean regret of each rule for γ by encoder, over its corpora with the worst size of each."""
    found: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        worst = {name: max(lost) for name, lost in regrets(run).items()}
        found.setdefault(_who(run), []).append(worst)
    cells = [[who, f"{len(worst)}", *_shown(worst)] for who, worst in found.items()]
    total = [lost for worst in found.values() for lost in worst]
    cells.append(["all", f"{len(total)}", *_shown(total)])
    caption = "Points of MRR@10 lost against the best γ of the same encoder, corpus and size: the largest (the mean)."
    return Table(["encoder", "corpora", *RULES], cells, 1, caption)


UpgradeRun = Run[UpgradeHeader, UpgradeRow]


def _pairs(runs: Sequence[UpgradeRun]) -> list[tuple[str, str, list[UpgradeRow]]]:
    """The rows of each search and pair of encoders."""
    found: dict[tuple[str, str], list[UpgradeRow]] = {}
    for run in runs:
        for row in run.rows:
            found.setdefault((run.header.dataset.name, f"{row.model} → {row.new}"), []).append(row)
    return [(*names, rows) for names, rows in found.items()]


def _points(row: UpgradeRow) -> str:
    return f"{100 * row.mrr_at_10:.2f}{row.versus_stay.mark if row.versus_stay else ' '}".strip()


def upgrade_table(runs: Sequence[UpgradeRun]) -> Table:
    """Each way from one encoder to another, with maps from the most pairs; the old index's recall, and advice."""
    cells, heads = [], list[str]()
    for data, pair, rows in _pairs(runs):
        most = max(row.n_fit for row in rows)
        ways = {row.method: row for row in rows if row.n_fit in (0, most) and not row.candidates}
        reads = [row for row in rows if row.candidates]
        shown = [name for name in ways if name != "everything" and "isotrieve" not in name] + ["everything"]
        heads = ["data", "old → new", *shown[:-1], *(f"on read, {row.candidates}" for row in reads), shown[-1]]
        heads += [f"old recall@{row.candidates}" for row in reads[-1:]]
        heads += [f"texts per query, {row.candidates}" for row in reads[-1:]] + ["advice"]
        run = next(run for run in runs if run.header.dataset.name == data)
        told = [f"{row.old_recall or 0:.3f}" for row in reads[-1:]] + [f"{row.embedded or 0:.1f}" for row in reads[-1:]]
        figures = [_points(row) for row in (*(ways[name] for name in shown[:-1]), *reads, ways[shown[-1]])]
        cells.append([data, pair, *figures, *told, run.header.advice[pair].partition(":")[0].partition(" (")[0]])
    caption = f"MRR@10 x 100. {SIGNIFICANT}: its difference to staying has an interval that leaves out 0."
    return Table(heads, cells, 2, caption)


VIEWS: dict[str, Callable[[Sequence[Any]], Table]] = {
    "tasks_table": tasks_table,
    "rivals_table": rivals_table,
    "regret_summary_table": regret_summary_table,
    "upgrade_table": upgrade_table,
}
