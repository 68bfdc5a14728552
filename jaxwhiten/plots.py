"""Plots of spectra, and the style of all plots. Figures need no display; files are written atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

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


def draw_spectra(path: io.PathLike, spectra: Mapping[str, np.ndarray], ks: Sequence[int], title: str) -> None:
    """Descending eigenvalues by name, relative to their mean, and the share of the variance of the first k."""
    with new_figure(path, 8.4, 3.7) as figure:
        first, right = figure.subplots(1, 2)
        shares: list[float] = []
        for (pooling, values), colour in zip(spectra.items(), COLOURS * 9, strict=False):
            share = np.maximum(values, 0) / values.sum()
            place = np.arange(1, len(share) + 1)
            positive = share * len(share) > 1e-5  # the others are rounding errors of a singular covariance
            first.plot(place[positive], share[positive] * len(share), lw=1.5, color=colour, label=pooling)
            shares.append(float(share[positive].min() * len(share)))
            right.plot(place, 100 * np.cumsum(share), lw=1.5, color=colour)
        first.axhline(1, color="#777777", lw=1, ls="--", label="after whitening (γ = 1)")
        first.set(yscale="log", ylim=(0.5 * min(shares), None), title="Spectrum")
        first.set(xlabel="component", ylabel="eigenvalue / mean eigenvalue")
        right.set(xlabel="components kept", ylabel="explained variance, %", ylim=(0, 102), title="Explained variance")
        for k in ks:
            right.axvline(k, color="#777777", lw=0.8, ls=":")
            right.annotate(f"k={k}", (k, 2), rotation=90, ha="right", va="bottom", fontsize=8, color="#555555")
        figure.suptitle(title, fontsize=10)
        figure.legend(loc="outside lower center", ncols=3)
