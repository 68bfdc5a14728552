"""Vectors, words, and both: a hybrid search beside its parts, in float32 and in codes.

`python -m eval.hybrid [--config configs/hybrid.py] [--config.key=value ...]`

For each size of vectors: nDCG@10 and MRR@10 of vectors alone, of BM25 alone and of hybrid search, and their differences
to vectors alone. Writes `run.jsonl` and a table to the folder `out`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs import launch
from configs.settings import Hybrid
from eval import common, measure
from eval.common import load_encoder, make_folder, say
from eval.driver import driven
from eval.intervals import estimate
from eval.report import Views
from eval.report.table import Table, bounds, mark, number
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, integers
from jaxwhiten import scoring
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.search import Index, build_index

FIRST = 10
VECTORS, WORDS, HYBRID = "vectors", "words", "hybrid"


def evaluator(config: Hybrid) -> Iterator[Run]:
    """The run after each size of vectors."""
    sizes = integers("bytes", config.bytes)
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    encoder = load_encoder(config, config.pooling)
    encoder = encoder.with_view(encoder.view.uncoded)
    name = Path(data.name).name
    asked = data.of(measure.sample_queries(data, config.queries)[0])
    run = Run(
        common.make_header(
            "eval.hybrid",
            f"Vectors, words and both on {name}: {encoder.name}",
            config,
            encoder,
            common.encoding(0.0, 0, note="not timed"),
            protocol={
                "hybrid": "documents of the query's rare words join the nearest ones; cosines and BM25 rank them",
                "words": "BM25 of jaxwhiten.scoring, over all documents",
                "versus": "differences to vectors alone of the same size, × 100, over the same queries",
            },
            dataset=common.dataset(data, len(asked.queries)),
        )
    )
    yield run
    store = EmbeddingStore(config.cache or None)
    documents, queries = (
        np.asarray(store.encode(encoder.view.in_role(role), list(texts)))
        for role, texts in (("document", data.documents), ("query", asked.queries))
    )
    [by_words] = [found for form, *_, found in scoring.by_words(asked) if form == scoring.BM25]
    for size in sizes:
        index = build_index(documents, bytes=size or None, documents=data.documents)
        results = {
            VECTORS: index.search(queries, FIRST + 1)[1],
            WORDS: by_words,
            HYBRID: hybrid(index, queries, asked.queries),
        }
        scores = {method: scoring.of_ranks(asked.others(ids), asked.gold) for method, ids in results.items()}
        for method, of_method in scores.items():
            row = {"dataset": name, "bytes": size, "method": method}
            run.rows.append(Record(NO_WHITENING | row | compared(of_method, scores[VECTORS], config)))
        say(f"{name}: {size or 'float32'}")
        yield run


def hybrid(index: Index, queries: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """The ids that hybrid search finds; −1 where it finds fewer."""
    ids = np.full((len(queries), min(FIRST + 1, len(index))), -1)
    for row, hits in zip(ids, index.hits(queries, FIRST + 1, texts=texts), strict=True):
        row[: len(hits)] = [hit.id for hit in hits]
    return ids


def compared(scores: dict[str, np.ndarray], others: dict[str, np.ndarray], config: Hybrid) -> dict[str, Any]:
    """The means, the differences to others, and the queries that are worse."""
    figures: dict[str, Any] = {}
    for name in ("mrr", "ndcg"):
        values = 100 * scores[f"{name}_at_10"]
        changes = values - 100 * others[f"{name}_at_10"]
        figures[f"{name}_at_10"] = estimate(values, config.bootstrap, config.seed)
        figures[f"{name}_versus"] = estimate(changes, config.bootstrap, config.seed)
    worse = changes < -1e-9
    figures["better"] = float((changes > 1e-9).mean())
    figures["worse"] = float(worse.mean())
    figures["loss"] = float(-changes[worse].mean()) if worse.any() else 0.0
    return figures


def hybrid_table(*runs: Run) -> Table | None:
    """nDCG@10 × 100 of vectors, words and both, with intervals, and what both change; MRR@10 beside it."""
    body = []
    for run in runs:
        data = run.header.dataset
        name = f"{data.name.partition('.')[0]}: {data.documents:,}; {data.queries:,}"
        for size in dict.fromkeys(row.bytes for row in run.rows):
            rows = {row.method: row for row in run.rows if row.bytes == size}
            three = [rows[method] for method in (VECTORS, WORDS, HYBRID)]
            both = rows[HYBRID]
            line = [name, f"{size or 'float32'}"]
            line += [f"{number(row.ndcg_at_10.value, 1)} ({bounds(row.ndcg_at_10, 1)})" for row in three]
            line.append(_changed(both.ndcg_versus))
            line.append(_changed(both.mrr_versus))
            line.append(f"{number(100 * both.better, 1)} / {number(100 * both.worse, 1)}")
            line.append(number(both.loss, 0))
            body.append(line)
    heads = ["search: documents; queries", "bytes", "vectors", "words", "both", "both − vectors"]
    heads += ["MRR@10: both − vectors", "queries better / worse, %", "loss if worse"]
    return Table(heads, body, 2, groups=[line[0] for line in body], merged=True) if body else None


def _changed(versus: Record) -> str:
    return f"{number(versus.value, 1, signed=True)} ({bounds(versus, 1, signed=True)}){mark(versus)}".strip()


TABLES = {"hybrid_table": hybrid_table}
main = driven(evaluator, Views({"Vectors, words and both": hybrid_table}, {}))

if __name__ == "__main__":
    launch.run(main, "configs/hybrid.py", Hybrid)
