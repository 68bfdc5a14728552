"""The picture of runs of `eval.codes`, README's among them: quality of search against bytes per vector."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from eval.plotting import new_figure
from eval.runs import Record, Run

# Each code with its name and its colors on white and on black.
_CODES = {
    "spectrum": ("jaxwhiten", "#0072B2", "#56B4E9"),
    "opq": ("OPQ", "#009E73", "#2BC79B"),
    "pq": ("PQ", "#D55E00", "#E69F00"),
    "ubinary": ("binary", "#B0508A", "#CC79A7"),
    "int8": ("int8", "#666666", "#aaaaaa"),
}
# Of names at the ends of lines, in points, so that they stand apart: jaxwhiten's above the line of float32.
_HEIGHTS = {"spectrum": 9, "opq": -8, "pq": -12}
_LIGHT_INK = "#333333"
_DARK_INK = "#dddddd"
_DARK: dict[str, str] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _DARK_INK),
    "axes.titlecolor": _DARK_INK,
    "grid.color": "#3a3d44",
}


def draw_quality(runs: Mapping[str, Run], path: Path, dark: bool = False) -> Path:
    """A panel for each run, with its title; bands and bars are intervals of the difference to float32."""
    settings = {}
    if dark:
        settings = _DARK
    with new_figure(path, 4.2 * max(2, len(runs)), 3.7, **settings) as figure:
        axes = figure.subplots(1, len(runs), squeeze=False)[0]
        for axis, (title, run) in zip(axes, runs.items(), strict=True):
            _draw(axis, run, dark)
            axis.set(title=title, xlabel="bytes per text in memory")
        axes[0].set_ylabel("MRR@10 × 100")
    return path


def _draw(axis: Any, run: Run, dark: bool) -> None:
    of_code: dict[str, list[Record]] = {}
    for row in sorted((row for row in run.rows if row.whitening in ("none", "documents")), key=attrgetter("bytes")):
        of_code.setdefault(row.code, []).append(row)
    (raw,) = of_code["float32"]
    level = 100 * raw.mrr_at_10
    ink = _DARK_INK if dark else _LIGHT_INK
    axis.axhline(level, ls=":", lw=1, color=ink)
    axis.plot([raw.bytes], [level], "s", ms=5, color=ink)
    _name(axis, "float32", (raw.bytes, level), ink, (-22, 6))
    for code, (name, *colors) in _CODES.items():
        color = colors[dark]
        rows = [row for row in of_code.get(code, ()) if row.versus_raw is not None]
        measured = [(row.bytes, _shifted(level, row.versus_raw)) for row in rows]
        if not measured:
            continue
        if len(measured) > 1:
            sizes = [size for size, _ in measured]
            centre, low, high = zip(*(interval for _, interval in measured), strict=True)
            axis.fill_between(sizes, low, high, color=color, alpha=0.22, lw=0)
            axis.plot(sizes, centre, "o-", ms=4, lw=1.8, color=color)
        else:
            _point(axis, *measured[0], color, color)
        size, (centre, *_) = measured[-1]
        place, offset = (size, centre), (7, _HEIGHTS.get(code, -10))
        if code in ("spectrum", "ubinary") and rows[0].rescored_mrr_at_10:
            rescored = (100 * rows[0].rescored_mrr_at_10,) * 3
            if rows[0].rescored_versus_raw:
                rescored = _shifted(level, rows[0].rescored_versus_raw)
            _point(axis, rows[0].bytes, rescored, color, "none")
            if code == "ubinary":  # lines run beside the point itself
                place, offset = (size, rescored[0]), (-18, 6)
        _name(axis, name, place, color, offset)
    axis.set_xscale("log", base=2)
    least = min(row.bytes for rows in of_code.values() for row in rows)
    ticks = [least << n for n in range((raw.bytes // least).bit_length())]
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.set_xlim(0.8 * least, 1.4 * raw.bytes)
    axis.minorticks_off()


def _shifted(level: float, estimate: Record) -> tuple[float, float, float]:
    """Value, lower and upper end of a difference to float32, as scores."""
    return level + estimate.value, level + estimate.low, level + estimate.high


def _point(axis: Any, size: int, interval: tuple[float, float, float], color: str, fill: str) -> None:
    centre, low, high = interval
    axis.errorbar(
        [size], [centre], [[centre - low], [high - centre]], fmt="D", ms=4.5, capsize=2, lw=1, color=color, mfc=fill
    )


def _name(axis: Any, name: str, position: tuple[float, float], color: str, offset: tuple[float, float]) -> None:
    axis.annotate(name, position, offset, textcoords="offset points", color=color, weight="bold")
