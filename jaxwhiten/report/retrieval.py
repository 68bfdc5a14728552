"""What a run of `eval.retrieval` looks like: its tables, two plots, `results.md` and `report.html`."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jaxwhiten.report import page, views
from jaxwhiten.report.results import SIGNIFICANT, RetrievalRow
from jaxwhiten.report.run import RetrievalRun
from jaxwhiten.report.style import COLOURS, STYLE, new_figure, save_figure, scale_amounts
from jaxwhiten.report.table import Table, best_cells, number

TRANSDUCTIVE_NOTE = (
    "† transductive: the whitening was fitted on the documents and queries searched (never on which belong together)."
)
_MARKERS = "osD^vPX*"
_QUALITY = {
    "mrr_at_10": "MRR@10",
    "recall_at_1": "recall@1",
    "recall_at_10": "recall@10",
    "recall_at_100": "recall@100",
    "ndcg_at_10": "nDCG@10",
}
_COUNTS = {
    "rows": "rows read",
    "malformed_rows": "malformed rows left out",
    "empty_texts": "empty texts, encoded as a full stop",
    "rows_with_another_text_of_a_document": "rows with another text of a document's id",
    "rows_with_another_text_of_a_query": "rows with another text of a query's id",
    "queries_without_gold": "queries without gold, searched but not scored",
}


def _groups(run: RetrievalRun) -> list[tuple[str, str]]:
    return [(row.pooling, row.whitening) for row in run.rows]


def quality_table(run: RetrievalRun) -> Table:
    """What is found: the paper's MRR@10 and other measures, and how much of the exact result the index gives.

    Args:
      run: A run of `eval.retrieval`, complete or not.

    Returns:
      The table; the best values of each column are marked.
    """
    header, data, protocol = run.header, run.header.dataset, run.header.protocol
    settings = [*views.setting_columns(run), "index"]
    heads = [*settings, *_QUALITY.values(), "of exact@10"]
    cells = [
        [
            *views.setting_cells(run, row),
            row.backend,
            *(number(getattr(row, name), 4) for name in _QUALITY),
            number(row.index_recall_at_10, 4),
        ]
        for row in run.rows
    ]
    caption = (
        f"{data.name}: {data.documents:,} documents, {data.queries:,} queries, of which "
        f"{data.queries - data.counts['queries_without_gold']:,} have gold. {header.model}, at most "
        f"{protocol.max_length} tokens. Means over the queries with gold; target: {protocol.target}; of "
        f"exact@10: {protocol.index_recall}."
    )
    if any(row.mrr_interval for row in run.rows):
        place = len(settings) + 1  # beside the MRR
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
    best = best_cells({heads.index(head): [getattr(row, name) for row in run.rows] for name, head in _QUALITY.items()})
    notes = [TRANSDUCTIVE_NOTE] if any(row.transductive for row in run.rows) else []
    return Table(heads, cells, len(settings), caption, [*notes, *header.warnings], _groups(run), best)


def cost_table(run: RetrievalRun) -> Table:
    """What it takes: time of batched and of single searches, memory, and building."""
    protocol = run.header.protocol
    figures: dict[str, tuple[Callable[[RetrievalRow], float | None], int]] = {
        "ms/query": (lambda row: row.time_ms, 4),
        "+whitening": (lambda row: row.time_with_whitening_ms, 4),
        "queries/s": (lambda row: row.queries_per_second, 0),
        "p50 ms": (lambda row: row.single_p50_ms, 2),
        "p99 ms": (lambda row: row.single_p99_ms, 2),
        "p50 text": (lambda row: row.single_text_p50_ms, 2),
        "p99 text": (lambda row: row.single_text_p99_ms, 2),
        "GiB": (lambda row: row.memory_gib, 4),
        "index MB": (lambda row: row.index_bytes / 1e6, 2),
        "build s": (lambda row: row.build_seconds, 2),
        "peak GB": (lambda row: row.peak_rss_gb, 2),
    }
    caption = (
        f"ms/query: {protocol.time}; +whitening: {protocol.time_with_whitening}. p50, p99: {protocol.single}, "
        "from raw vectors, and (text) encoding included. "
        f"GiB: {protocol.memory}; index MB: the serialised index; peak GB: memory of the whole run so far."
    )
    settings = [*views.setting_columns(run), "index"]
    cells = [
        [
            *views.setting_cells(run, row),
            row.backend,
            *(number(value(row), digits) for value, digits in figures.values()),
        ]
        for row in run.rows
    ]
    return Table([*settings, *figures], cells, len(settings), caption, groups=_groups(run))


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


def _plot(run: RetrievalRun, path: Path, x: Callable[[RetrievalRow], float], label: str) -> Path | None:
    """MRR@10 against x, one line per whitening, one marker per backend; numbers beside the points are k."""
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


def plot_memory(run: RetrievalRun, path: Path) -> Path | None:
    """MRR@10 against the size of the serialised index; None where no query has gold."""
    return _plot(run, path, lambda row: row.index_bytes / 1e6, "serialised index, MB")


def plot_time(run: RetrievalRun, path: Path) -> Path | None:
    """MRR@10 against the time per query in a batched search; None where no query has gold."""
    return _plot(run, path, lambda row: row.time_ms, "batched search, ms per query")


PLOTS: views.Plots = {
    "quality_by_memory.png": (plot_memory, "Quality against memory"),
    "quality_by_time.png": (plot_time, "Quality against time"),
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
            lines += [f"    {hit.score:.3f}  {_short(hit.text or str(hit.id))}" for hit in example.hits]
    return "\n".join(lines).strip("\n")


def _short(text: str, length: int = 100) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def write_retrieval(run: RetrievalRun, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots of a run of `eval.retrieval`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    header, examples, data = run.header, examples_text(run), _data(run)

    def sections(pictures: Mapping[str, str]) -> list[str]:
        quality = quality_table(run.with_header(warnings=()))  # the page shows the warnings above all tables
        return [
            page.section("Quality", page.tables(quality), *pictures.values()),
            page.section("Time and memory", page.tables(cost_table(run))),
            page.section("Published", page.tables(published_table(run))),
            page.section("Example searches", page.verbatim(examples)),
            page.section("Data", page.verbatim(data)),
        ]

    parts = [*(["## Example searches", f"```text\n{examples}\n```"] if examples else []), data]
    lead = f"{header.model} · {header.dataset.name} · {header.date}"
    return views.write_views(run, Path(folder), PLOTS, _tables(run), sections, lead, parts)


def _tables(run: RetrievalRun) -> list[Table | None]:
    return [quality_table(run), cost_table(run), published_table(run)]


def as_text(run: RetrievalRun, files: Sequence[Path]) -> str:
    """What the program prints when it is done: tables, example searches, and the names of the files written."""
    return views.closing_text(run, _tables(run), files, examples_text(run))


def _data(run: RetrievalRun) -> str:
    data = run.header.dataset
    met = [f"{value:,} {_COUNTS.get(name, name.replace('_', ' '))}" for name, value in data.counts.items()]
    lines = [f"Data: {'; '.join(met)}."]
    lines += [f"Another text for one id, the first was kept: {conflict}." for conflict in data.conflicts]
    return "\n".join(lines)
