"""Plots of runs of `eval.sts`, and an axis that others use, too."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval.aggregates import scores_of
from eval.plotting import COLORS, new_figure
from eval.runs import Record, Run
from eval.settings import knobs, label, symbols
from jaxwhiten import io


@contextlib.contextmanager
def new_panels(path: io.PathLike, titles: Sequence[str]) -> Iterator[tuple[Any, list[Any]]]:
    """`new_figure` with a panel for each title, two side by side; the figure and its axes, which share the scores."""
    across = min(2, len(titles))
    n_rows = math.ceil(len(titles) / across)
    with new_figure(path, max(6.4, 3.6 * across), 3.2 * n_rows + 1.1) as figure:
        axes = list(figure.subplots(n_rows, across, sharey=True, squeeze=False).ravel())
        for axis, title in zip(axes, titles, strict=False):
            axis.set_title(title)
        for axis in axes[len(titles) :]:
            axis.set_visible(False)
        yield figure, axes


def scale_k(axis: Any, ks: Sequence[int]) -> None:
    """Makes the horizontal axis an axis of dimensions, with a tick at each of `ks`."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.minorticks_off()
    axis.set_xlabel("dimension k")


def scale_amounts(axis: Any) -> None:
    """Makes the horizontal axis logarithmic with plain numbers as ticks, even if the data span less than a decade.

    To be called after everything is drawn.
    """
    from matplotlib import ticker

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    if high > 10 * low:
        locator = ticker.LogLocator(subs=(1.0, 2.0, 5.0))
    else:
        locator = ticker.MaxNLocator(6, steps=[1, 2, 5, 10])
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.xaxis.set_minor_locator(ticker.NullLocator())


def _title_end(run: Run) -> str:
    return " (sample, not a benchmark)" * bool(run.header.sample)


def plot_scores(run: Run, path: Path) -> Path | None:
    """Average score against k, one panel per whitening, one line per pooling.

    A whitening at one k makes no panel; None where no panel is left.
    """
    tasks = run.header.tasks
    aggregate = run.header.aggregate
    raw = [row for row in run.rows if row.whitening == "none"]
    panels: dict[str, list[Record]] = {}
    for row in run.rows:
        if symbols(row):
            panels.setdefault(label(row) + knobs(row), []).append(row)
    panels = {name: rows for name, rows in panels.items() if len({row.k for row in rows}) > 1}
    if not panels:
        return None
    poolings = list(dict.fromkeys(row.pooling for row in run.rows if row.whitening == "none" or symbols(row)))
    colors = {pooling: COLORS[i % len(COLORS)] for i, pooling in enumerate(poolings)}
    with new_panels(path, list(panels)) as (figure, axes):
        from matplotlib.lines import Line2D

        for axis, rows in zip(axes, panels.values(), strict=False):
            for pooling in poolings:
                points = sorted((row.k, scores_of(row, aggregate)["average"]) for row in rows if row.pooling == pooling)
                axis.plot(*zip(*points, strict=True), marker="o", ms=4, lw=1.6, color=colors[pooling])
            for row in raw:
                axis.axhline(scores_of(row, aggregate)["average"], ls=":", lw=1.2, color=colors[row.pooling])
            scale_k(axis, sorted({row.k for of_panel in panels.values() for row in of_panel}))
        for axis in axes[::2]:
            axis.set_ylabel(f"Spearman × 100 ({aggregate})")
        averaged = f"average of {len(tasks)} tasks"
        if len(tasks) == 1:
            averaged = tasks[0]
        figure.suptitle(f"{run.header.model}\n{averaged}{_title_end(run)}", fontsize=10)
        handles = [Line2D([], [], color=colors[p], marker="o", ms=4, lw=1.6, label=p) for p in poolings]
        if raw:
            handles.append(Line2D([], [], color="#777777", ls=":", lw=1.2, label="not whitened"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
    return path
