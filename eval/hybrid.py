"""Vectors, words, and both: a hybrid search beside its parts, in float32 and in codes, with variants of its constants.

`python -m eval.hybrid [--config configs/hybrid.py] [--config.key=value ...]`

For each size of vectors: nDCG@10 and MRR@10 of vectors alone, of BM25 alone, of hybrid search and of its variants, and
their differences to vectors alone. Writes `run.jsonl` and tables to the folder `out`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np

from configs import launch
from configs.settings import Hybrid
from eval import common, measure
from eval.common import load_encoder, make_folder, say
from eval.driver import driven
from eval.intervals import estimate
from eval.report import Views
from eval.report.table import Table, bounds, change, mark, number
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, integers
from jaxwhiten import metrics, scoring
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.search import Index, build_index
from jaxwhiten.search import words as _words

FIRST = 10
VECTORS, WORDS, HYBRID = "vectors", "words", "hybrid"
_INDEX, _RARE = "jaxwhiten.search.index.", "jaxwhiten.search.words._RARE"


def _weighing(weight: float) -> Callable[..., np.ndarray]:
    """`fused`, whose reciprocal ranks by words count `weight` times."""

    def fused(cosines: np.ndarray, scores: np.ndarray) -> np.ndarray:
        alone = _words.fused(cosines, np.zeros(len(scores)))
        return alone + weight * (_words.fused(cosines, scores) - alone)

    return fused


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    HYBRID: {},
    "5 rarest words": {_RARE: 5},
    "200 nearest": {f"{_INDEX}NEAREST": 200},
    "words × 0.5": {f"{_INDEX}fused": _weighing(0.5)},
    "words × 2": {f"{_INDEX}fused": _weighing(2)},
}
"""Hybrid search and what is changed in it, by the path of a name."""


def evaluator(config: Hybrid) -> Iterator[Run]:
    """The run after each size of vectors."""
    sizes = integers("bytes", config.bytes)
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    encoder = load_encoder(config, config.pooling).without_code()
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
                "hybrid": f"{_words.BY_WORDS} documents with the {_words._RARE} rarest words join the {_words.NEAREST}"
                f" nearest; reciprocal ranks by cosine and by BM25, 1 / ({_words._RANK} + rank), are added",
                "words": "BM25 of jaxwhiten.scoring, over all documents",
                "versus": "differences to vectors alone of the same size, × 100, over the same queries",
                "single_ms": f"median of {config.single_queries} queries one by one, without encoding",
            },
            data=common.dataset(data, len(asked.queries)),
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
        alone = Scores(index.search(queries, FIRST + 1)[1], asked)
        methods = {VECTORS: alone, WORDS: Scores(by_words, asked)}
        times = {VECTORS: milliseconds(index, queries, None, config.single_queries)}
        for variant, changes in VARIANTS.items():
            with contextlib.ExitStack() as stack:
                for path, value in changes.items():
                    stack.enter_context(mock.patch(path, value))
                methods[variant] = Scores(hybrid(index, queries, asked.queries), asked)
                times[variant] = milliseconds(index, queries, asked.queries, config.single_queries)
        for method, scores in methods.items():
            row = {"dataset": name, "bytes": size, "method": method, "single_ms": times.get(method)}
            run.rows.append(Record(NO_WHITENING | row | scores.compared(alone, config)))
        say(f"{name}: {size or 'float32'}")
        yield run


def hybrid(index: Index, queries: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """The ids that hybrid search finds; −1 where it finds fewer."""
    ids = np.full((len(queries), min(FIRST + 1, len(index))), -1)
    for row, hits in zip(ids, index.hits(queries, FIRST + 1, texts=texts), strict=True):
        row[: len(hits)] = [hit.id for hit in hits]
    return ids


def milliseconds(index: Index, queries: np.ndarray, texts: Sequence[str] | None, count: int) -> float:
    """The median time of a query; hybrid with `texts`."""
    rows = measure.sample_rows(len(queries), count)
    return measure.single_milliseconds(
        lambda row: index.hits(queries[row : row + 1], FIRST, texts=texts and [texts[row]]), rows.tolist()
    )[0]


class Scores:
    """nDCG@10 and MRR@10 × 100 of each query."""

    def __init__(self, ids: np.ndarray, data: Any):
        first = data.others(ids)
        self.ndcg = 100 * metrics.discounted_gains(first, data.gold, FIRST)
        self.mrr = 100 * metrics.reciprocal_ranks(first, data.gold, FIRST)

    def compared(self, other: Scores, config: Hybrid) -> dict[str, Any]:
        """The means, the differences to others, and the queries that are worse."""
        figures: dict[str, Any] = {}
        for name in ("ndcg", "mrr"):
            values = getattr(self, name)
            figures[f"{name}_at_10"] = estimate(values, config.bootstrap, config.seed)
            difference = values - getattr(other, name)
            figures[f"{name}_versus"] = estimate(difference, config.bootstrap, config.seed)
        changes = self.ndcg - other.ndcg
        worse = changes < -1e-9
        figures["better"] = float((changes > 1e-9).mean())
        figures["worse"] = float(worse.mean())
        figures["loss"] = float(-changes[worse].mean()) if worse.any() else 0.0
        return figures


def _settings(runs: Sequence[Run]) -> Iterator[tuple[list[str], dict[str, Record]]]:
    """Labels of each search and size, and its rows by method."""
    for run in runs:
        for size in dict.fromkeys(row.bytes for row in run.rows):
            rows = {row.method: row for row in run.rows if row.bytes == size}
            yield [rows[VECTORS].dataset, f"{size or 'float32'}"], rows


def hybrid_table(*runs: Run) -> Table | None:
    """nDCG@10 × 100 of vectors, words and both, with intervals, and what both change; MRR@10 beside it."""
    body = []
    for labels, rows in _settings(runs):
        both = rows[HYBRID]
        three = (rows[VECTORS], rows[WORDS], both)
        line = [f"{number(row.ndcg_at_10.value, 1)} ({bounds(row.ndcg_at_10, 1)})" for row in three]
        line.append(_changed(both.ndcg_versus))
        line += [number(row.mrr_at_10.value, 1) for row in three]
        line.append(_changed(both.mrr_versus))
        line.append(f"{number(100 * both.better, 1)} / {number(100 * both.worse, 1)}")
        line.append(number(both.loss, 0))
        line += [number(row.single_ms, 2) for row in (rows[VECTORS], both)]
        body.append(labels + line)
    heads = ["search", "bytes", "vectors", "words", "both", "both − vectors"]
    heads += ["MRR@10: vectors", "MRR@10: words", "MRR@10: both", "MRR@10: both − vectors"]
    heads += ["queries better / worse, %", "loss if worse", "ms: vectors", "ms: both"]
    return Table(heads, body, 2, groups=[line[0] for line in body], merged=True) if body else None


def _changed(versus: Record) -> str:
    return f"{number(versus.value, 1, signed=True)} ({bounds(versus, 1, signed=True)}){mark(versus)}".strip()


def variants_table(*runs: Run) -> Table | None:
    """The difference of nDCG@10 × 100 to vectors alone, of hybrid search and of each variant; then the means."""
    body = [
        [*labels, *(change(rows[variant].ndcg_versus, 1).strip() for variant in VARIANTS)]
        for labels, rows in _settings(runs)
    ]
    if not body:
        return None
    found = [rows for _, rows in _settings(runs)]
    means = [fmean(rows[variant].ndcg_versus.value for rows in found) for variant in VARIANTS]
    body.append(["mean", "", *(number(mean, 1, signed=True) for mean in means)])
    return Table(["search", "bytes", *VARIANTS], body, 2, groups=[line[0] for line in body], merged=True)


TABLES = {"hybrid_table": hybrid_table, "variants_table": variants_table}
VIEWS = Views({"Vectors, words and both": hybrid_table, "Variants": variants_table}, {})
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/hybrid.py", Hybrid)
