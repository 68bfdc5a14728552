"""Plots of the commands, drawn by matplotlib without a display."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import unknown_name

if TYPE_CHECKING:
    from jaxwhiten.tuning import Tuning

# Okabe and Ito's colours, which stay apart for colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
}


def check_plot(path: str | None) -> None:
    """Refuses another ending than .png, before anything is computed."""
    if path is not None and Path(path).suffix.lower() != ".png":
        raise unknown_name(f"ending of the plot {path}:", Path(path).suffix, [".png"])


def _save(figure: Any, path: str) -> None:
    with io.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _k_axis(axis: Any, ks: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(ks, [str(k) for k in ks])
    axis.minorticks_off()
    axis.set_xlabel("dimension k")


def plot_spectrum(eigenvalues: np.ndarray, k: int, title: str, path: str) -> None:
    """Eigenvalues relative to their mean, and the variance held by the first k.

    Args:
      eigenvalues: Descending.
      k: The number of directions to mark.
      title: Above the plot.
      path: PNG file to write.
    """
    import matplotlib
    from matplotlib.figure import Figure

    relative = eigenvalues / eigenvalues.mean()
    shown = relative[relative > 1e-12]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.4, 3.4), dpi=150, layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(np.arange(1, len(shown) + 1), shown, lw=1.6, color=_COLOURS[0])
        left.axhline(1, color="#777777", lw=1, ls="--")
        left.set(yscale="log", xlabel="direction", ylabel="eigenvalue / mean eigenvalue", title="Spectrum")
        share = 100 * np.cumsum(relative) / relative.sum()
        right.plot(np.arange(1, len(share) + 1), share, lw=1.6, color=_COLOURS[0])
        right.axvline(k, color="#777777", lw=1, ls=":")
        right.annotate(f"k={k}", (k, 3), rotation=90, ha="right", va="bottom", color="#555555")
        right.set(xlabel="directions kept", ylabel="variance held, %", ylim=(0, 102), title="Explained variance")
        figure.suptitle(title, fontsize=10)
        _save(figure, path)


def plot_tuning(tuning: Tuning, title: str, path: str) -> None:
    """Score against k, one panel a β, one line a γ; thin lines are the held-out pairs.

    Args:
      tuning: What `tune` found.
      title: Above the plot.
      path: PNG file to write.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = tuning.rows
    betas, gammas = sorted({row.beta for row in rows}), sorted({row.gamma for row in rows})
    ks = sorted({row.n_components for row in rows})
    held = tuning.baseline.held_out is not None
    across = min(3, len(betas))
    down = math.ceil(len(betas) / across)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(5.0, 3.4 * across), 3.0 * down + 0.9), dpi=150, layout="constrained")
        axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
        for axis, beta in zip(axes, betas, strict=False):
            for gamma, colour in zip(gammas, _COLOURS * len(gammas), strict=False):
                line = sorted((r for r in rows if (r.beta, r.gamma) == (beta, gamma)), key=lambda r: r.n_components)
                x = [r.n_components for r in line]
                axis.plot(x, [r.score for r in line], marker="o", ms=3, lw=1.5, color=colour, label=f"γ={gamma:g}")
                if held:
                    axis.plot(x, [r.held_out for r in line], lw=0.8, ls="--", color=colour)
            axis.axhline(tuning.baseline.score, color="#555555", lw=1.2, ls=":", label="not whitened")
            axis.set_title(f"β={beta:g}")
            _k_axis(axis, ks)
        for axis in axes[len(betas) :]:
            axis.set_visible(False)
        axes[0].set_ylabel("Spearman × 100")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        figure.suptitle(title + (" (dashed: held out)" if held else ""), fontsize=10)
        _save(figure, path)
