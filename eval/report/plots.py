"""The plot of runs of `eval.sts`."""

from __future__ import annotations

import itertools
from pathlib import Path

from eval.aggregates import scores_of
from eval.plotting import COLORS, new_figure
from eval.runs import Record, Run
from eval.settings import knobs, label, symbols


def plot_scores(run: Run, path: Path) -> Path | None:
    """Average score against k, one panel per whitening, one line per pooling.

    A whitening at one k makes no panel; None where no panel is left.
    """
    aggregate = run.header.aggregate
    raw = [row for row in run.rows if row.whitening == "none"]
    panels: dict[str, list[Record]] = {}
    for row in run.rows:
        if symbols(row):
            panels.setdefault(label(row) + knobs(row), []).append(row)
    panels = {name: rows for name, rows in panels.items() if len({row.k for row in rows}) > 1}
    if not panels:
        return None
    poolings = dict.fromkeys(row.pooling for row in run.rows if row.whitening == "none" or symbols(row))
    colors = dict(zip(poolings, itertools.cycle(COLORS), strict=False))
    ks = sorted({row.k for rows in panels.values() for row in rows})
    with new_figure(path, max(6.4, 3.6 * len(panels)), 4.3) as figure:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (name, rows) in zip(axes, panels.items(), strict=True):
            for pooling, color in colors.items():
                points = sorted((row.k, scores_of(row, aggregate)["average"]) for row in rows if row.pooling == pooling)
                axis.plot(*zip(*points, strict=True), marker="o", ms=4, lw=1.6, color=color, label=pooling)
            for row in raw:
                axis.axhline(scores_of(row, aggregate)["average"], ls=":", lw=1.2, color=colors[row.pooling])
            axis.set_title(name)
            axis.set_xscale("log", base=2)
            axis.set_xticks(ks, [str(k) for k in ks])
            axis.minorticks_off()
            axis.set_xlabel("dimension k; dotted: not whitened")
        axes[0].set_ylabel(f"Spearman × 100 ({aggregate})")
        sample = " (sample, not a benchmark)" * bool(run.header.sample)
        figure.suptitle(f"{run.header.model}\naverage of {len(run.header.tasks)} tasks{sample}", fontsize=10)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(3, len(poolings)))
    return path
