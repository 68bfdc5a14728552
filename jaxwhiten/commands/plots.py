"""Plots of the commands, drawn by matplotlib without a display."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxwhiten.errors import unknown_name
from jaxwhiten.report.style import COLOURS, new_figure, scale_k

if TYPE_CHECKING:
    from jaxwhiten.whitening import Tuning


def check_plot(path: str | None) -> None:
    """Refuses another ending than .png, before anything is computed."""
    if path is not None and Path(path).suffix.lower() != ".png":
        raise unknown_name(f"ending of the plot {path}:", Path(path).suffix, [".png"])


def plot_spectrum(eigenvalues: np.ndarray, k: int, title: str, path: str) -> None:
    """Descending eigenvalues relative to their mean, and the variance held by the first k."""
    relative = eigenvalues / eigenvalues.mean()
    shown = relative[relative > 1e-12]
    with new_figure(path, 8.4, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(np.arange(1, len(shown) + 1), shown, lw=1.6, color=COLOURS[0])
        left.axhline(1, color="#777777", lw=1, ls="--")
        left.set(yscale="log", xlabel="direction", ylabel="eigenvalue / mean eigenvalue", title="Spectrum")
        share = 100 * np.cumsum(relative) / relative.sum()
        right.plot(np.arange(1, len(share) + 1), share, lw=1.6, color=COLOURS[0])
        right.axvline(k, color="#777777", lw=1, ls=":")
        right.annotate(f"k={k}", (k, 3), rotation=90, ha="right", va="bottom", color="#555555")
        right.set(xlabel="directions kept", ylabel="variance held, %", ylim=(0, 102), title="Explained variance")
        figure.suptitle(title, fontsize=10)


def plot_tuning(tuning: Tuning, title: str, path: str) -> None:
    """Score against k, one panel per β, one line per γ; thin lines are the held-out pairs."""
    rows = tuning.rows
    betas, gammas = sorted({row.beta for row in rows}), sorted({row.gamma for row in rows})
    ks = sorted({row.n_components for row in rows})
    held = tuning.baseline.held_out is not None
    across = min(3, len(betas))
    down = math.ceil(len(betas) / across)
    with new_figure(path, max(5.0, 3.4 * across), 3.0 * down + 0.9) as figure:
        axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
        for axis, beta in zip(axes, betas, strict=False):
            for gamma, colour in zip(gammas, COLOURS * len(gammas), strict=False):
                line = sorted((r for r in rows if (r.beta, r.gamma) == (beta, gamma)), key=lambda r: r.n_components)
                x = [r.n_components for r in line]
                axis.plot(x, [r.score for r in line], marker="o", ms=3, lw=1.5, color=colour, label=f"γ={gamma:g}")
                if held:
                    axis.plot(x, [r.held_out for r in line], lw=0.8, ls="--", color=colour)
            axis.axhline(tuning.baseline.score, color="#555555", lw=1.2, ls=":", label="not whitened")
            axis.set_title(f"β={beta:g}")
            scale_k(axis, ks)
        for axis in axes[len(betas) :]:
            axis.set_visible(False)
        axes[0].set_ylabel("Spearman × 100")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        figure.suptitle(title + (" (dashed: held out)" if held else ""), fontsize=10)
