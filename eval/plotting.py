"""The style of all plots. Figures need no display; files are written atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxwhiten import io
from jaxwhiten.errors import optional

# Okabe and Ito's colors, which color-blind readers can distinguish.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555", "#56B4E9", "#E69F00", "#000000")
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
