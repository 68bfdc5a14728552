"""Views of a run of `eval.retrieval`: its tables, two plots and `results.md`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from eval.plotting import COLOURS, new_figure
from eval.report import views
from eval.report.plots import scale_amounts
from eval.report.table import (
    SIGNIFICANT,
    Cell,
    Columns,
    Table,
    bounds,
    change,
    figure,
    model_name,
    number,
    shorten,
    table,
)
from eval.runs import Record, Run
from eval.settings import combinations, knobs, label

TRANSDUCTIVE_NOTE = (
    "† transductive: the whitening was fitted on the documents and queries searched (never on which belong together)."
)
_MARKERS = "osD^vPX*"
_QUALITY = {  # figures for which higher is better
    "MRR@10": "mrr_at_10",
    "recall@1": "recall_at_1",
    "recall@10": "recall_at_10",
    "recall@100": "recall_at_100",
    "nDCG@10": "ndcg_at_10",
}
_COST: Columns = {
    "ms/query": figure("time_ms", 4),
    "+whitening": figure("time_with_whitening_ms", 4),
    "queries/s": figure("queries_per_second", 0),
    "p50 ms": figure("single_p50_ms"),
    "p99 ms": figure("single_p99_ms"),
    "p50 text": figure("single_text_p50_ms"),
    "p99 text": figure("single_text_p99_ms"),
    "GiB": figure("memory_gib", 4),
    "index MB": lambda row: number(row.index_bytes / 1e6),
    "build s": figure("build_seconds"),
    "peak GB": figure("peak_rss_gb"),
}
_COUNTS = {
    "rows": "rows read",
    "malformed_rows": "malformed rows left out",
    "empty_texts": "empty texts, encoded as a full stop",
    "rows_with_another_text_of_a_document": "rows with another text of a document's id",
    "rows_with_another_text_of_a_query": "rows with another text of a query's id",
    "queries_without_gold": "queries without gold, searched but not scored",
}


def _table(run: Run, figures: Columns, caption: str, **options: Any) -> Table:
    settings = views.setting_columns(run) | {"index": "backend"}
    columns = {**settings, **figures}
    return table(run.rows, columns, len(settings), caption, group=["pooling", "whitening"], **options)


def quality_table(run: Run) -> Table:
    """Quality: the paper's MRR@10 and other measures, and the index's recall of the exact results."""
    header = run.header
    data = run.header.dataset
    protocol = run.header.protocol
    caption = (
        f"{data.name}: {data.documents:,} documents, {data.queries:,} queries, of which "
        f"{data.queries - data.counts['queries_without_gold']:,} have gold. {header.model}, at most "
        f"{protocol['max_length']} tokens. Means over the queries with gold; target: {protocol['target']}."
    )
    figures = {head: figure(name, 4) for head, name in _QUALITY.items()}
    if any(row.index_recall_at_10 < 1 for row in run.rows):
        figures["of exact@10"] = figure("index_recall_at_10", 4)
        caption += f" Of exact@10: {protocol['index_recall']}."
    if any(row.mrr_interval for row in run.rows):
        first: dict[str, Cell] = {
            "MRR@10": figures.pop("MRR@10"),
            "its interval": lambda row: bounds(row.mrr_interval, 4),
        }
        first["vs. raw"] = lambda row: change(row.versus_raw, 4) or number(None)
        if any(row.versus_words for row in run.rows):
            first["vs. words"] = lambda row: change(row.versus_words, 4) or number(None)
        figures = {**first, **figures}
        caption += (
            f" Intervals: {header.level:.0%} bootstrap over queries; {SIGNIFICANT}: the interval of the paired "
            "difference to the raw vectors of the same pooling and index leaves out 0."
            + " Vs. words: the same to TF-IDF, its idf counted on what the whitening was fitted on."
            * ("vs. words" in first)
        )
    poolings = {row.pooling for row in run.rows}
    caption += "".join(f" {name}: {text}." for name, text in protocol.get("words", {}).items() if name in poolings)
    notes = []
    if any(row.transductive for row in run.rows):
        notes = [TRANSDUCTIVE_NOTE]
    best = {head: [row[name] for row in run.rows] for head, name in _QUALITY.items()}
    return _table(run, figures, caption, notes=[*notes, *header.warnings], best=best)


def encoder_table(run: Run) -> Table:
    """MRR@10 per row with the encoder's name and any paired difference, for tables that join several runs.

    Raw rows are compared with the encoder that the config names, whitened rows with raw vectors of the same encoder.
    """

    def baseline(row: Record) -> str:
        model = run.header.arguments.get("versus", "") if row.whitening == "none" else row.model
        if row.versus_raw:
            return model_name(model)
        return ""

    columns: Columns = {
        "encoder": lambda row: model_name(row.model),
        "whitening": label,
        "k": "k",
        "MRR@10": figure("mrr_at_10", 4),
        "its interval": lambda row: bounds(row.mrr_interval, 4),
        "paired difference": lambda row: _difference(row.versus_raw) if row.versus_raw else "",
        "to": baseline,
    }
    return table(run.rows, columns, 3, quality_table(run).caption)


def _difference(gain: Record) -> str:
    return f"{change(gain, 4).strip()} ({bounds(gain, 4, signed=True)})"


def cost_table(run: Run) -> Table:
    """Costs: time of batched and of single searches, memory, and build time."""
    protocol = run.header.protocol
    caption = (
        f"ms/query: {protocol['time']}; +whitening: {protocol['time_with_whitening']}. p50, p99: {protocol['single']}, "
        "from raw vectors, and (text) encoding included. "
        f"GiB: {protocol['memory']}; index MB: the serialised index; peak GB: memory of the whole run so far."
    )
    return _table(run, _COST, caption)


def rerank_table(run: Run) -> Table | None:
    """The effect of re-ranking by a cross-encoder; None if nothing was re-ranked."""
    rows = [(row, row.reranked) for row in run.rows if row.reranked]
    if not rows:
        return None
    lines = []
    for row, reranked in rows:
        lines.append([run.header.dataset.name, run.header.model, row.pooling, label(row)])
        for name, gain in reranked.gain.items():
            lines[-1] += [number(reranked.before[name], 4), number(reranked.after[name], 4), _difference(gain)]
        lines[-1].append(number(reranked.ms, 1))
    _, first = rows[0]
    caption = (
        f"The first {first.depth} results of {first.queries:,} queries with gold, re-ranked by {first.model}."
        f" Differences with their {run.header.level:.0%} paired bootstrap intervals;"
        " ms/query: of re-ranking, all queries at once."
    )
    measures = [head for name in ("MRR@10", "nDCG@10") for head in (name, "re-ranked", "difference")]
    return Table(["data", "encoder", "pooling", "whitening", *measures, "ms/query"], lines, 4, caption)


def published_table(run: Run) -> Table | None:
    """Published figures and this run's, or None if no row has the same setting."""
    matches = run.header.published
    cells = []
    for match in matches:
        for setting, source, figures in ((match.setting, match.source, match.published), ("", "this run", match.ours)):
            numbers = (number(figures[name], 4) for name in ("mrr_at_10", "time_ms", "memory_gib"))
            cells.append([setting, source, *numbers])
    if not cells:
        return None
    caption = "Published figures of the same settings; times are of other machines."
    sources = list(dict.fromkeys(f"{match.source}: {match.citation}, on {match.note}" for match in matches))
    groups = [i // 2 for i in range(len(cells))]
    return Table(["setting", "", "MRR@10", "ms/query", "GiB"], cells, 2, caption, sources, groups)


def plot_quality(
    run: Run, path: Path, *, x: Callable[[Record], Sequence[float]], across: str, joined: bool = True
) -> Path | None:
    """MRR@10 with its interval against x, one colour per whitening, one marker per backend; numbers are k.

    `x` gives a row's value, and where it is a range the far end of it. None for fewer than two points.
    """
    rows = [
        row for row in run.rows if all(value is not None and math.isfinite(value) for value in (row.mrr_at_10, *x(row)))
    ]
    if len(rows) < 2:
        return None
    show_knobs = len(combinations(run.rows)) > 1

    def line_of(row: Record) -> str:
        return f"{row.pooling}, {row.whitening}{knobs(row) * show_knobs}"

    lines = list(dict.fromkeys(map(line_of, rows)))
    backends = list(dict.fromkeys(row.backend for row in rows))
    with new_figure(path, 6.4, 4.6) as drawing:
        from matplotlib.lines import Line2D

        axis = drawing.subplots()
        for (number, line), (sign, backend) in itertools.product(enumerate(lines), enumerate(backends)):
            of_line = sorted(
                (row for row in rows if (line_of(row), row.backend) == (line, backend)), key=lambda row: x(row)[0]
            )
            places = [x(row)[0] for row in of_line]
            heights = [row.mrr_at_10 for row in of_line]
            ends_of = [row.mrr_interval or Record.fromkeys(("value", "low", "high"), row.mrr_at_10) for row in of_line]
            bars = [[e.value - e.low for e in ends_of], [e.high - e.value for e in ends_of]]
            reach = [[0.0] * len(of_line), [x(row)[-1] - x(row)[0] for row in of_line]]
            style = {"color": COLOURS[number % len(COLOURS)], "marker": _MARKERS[sign % len(_MARKERS)], "ms": 5}
            axis.errorbar(places, heights, bars, reach, **style, lw=1.2, elinewidth=0.8, ls="-" if joined else "")
            for place, height, row in zip(places, heights, of_line, strict=True):
                shift = {"xytext": (4, 4 if number % 2 else -10), "textcoords": "offset points", "fontsize": 7}
                axis.annotate(f"{row.k}", (place, height), color=style["color"], **shift)
        axis.set(xlabel=across, ylabel="MRR@10", title=run.header.title)
        axis.margins(0.1)
        scale_amounts(axis)
        handles = [Line2D([], [], color=COLOURS[i % 8], lw=1.6, label=name) for i, name in enumerate(lines)]
        handles += [
            Line2D([], [], color="#555555", marker=_MARKERS[i % 8], ms=5, lw=0, label=backend)
            for i, backend in enumerate(backends)
        ]
        drawing.legend(handles=handles, loc="outside lower center", ncols=3)
    return path


plot_memory = functools.partial(plot_quality, x=lambda row: [row.index_bytes / 1e6], across="serialised index, MB")
plot_time = functools.partial(
    plot_quality,
    x=attrgetter("single_p50_ms", "single_p99_ms"),
    across="one search, ms: median, and line to the 99th percentile",
    joined=False,
)
PLOTS: views.Plots = {
    "quality_by_memory.png": (plot_memory, "Quality against memory"),
    "quality_by_time.png": (plot_time, "Quality against time"),
}


def examples_text(run: Run) -> str:
    """The example searches: each query with its first results, before and after whitening."""
    examples = run.header.examples
    lines = []
    for query in dict.fromkeys(example.query for example in examples):
        lines += ["", f"“{query}”"]
        for example in (example for example in examples if example.query == query):
            label = f"whitened ({example.whitening})"
            if example.whitening == "none":
                label = "not whitened"
            lines.append(f"  {label}, k={example.k}:")
            lines += [f"    {hit.score:.3f}  {shorten(hit.text or str(hit.id), 100)}" for hit in example.hits]
    return "\n".join(lines).strip("\n")


def _data(run: Run) -> str:
    data = run.header.dataset
    met = [f"{value:,} {_COUNTS.get(name, name.replace('_', ' '))}" for name, value in data.counts.items()]
    return "\n".join([*met, *(f"another text for one id, the first was kept: {text}" for text in data.conflicts)])


TABLES = {view.__name__: view for view in (quality_table, encoder_table, cost_table, rerank_table, published_table)}
VIEWS = views.Views(
    {"Quality": quality_table, "Re-ranking": rerank_table, "Time and memory": cost_table, "Published": published_table},
    PLOTS,
    {"Example searches": examples_text, "Data": _data},
    unprinted=("Data",),
)
