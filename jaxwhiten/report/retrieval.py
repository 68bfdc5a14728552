"""What a run of `eval.retrieval` looks like: its tables, two plots, `results.md` and `report.html`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

from jaxwhiten.report import views
from jaxwhiten.report.results import SIGNIFICANT, Estimate, RetrievalRow
from jaxwhiten.report.run import RetrievalRun
from jaxwhiten.report.style import COLOURS, STYLE, new_figure, save_figure, scale_amounts
from jaxwhiten.report.table import Table, best_cells, model_name, number, shorten

TRANSDUCTIVE_NOTE = (
    "† transductive: the whitening was fitted on the documents and queries searched (never on which belong together)."
)
_MARKERS = "osD^vPX*"
_QUALITY: views.Figures = {
    "MRR@10": (attrgetter("mrr_at_10"), 4),
    "recall@1": (attrgetter("recall_at_1"), 4),
    "recall@10": (attrgetter("recall_at_10"), 4),
    "recall@100": (attrgetter("recall_at_100"), 4),
    "nDCG@10": (attrgetter("ndcg_at_10"), 4),
}
_COST: views.Figures = {
    "ms/query": (attrgetter("time_ms"), 4),
    "+whitening": (attrgetter("time_with_whitening_ms"), 4),
    "queries/s": (attrgetter("queries_per_second"), 0),
    "p50 ms": (attrgetter("single_p50_ms"), 2),
    "p99 ms": (attrgetter("single_p99_ms"), 2),
    "p50 text": (attrgetter("single_text_p50_ms"), 2),
    "p99 text": (attrgetter("single_text_p99_ms"), 2),
    "GiB": (attrgetter("memory_gib"), 4),
    "index MB": (lambda row: row.index_bytes / 1e6, 2),
    "build s": (attrgetter("build_seconds"), 2),
    "peak GB": (attrgetter("peak_rss_gb"), 2),
}
_COUNTS = {
    "rows": "rows read",
    "malformed_rows": "malformed rows left out",
    "empty_texts": "empty texts, encoded as a full stop",
    "rows_with_another_text_of_a_document": "rows with another text of a document's id",
    "rows_with_another_text_of_a_query": "rows with another text of a query's id",
    "queries_without_gold": "queries without gold, searched but not scored",
}


def _figures_table(run: RetrievalRun, figures: views.Figures, caption: str) -> Table:
    settings = [*views.setting_columns(run), "index"]
    cells = [[*views.setting_cells(run, row), row.backend, *views.figure_cells(row, figures)] for row in run.rows]
    groups = [(row.pooling, row.whitening) for row in run.rows]
    return Table([*settings, *figures], cells, len(settings), caption, groups=groups)


def quality_table(run: RetrievalRun) -> Table:
    """What is found: the paper's MRR@10 and other measures, and how much of the exact result the index gives.

    Args:
      run: A run of `eval.retrieval`, complete or not.

    Returns:
      The table; the best values of each column are marked.
    """
    header, data, protocol = run.header, run.header.dataset, run.header.protocol
    caption = (
        f"{data.name}: {data.documents:,} documents, {data.queries:,} queries, of which "
        f"{data.queries - data.counts['queries_without_gold']:,} have gold. {header.model}, at most "
        f"{protocol.max_length} tokens. Means over the queries with gold; target: {protocol.target}."
    )
    figures = dict(_QUALITY)
    if any(row.index_recall_at_10 < 1 for row in run.rows):
        figures["of exact@10"] = (attrgetter("index_recall_at_10"), 4)
        caption += f" Of exact@10: {protocol.index_recall}."
    table = _figures_table(run, figures, caption)
    heads, cells = list(table.columns), [list(line) for line in table.rows]
    if any(row.mrr_interval for row in run.rows):
        place = heads.index("MRR@10") + 1
        heads[place:place] = ["its interval", "vs. raw"]
        for row, line in zip(run.rows, cells, strict=True):
            ends, versus = row.mrr_interval, row.versus_raw
            line[place:place] = [
                f"{number(ends.low, 4)}–{number(ends.high, 4)}" if ends else number(None),
                number(versus.value, 4, signed=True) + versus.mark if versus else number(None),
            ]
        caption += (
            f" Intervals: {header.level:.0%} bootstrap over queries; {SIGNIFICANT}: the interval of the paired "
            "difference to the raw vectors of the same pooling and index leaves out 0."
        )
    best = best_cells({heads.index(head): [value(row) for row in run.rows] for head, (value, _) in _QUALITY.items()})
    notes = [TRANSDUCTIVE_NOTE] if any(row.transductive for row in run.rows) else []
    return dataclasses.replace(
        table, columns=heads, rows=cells, caption=caption, notes=[*notes, *header.warnings], best=best
    )


def encoder_table(run: RetrievalRun) -> Table:
    """MRR@10 per row with the encoder's name, for tables that join several runs; and the paired difference, if any.

    Raw rows differ from the encoder that the run was told to compare with, whitened ones from their own raw vectors.
    """
    cells = []
    for row in run.rows:
        beside = run.header.config.get("versus", "") if row.whitening == "none" else row.model
        changed = [_difference(row.versus_raw), model_name(beside)] if row.versus_raw else ["", ""]
        ends = row.mrr_interval
        interval = f"{number(ends.low, 4)}–{number(ends.high, 4)}" if ends else number(None)
        cells.append([model_name(row.model), row.label, str(row.k), number(row.mrr_at_10, 4), interval, *changed])
    heads = ["encoder", "whitening", "k", "MRR@10", "its interval", "paired difference", "to"]
    return Table(heads, cells, 3, quality_table(run).caption)


def _difference(gain: Estimate) -> str:
    value, low, high = (number(x, 4, signed=True) for x in (gain.value, gain.low, gain.high))
    return f"{value}{gain.mark.strip()} ({low} to {high})"


def cost_table(run: RetrievalRun) -> Table:
    """What it takes: time of batched and of single searches, memory, and building."""
    protocol = run.header.protocol
    caption = (
        f"ms/query: {protocol.time}; +whitening: {protocol.time_with_whitening}. p50, p99: {protocol.single}, "
        "from raw vectors, and (text) encoding included. "
        f"GiB: {protocol.memory}; index MB: the serialised index; peak GB: memory of the whole run so far."
    )
    return _figures_table(run, _COST, caption)


def rerank_table(run: RetrievalRun) -> Table | None:
    """What re-ranking by a cross-encoder changes; None where nothing was re-ranked."""
    rows = [(row, row.reranked) for row in run.rows if row.reranked]
    if not rows:
        return None
    lines = []
    for row, found in rows:
        lines.append([run.header.dataset.name, run.header.model, row.pooling, row.label])
        for name, gain in found.gain.items():
            lines[-1] += [number(found.before[name], 4), number(found.after[name], 4), _difference(gain)]
        lines[-1].append(number(found.ms, 1))
    _, one = rows[0]
    caption = (
        f"The first {one.depth} results of {one.queries:,} queries with gold, re-ranked by {one.model}. Differences"
        f" with their {run.header.level:.0%} paired bootstrap intervals; ms/query: of re-ranking, all queries at once."
    )
    measures = [head for name in ("MRR@10", "nDCG@10") for head in (name, "re-ranked", "difference")]
    return Table(["data", "encoder", "pooling", "whitening", *measures, "ms/query"], lines, 4, caption)


def published_table(run: RetrievalRun) -> Table | None:
    """Published figures and this run's, or None where no row is the same setting."""
    matches, cells = run.header.published, []
    for match in matches:
        for setting, label, figures in ((match.setting, match.source, match.published), ("", "this run", match.ours)):
            numbers = (number(figures[name], 4) for name in ("mrr_at_10", "time_ms", "memory_gib"))
            cells.append([setting, label, *numbers])
    if not cells:
        return None
    caption = "Published figures of the same settings; times are of other machines."
    sources = list(dict.fromkeys(f"{match.source}: {match.citation}, on {match.note}" for match in matches))
    groups = [place // 2 for place in range(len(cells))]
    return Table(["setting", "", "MRR@10", "ms/query", "GiB"], cells, 2, caption, sources, groups)


def plot_quality(run: RetrievalRun, path: Path, *, x: Callable[[RetrievalRow], float], label: str) -> Path | None:
    """MRR@10 against x, one line per whitening, one marker per backend; numbers beside the points are k.

    None where no query has gold.
    """
    import matplotlib
    from matplotlib.lines import Line2D

    rows = [row for row in run.rows if math.isfinite(row.mrr_at_10)]
    if not rows:
        return None
    show_knobs = len(run.knobs()) > 1

    def line_of(row: RetrievalRow) -> str:
        return f"{row.pooling}, {row.whitening}{row.knobs * show_knobs}"

    lines = list(dict.fromkeys(map(line_of, rows)))
    backends = list(dict.fromkeys(row.backend for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 4.6)
        axis = figure.subplots()
        for line, backend in itertools.product(lines, backends):
            points = sorted(
                (x(row), row.mrr_at_10, row.k) for row in rows if (line_of(row), row.backend) == (line, backend)
            )
            colour, marker = COLOURS[lines.index(line) % len(COLOURS)], _MARKERS[backends.index(backend) % 8]
            if points:
                axis.plot(*list(zip(*points, strict=True))[:2], color=colour, marker=marker, ms=5, lw=1.2)
            for across, up, k in points:
                axis.annotate(f"{k}", (across, up), xytext=(3, 4), textcoords="offset points", fontsize=7)
        axis.set(xlabel=label, ylabel="MRR@10", title=run.header.title)
        axis.margins(0.1)
        scale_amounts(axis)
        handles = [Line2D([], [], color=COLOURS[i % 8], lw=1.6, label=name) for i, name in enumerate(lines)]
        handles += [
            Line2D([], [], color="#555555", marker=_MARKERS[i % 8], ms=5, lw=0, label=backend)
            for i, backend in enumerate(backends)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        return save_figure(figure, path)


plot_memory = functools.partial(plot_quality, x=lambda row: row.index_bytes / 1e6, label="serialised index, MB")
plot_time = functools.partial(plot_quality, x=attrgetter("time_ms"), label="batched search, ms per query")
PLOTS: views.Plots = {
    "quality_by_memory.png": (plot_memory, "Quality against memory", "Quality"),
    "quality_by_time.png": (plot_time, "Quality against time", "Quality"),
}


_TABLES: views.Tables = {
    "Quality": quality_table,
    "Re-ranking": rerank_table,
    "Time and memory": cost_table,
    "Published": published_table,
}


def examples_text(run: RetrievalRun) -> str:
    """The example searches: each query with its first results, before and after whitening."""
    examples = run.header.examples
    lines = []
    for query in dict.fromkeys(example.query for example in examples):
        lines += ["", f"“{query}”"]
        for example in (example for example in examples if example.query == query):
            how = "not whitened" if example.whitening == "none" else f"whitened ({example.whitening})"
            lines.append(f"  {how}, k={example.k}:")
            lines += [f"    {hit.score:.3f}  {shorten(hit.text or str(hit.id), 100)}" for hit in example.hits]
    return "\n".join(lines).strip("\n")


def write_retrieval(run: RetrievalRun, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots of a run of `eval.retrieval`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    texts = {"Example searches": examples_text(run), "Data": _data(run)}
    return views.write_views(run, Path(folder), _TABLES, PLOTS, run.header.dataset.name, texts=texts)


def as_text(run: RetrievalRun, files: Sequence[Path]) -> str:
    """What the program prints when it is done: tables, example searches, and the names of the files written."""
    return views.closing_text(run, _TABLES.values(), files, examples_text(run))


def _data(run: RetrievalRun) -> str:
    data = run.header.dataset
    met = [f"{value:,} {_COUNTS.get(name, name.replace('_', ' '))}" for name, value in data.counts.items()]
    return "\n".join([*met, *(f"another text for one id, the first was kept: {text}" for text in data.conflicts)])
