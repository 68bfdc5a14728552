"""Plots of results in benchmarks/results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.report.plots import scale_amounts
from jaxwhiten.plots import COLOURS, new_figure

_LINES = {
    "local parts": ("local parts", "driver_mb"),
    "Ray, one worker": ("Ray", "worker_mb"),
    "Ray, the driver": ("Ray", "driver_mb"),
}


def engines_memory(result: dict[str, Any], path: Path) -> Path:
    """Peak memory against rows; hollow points are runs whose rows repeat those of the smallest run."""
    with new_figure(path, 6.4, 3.4) as figure:
        axis = figure.subplots()
        for (label, (runner, key)), colour in zip(_LINES.items(), COLOURS, strict=False):
            rows = [row for row in result["memory"] if row["runner"] == runner]
            line = [(row["rows"], row[key]) for row in rows if row["distinct"] == row["rows"]]
            repeated = [(row["rows"], row[key]) for row in rows if row["distinct"] < row["rows"]]
            axis.plot(*zip(*line, strict=True), marker="o", ms=5, lw=1.6, color=colour, label=label)
            axis.plot(*zip(*repeated, strict=True), "o", ms=7, mfc="none", color=colour)
        same = f"{min(row['rows'] for row in result['memory']):,} sentences, repeated"
        axis.plot([], [], "o", ms=7, mfc="none", color="#555555", label=same)
        most = max(row[key] for row in result["memory"] for key in ("driver_mb", "worker_mb"))
        axis.set(xlabel="rows", ylabel="peak resident memory, MB", ylim=(0, 1.15 * most))
        scale_amounts(axis)
        figure.legend(loc="outside lower center", ncols=2)
    return path
