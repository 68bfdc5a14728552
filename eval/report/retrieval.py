"""Views of a run of `eval.retrieval`: its tables, two plots and `results.md`."""

from __future__ import annotations

from typing import Any

from eval.report import views
from eval.report.table import (
    SIGNIFICANT,
    Cell,
    Columns,
    Table,
    bounds,
    change,
    figure,
    number,
    table,
)
from eval.runs import Record, Run
from eval.settings import label

TRANSDUCTIVE_NOTE = (
    "† transductive: the whitening was fitted on the documents and queries searched (never on which belong together)."
)
_QUALITY = {  # figures for which higher is better
    "MRR@10": "mrr_at_10",
    "recall@1": "recall_at_1",
    "recall@10": "recall_at_10",
    "recall@100": "recall_at_100",
    "nDCG@10": "ndcg_at_10",
}
_COST: Columns = {
    "ms/query": figure("time_ms", 4),
    "queries/s": figure("queries_per_second", 0),
    "p50 ms": figure("single_p50_ms"),
    "p99 ms": figure("single_p99_ms"),
    "GiB": figure("memory_gib", 4),
    "index MB": lambda row: number(row.index_bytes / 1e6),
    "build s": figure("build_seconds"),
    "peak GB": figure("peak_rss_gb"),
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
        figures = {**first, **figures}
        caption += (
            f" Intervals: {header.level:.0%} bootstrap over queries; {SIGNIFICANT}: the interval of the paired "
            "difference to the raw vectors of the same pooling and index leaves out 0."
        )
    notes = []
    if any(row.transductive for row in run.rows):
        notes = [TRANSDUCTIVE_NOTE]
    return _table(run, figures, caption, notes=[*notes, *header.warnings])


def _difference(gain: Record) -> str:
    return f"{change(gain, 4).strip()} ({bounds(gain, 4, signed=True)})"


def cost_table(run: Run) -> Table:
    """Costs: time of batched and of single searches, memory, and build time."""
    protocol = run.header.protocol
    caption = (
        f"ms/query: {protocol['time']}. p50, p99: {protocol['single']}, from raw vectors. "
        f"GiB: {protocol['memory']}; index MB: the serialized index; peak GB: memory of the whole run so far."
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


TABLES = {view.__name__: view for view in (quality_table, cost_table, rerank_table)}
VIEWS = views.Views(
    {"Quality": quality_table, "Re-ranking": rerank_table, "Time and memory": cost_table},
    {},
)
