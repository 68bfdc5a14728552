"""Views of a run of `eval.codes`: quality against bytes, as a table per fit and as a plot."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import numpy as np

from eval import compared
from eval.plotting import COLOURS
from eval.report import views
from eval.report.plots import new_panels, scale_amounts
from eval.report.table import Columns, Table, bounds, figure, number, table
from eval.runs import Record, Run

_SETTING: Columns = {"fitted on": "whitening", "code": "code", "γ": figure("gamma", 2), "bytes": "bytes"}
_FIGURES: Columns = {
    "MRR@10 − raw": lambda row: bounds(row.versus_raw, signed=True),
    "MRR@10 − spectrum": lambda row: bounds(row.versus_spectrum, signed=True),
    "MRR@10": figure("mrr_at_10", 4),
    "nDCG@10": figure("ndcg_at_10", 4),
    "recall@10": figure("recall_at_10", 4),
    "of float32's ten": figure("float32_recall_at_10", 3),
    "rescored MRR@10": figure("rescored_mrr_at_10", 4),
    "STS": figure("sts"),
    "build µs": figure("build_us", 1),
}
_PANELS = {
    "documents": "fitted on documents",
    "outside": "fitted on other text",
}
_TICKS = (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # points, above and below the best codes
_MARKERS = "osD^vPX*<>hd"


def _raw(run: Run) -> Record | None:
    return next((row for row in run.rows if row.whitening == "none"), None)


def _caption(run: Run) -> str:
    data = run.header.dataset
    protocol = run.header.protocol
    outside = ""
    if protocol["outside"]:
        outside = f"; outside: on {protocol['outside']}, the documents never seen"
    return (
        f"{data.name}: {data.documents:,} documents, {protocol['quality']}. {run.header.model}, at most"
        f" {protocol['max_length']} tokens. documents: fitted on the documents{outside}."
    )


def _code_name(run: Run) -> Callable[[Record], str]:
    """Names the code of a row, with the γ of the whitening before it where the run has several."""
    several = len({row.gamma for row in run.rows if row.code == "spectrum"}) > 1

    def name(row: Record) -> str:
        code: str = row.code
        if several and row.gamma is not None:
            return f"{code}, γ = {row.gamma:g}"
        return code

    return name


def figures_table(run: Run) -> Table:
    """All measurements, one line per code, size and fit."""
    protocol = run.header.protocol
    caption = (
        f"{_caption(run)} Rescored: {protocol['rescored'] or 'not run'}. STS: {protocol['sts'] or 'not run'}. build:"
        " fitting, coding and adding, per document."
    )
    return table(run.rows, {**_SETTING, **_FIGURES}, 2, caption, group=["whitening"], key_columns=4)


def plot_codes(run: Run, path: Path) -> Path | None:
    """Difference of the MRR@10 to float32 against bytes, with intervals: a panel per fit, a line per code.

    The scale is linear near the best codes and logarithmic farther away, so that good codes stand apart. A fit whose
    codes all have the same size makes no panel; None where no panel is left.
    """
    raw = _raw(run)
    rows = sorted((row for row in run.rows if row.versus_raw is not None), key=attrgetter("bytes"))
    name = _code_name(run)
    codes, fits = (list(dict.fromkeys(map(key, rows))) for key in (name, attrgetter("whitening")))
    by_fit = {fit: [row for row in rows if row.whitening == fit] for fit in fits}
    panels = {fit: of_fit for fit, of_fit in by_fit.items() if len({row.bytes for row in of_fit}) > 1}
    if raw is None or not panels:
        return None
    with new_panels(path, [_PANELS.get(fit, fit) for fit in panels]) as (drawing, axes):
        for axis, of_fit in zip(axes, panels.values(), strict=False):
            for number, code in enumerate(codes):
                measured = [(row.bytes, row.versus_raw) for row in of_fit if name(row) == code and row.versus_raw]
                sizes = [size * 1.006 ** (number - len(codes) / 2) for size, _ in measured]  # side by side
                centre = [estimate.value for _, estimate in measured]
                bars = [[e.value - e.low for _, e in measured], [e.high - e.value for _, e in measured]]
                style = _MARKERS[number % len(_MARKERS)] + ("--" if number >= len(COLOURS) else "-")
                colour = COLOURS[number % len(COLOURS)]
                axis.errorbar(sizes, centre, bars, ms=4, lw=1.3, capsize=2, label=code, fmt=style, color=colour)
            axis.axhline(0, ls=":", lw=1.2, color="#777777", label=f"float32, {raw.bytes:,} bytes")
            axis.set_xlabel("bytes")
            scale_amounts(axis)
        ends_of = [end for row in rows if row.versus_raw for end in (row.versus_raw.low, row.versus_raw.high)]
        best = round(max(row.versus_raw.value for row in rows if row.versus_raw))
        low = min(0, *ends_of) - 0.5
        high = max(0, *ends_of) + 0.1
        scale = (lambda y: np.arcsinh((y - best) / 0.2), lambda y: best + 0.2 * np.sinh(y))
        axes[0].set_yscale("function", functions=scale)
        axes[0].set_ylim(low, high)
        ticks = sorted({tick for step in _TICKS for tick in (best - step, best + step) if low <= tick <= high})
        axes[0].set_yticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
        for axis in axes[::2]:
            axis.set_ylabel("MRR@10 × 100 − float32")
        drawing.suptitle(run.header.title, fontsize=10)
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return path


_STORED = {
    ("float32", 1536): ("float32", "FAISS float32"),
    ("int8", 384): ("int8", None),
    ("spectrum", 96): ("jaxwhiten", "jaxwhiten"),
    ("spectrum", 48): ("jaxwhiten", "jaxwhiten"),
    ("turbovec", 96): ("turbovec", "turbovec"),
    ("pq", 96): ("PQ", "FAISS PQ, fast scan"),
    ("rabitq", 48): ("RaBitQ", "rabitq"),
}
_DOCUMENTS = 100_000  # of a search that is timed


def promise_table(*runs: Run) -> Table:
    """Means over runs of tasks, beside the speed of one query by a run of `benchmarks.search_batches`."""
    tasks = [run for run in runs if run.header.program == "eval.codes"]
    (timed,) = (run for run in runs if run not in tasks)
    speeds = {
        (row.index, row.bytes): row.speed_to_float32.median
        for row in timed.rows
        if (row.documents, row.queries) == (_DOCUMENTS, 1)
    }
    cells = list[list[str]]()
    for (code, size), (name, index) in _STORED.items():
        rows = [row for run in tasks for row in run.rows if (row.code, row.bytes) == (code, size)]
        agreement = "1.00"
        lost = "0.0"
        speed = "1"
        if code != "float32":
            agreement = number(float(np.mean([row.float32_recall_at_10 for row in rows])))
            lost = number(float(np.mean([row.versus_raw.value for row in rows])), 1)
            speed = number(speeds.get((index, size)), 0)
        cells.append([name, f"{size:,}", agreement, lost, speed, f"{size:,} MB"])
    heads = ["stored", "bytes", "of float32's ten", "MRR@10", "times as fast", "a million"]
    return Table(heads, cells, 1)


TABLES = {"figures_table": figures_table, "promise_table": promise_table, **compared.TABLES}
PLOTS: views.Plots = {"quality_by_bytes.png": (plot_codes, "Quality of search against bytes per vector")}
VIEWS = views.Views(
    {
        "Quality against bytes": figures_table,
    },
    PLOTS,
)
