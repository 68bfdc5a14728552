"""Views of a run of `eval.codes`: quality against bytes, as a table per fit and as a plot."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from jaxwhiten.report import views
from jaxwhiten.report.results import SIGNIFICANT, CodeRow, Estimate
from jaxwhiten.report.run import CodesRun
from jaxwhiten.report.style import COLOURS, new_figure, scale_amounts
from jaxwhiten.report.table import Table, number
from jaxwhiten.report.views import change, ends, figure

_SETTING: views.Columns = {"fitted on": "whitening", "code": "code", "bytes": "bytes"}
_FIGURES: views.Columns = {
    "MRR@10 − raw": lambda row: ends(row.versus_raw, signed=True),
    "MRR@10": figure("mrr_at_10", 4),
    "nDCG@10": figure("ndcg_at_10", 4),
    "recall@10": figure("recall_at_10", 4),
    "rescored MRR@10": figure("rescored_mrr_at_10", 4),
    "STS": figure("sts"),
    "build µs": figure("build_us", 1),
    "search ms": figure("search_ms", 3),
}
_PANELS = {
    "documents": "fitted on documents",
    "outside": "fitted on other text",
    "outside+mean": "other text, about the documents' mean",
}
AHEAD = "↑"  # marks a lead over the spectrum code at equal bytes
_BELOW = 12  # points below float32 and spectrum codes that a plot shows; worse codes fall outside
_MARKERS = "osD^vPX*<>hd"


def _raw(run: CodesRun) -> CodeRow | None:
    return next((row for row in run.rows if row.whitening == "none"), None)


def _caption(run: CodesRun) -> str:
    data, protocol = run.header.dataset, run.header.protocol
    outside = f"; outside: on {protocol['outside']}, the documents never seen, or but for their mean"
    return (
        f"{data.name}: {data.documents:,} documents, {protocol['quality']}. {run.header.model}, at most"
        f" {protocol['max_length']} tokens. documents: fitted on the documents{outside if protocol['outside'] else ''}."
    )


def bytes_table(run: CodesRun) -> Table | None:
    """Differences of the MRR@10 to float32, × 100: a row per code and fit, a column per size.

    `AHEAD` marks a code that leads the spectrum code of as many bytes. Cells with fewer bytes than the column name
    their bytes. None if no row has a difference.
    """
    raw = _raw(run)
    if raw is None:
        return None
    caption = (
        f"MRR@10 x 100 as difference to float32 ({raw.bytes:,} bytes: {100 * raw.mrr_at_10:.2f}). {SIGNIFICANT}: its"
        f" {run.header.level:.0%} interval leaves out 0 (paired bootstrap over queries). {AHEAD}: so does that of its"
        " lead over the spectrum code of as many bytes, or the next more."
    )
    return _by_size(run, attrgetter("versus_raw"), caption)


def spectrum_table(run: CodesRun) -> Table | None:
    """Differences of the MRR@10, × 100, to the spectrum code with as many bytes, or the next more; None if no row has
    one.

    A row per code and fit, a column per size.
    """
    caption = (
        "MRR@10 x 100 as difference to the spectrum code of the same fit that has as many bytes, or else the next"
        f" more. {SIGNIFICANT}: its {run.header.level:.0%} interval leaves out 0 (paired bootstrap over queries)."
    )
    return _by_size(run, attrgetter("versus_spectrum"), caption, ahead=False)


def _by_size(
    run: CodesRun, difference: Callable[[CodeRow], Estimate | None], caption: str, ahead: bool = True
) -> Table | None:
    rows = [(row, value) for row in run.rows if (value := difference(row)) is not None]
    if not rows:
        return None
    spectra = [row for row in run.rows if row.code == "spectrum"]
    several = len({row.gamma for row in spectra}) > 1
    held = sorted({row.bytes for row in spectra})
    column = {row.bytes: next((size for size in held if size >= row.bytes), row.bytes) for row, _ in rows}
    sizes = sorted(set(column.values()))
    lines: dict[tuple[str, str, float | None], dict[int, str]] = {}
    for row, value in rows:
        shown, lead = change(value), row.versus_spectrum
        shown += AHEAD if ahead and lead is not None and lead.low > 0 else ""
        shown += f" ({row.bytes} B)" if column[row.bytes] != row.bytes else ""
        lines.setdefault((row.whitening, row.code, row.gamma), {})[column[row.bytes]] = shown
    cells = []
    for (fit, code, gamma), found in lines.items():
        name = f"{code}, γ = {gamma:g}" if several and gamma is not None else code
        cells.append([fit, name, *(found.get(size, "") for size in sizes)])
    heads = ["fitted on", "code", *(f"{size} B" for size in sizes)]
    return Table(heads, cells, 2, f"{_caption(run)} {caption}", groups=[fit for fit, *_ in lines])


def classification_table(run: CodesRun) -> Table | None:
    """Accuracy on pairs of decoded vectors and its difference to float32, in per cent: two columns per task."""
    rows = [row for row in run.rows if row.accuracy]
    if not rows:
        return None
    columns: dict[str, Any] = {**_SETTING}
    for task in dict.fromkeys(name for row in rows for name in row.accuracy or {}):
        columns[task] = lambda row, task=task: _accuracy((row.accuracy or {}).get(task))
        columns[f"{task} − raw"] = lambda row, task=task: change((row.accuracy_versus_raw or {}).get(task))
    caption = (
        f"{run.header.model}: accuracy, {run.header.protocol['classified']}. {SIGNIFICANT}: the"
        f" {run.header.level:.0%} interval of the paired difference to float32 leaves out 0."
    )
    return views.table(rows, columns, 2, caption, group=["whitening"], key_columns=3)


def _accuracy(found: Estimate | None) -> str:
    return f"{number(found.value)} ({ends(found)})" if found else number(None)


def figures_table(run: CodesRun) -> Table:
    """All measurements, one line per code, size and fit."""
    protocol = run.header.protocol
    caption = (
        f"{_caption(run)} Rescored: {protocol['rescored'] or 'not run'}. STS: {protocol['sts'] or 'not run'}. build:"
        " fitting, coding and adding, per document; search: one batched search for 10 results, per query."
    )
    return views.table(run.rows, {**_SETTING, **_FIGURES}, 2, caption, group=["whitening"], key_columns=3)


def plot_codes(run: CodesRun, path: Path) -> Path | None:
    """MRR@10 against bytes with intervals, one panel per fit, one line per code; float32 is the dotted line."""
    raw, rows = _raw(run), [row for row in run.rows if row.versus_raw is not None]
    if raw is None or not rows:
        return None
    by_bytes = sorted(rows, key=attrgetter("bytes"))
    panels, codes = (list(dict.fromkeys(map(attrgetter(name), rows))) for name in ("whitening", "code"))
    with new_figure(path, 5.2 * len(panels) + 1, 4.8) as drawing:
        axes = drawing.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, fit in zip(axes, panels, strict=True):
            for place, code in enumerate(codes):
                of_code = [row for row in by_bytes if (row.whitening, row.code) == (fit, code)]
                centre = [100 * row.mrr_at_10 for row in of_code]
                found = [row.versus_raw for row in of_code]
                bars = [[e.value - e.low for e in found if e], [e.high - e.value for e in found if e]]
                look = {"color": COLOURS[place % len(COLOURS)], "marker": _MARKERS[place % len(_MARKERS)]}
                look |= {"ls": "--" if place >= len(COLOURS) else "-"}
                axis.errorbar([row.bytes for row in of_code], centre, bars, ms=4, lw=1.3, capsize=2, label=code, **look)
            axis.axhline(100 * raw.mrr_at_10, ls=":", lw=1.2, color="#777777", label=f"float32, {raw.bytes:,} bytes")
            axis.set(title=_PANELS.get(fit, fit), xlabel="bytes")
            scale_amounts(axis)
        axes[0].set_ylabel("MRR@10 × 100")
        least = 100 * min(row.mrr_at_10 for row in [raw, *rows] if row.code in (raw.code, "spectrum")) - _BELOW
        axes[0].set_ylim(bottom=max(least, axes[0].get_ylim()[0]))
        drawing.suptitle(run.header.title, fontsize=10)
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return path


PLOTS: views.Plots = {"quality_by_bytes.png": (plot_codes, "Quality of search against bytes per vector", "Quality")}
_VIEWS = views.Views(
    {
        "Quality": bytes_table,
        "Beside the spectrum code": spectrum_table,
        "Classification": classification_table,
        "All figures": figures_table,
    },
    PLOTS,
    attrgetter("header.dataset.name"),
)
write_codes, as_text = _VIEWS.write, _VIEWS.text
