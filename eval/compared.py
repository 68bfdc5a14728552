"""Tables over several runs of `eval.codes`, for `eval.tables`: codes over tasks, and rules for γ over encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from jaxwhiten.report import Run, Table
from jaxwhiten.report.results import SIGNIFICANT, CodeRow, CodesHeader, Estimate
from jaxwhiten.whitening import SPREAD_OUT, TUNED

_CODE = "spectrum"
CodesRun = Run[CodesHeader, CodeRow]


def tasks_table(runs: Sequence[CodesRun]) -> Table:
    """The difference of the spectrum code to float32 by task, fit and size, and the smallest size that loses nothing.

    A run is a search; where it has them, STS on decoded vectors and labels of decoded pairs are tasks of their own. A
    size loses nothing where the upper end of the difference's interval is at least 0.
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
                enough = [size for size, estimate in found.items() if estimate and estimate.high >= 0]
                gamma = ", ".join(f"{gamma:g}" for gamma in dict.fromkeys(row.gamma for row in rows.values()))
                shown = [f"{e.value:+.2f}{e.mark}" if (e := found.get(size)) else "" for size in sizes]
                cells.append([task, fit, gamma, f"{value:.2f}", *shown, f"{min(enough)}" if enough else "none"])
    heads = ["task", "fitted on", "γ", "float32", *(f"{size} B" for size in sizes), "enough"]
    caption = f"{runs[0].header.model}: difference to float32, in points. {SIGNIFICANT}: its interval leaves out 0."
    return Table(heads, cells, 2, caption)


def _by_corpus(header: CodesHeader, row: CodeRow) -> float:
    return 0.5 if (row.isoscore or 0) > SPREAD_OUT else 1.0


def _by_encoder(tuned: float) -> Callable[[CodesHeader, CodeRow], float]:
    return lambda header, row: tuned if (header.isoscore or 0) > TUNED else 1.0


RULES: dict[str, Callable[[CodesHeader, CodeRow], float]] = {
    "γ = 0": lambda header, row: 0.0,
    "0.25": lambda header, row: 0.25,
    "0.5": lambda header, row: 0.5,
    "1": lambda header, row: 1.0,
    "SpecTemp": lambda header, row: row.spectemp or 0.0,
    "corpus: 0.5 or 1": _by_corpus,
    "encoder: 0.5 or 1": _by_encoder(0.5),
    "encoder: 0.25 or 1": _by_encoder(0.25),
    "encoder and corpus": lambda header, row: row.usual_gamma or 0.0,
}


def regrets(run: CodesRun) -> dict[str, list[float]]:
    """By rule, what each size loses against the best γ of the run, in points; between its γ by interpolation."""
    rows = [row for row in run.rows if row.code == _CODE]
    sizes = sorted({row.bytes for row in rows})
    found: dict[str, list[float]] = {name: [] for name in RULES}
    for size in sizes:
        of_size = sorted((row for row in rows if row.bytes == size), key=lambda row: row.gamma or 0.0)
        gammas, scores = ([getattr(row, name) for row in of_size] for name in ("gamma", "mrr_at_10"))
        for name, rule in RULES.items():
            told = of_size[len(of_size) // 2]
            reached = np.interp(rule(run.header, told), gammas, scores)
            found[name].append(100 * float(max(scores) - reached))
    return found


def regret_table(runs: Sequence[CodesRun]) -> Table:
    """What each rule for γ loses against the best γ of the same encoder, corpus and size: the largest of the sizes."""
    cells, worst = [], []
    for run in runs:
        header, told = run.header, next(row for row in run.rows if row.code == _CODE)
        found = {name: max(lost) for name, lost in regrets(run).items()}
        worst.append(found)
        who = f"{header.model.rpartition('/')[2]}, {header.config['pooling']}"
        isoscores = [f"{value:.3f}" for value in (header.isoscore, told.isoscore)]
        cells.append([who, header.dataset.name, *isoscores, *(f"{value:.2f}" for value in found.values())])
    for name, total in (("largest", max), ("mean", fmean)):
        cells.append([name, "", "", "", *(f"{total([found[rule] for found in worst]):.2f}" for rule in RULES)])
    heads = ["encoder", "corpus", "IsoScore, encoder", "IsoScore, corpus", *RULES]
    return Table(heads, cells, 2, "Points of MRR@10 lost against the best γ of the same row; the worst of the sizes.")


VIEWS: dict[str, Callable[[Sequence[CodesRun]], Table]] = {"tasks_table": tasks_table, "regret_table": regret_table}
