"""The style of all plots: colours, grid, axes. Figures need no display; files are written atomically."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jaxwhiten import io
from jaxwhiten.errors import optional

# Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555", "#56B4E9", "#E69F00", "#000000")
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


@contextlib.contextmanager
def new_figure(path: io.PathLike, width: float, height: float, **style: Any) -> Iterator[Any]:
    """An empty matplotlib figure of this size in inches; after the block it is written atomically as a PNG."""
    matplotlib = optional("matplotlib", "eval", "Drawing a plot")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE | style), io.atomic_path(path) as temporary:
        figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
        yield figure
        figure.savefig(temporary, format="png")


@contextlib.contextmanager
def new_panels(path: io.PathLike, titles: Sequence[str]) -> Iterator[tuple[Any, list[Any]]]:
    """`new_figure` with a panel for each title, two side by side; the figure and its axes, which share the scores."""
    across = min(2, len(titles))
    down = math.ceil(len(titles) / across)
    with new_figure(path, max(6.4, 3.6 * across), 3.2 * down + 1.1) as figure:
        axes = list(figure.subplots(down, across, sharey=True, squeeze=False).ravel())
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
    locator = ticker.LogLocator(subs=(1.0, 2.0, 5.0)) if high > 10 * low else ticker.MaxNLocator(6, steps=[1, 2, 5, 10])
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.xaxis.set_minor_locator(ticker.NullLocator())
