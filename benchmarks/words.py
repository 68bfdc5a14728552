"""One query by vectors alone, by vectors and words, and by FTS5 alone, among sentences of Wikipedia.

    python -m benchmarks.words [--documents 100000,1000000]

The sentences are those of text/enwiki in $JAXWHITEN_DATA_DIR; a query is a sentence that is no document. In place of
encoded sentences stand normal vectors with falling variances, whose time is the same. Every query is new to each
contestant; those of `warm` come before, uncounted. The peer is what SQLite alone would do, for every tenth query: the
ten best by its own BM25 among all documents that have any word of the query.
"""

from __future__ import annotations

import functools
import itertools
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import harness
from benchmarks.harness import figure, table
from benchmarks.search_batches import documents as vectors
from configs.settings import Config, setting
from eval.pydocs import split_docstring
from eval.report import Table
from eval.runs import Run
from eval.searches import wikipedia
from jaxwhiten import SpectrumCode, load_index
from jaxwhiten.datasets import Corpus
from jaxwhiten.search import Index, build_index

BYTES = 96
K = 10
WORDS = range(5, 31)  # of a sentence
_OF_PEER = 10  # queries, of which it gets one
BY_VECTORS, BY_BOTH, FTS5 = "vectors", "vectors and words", "FTS5 alone"


@dataclass(slots=True)
class Words(Config):
    """The settings of benchmarks.words."""

    documents: str = setting("100000,1000000", "numbers of them")
    queries: int = setting(300, "counted")
    warm: int = setting(30, "queries before these")


def sentences(corpus: Corpus) -> Iterator[str]:
    """The sentences of passages."""
    for passage in corpus.passages():
        while passage:
            sentence, passage = split_docstring(passage)
            if len(sentence.split()) in WORDS:
                yield sentence


def by_words(index: Index, query: str) -> list[tuple[int]]:
    """The ten best rows by FTS5's own BM25."""
    either = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
    best = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
    return index.database.rows(best, [either, K])


def milliseconds(index: Index, queries: Sequence[str], rows: np.ndarray, warm: int) -> dict[str, np.ndarray]:
    """The time of each query by each contestant, in turn."""
    taken: dict[str, list[float]] = {BY_VECTORS: [], BY_BOTH: [], FTS5: []}
    for number, query in enumerate(queries):
        row = rows[number : number + 1]
        calls: dict[str, Callable[[], object]] = {
            BY_VECTORS: functools.partial(index.hits, row, K),
            BY_BOTH: functools.partial(index.hits, row, K, texts=[query]),
        }
        if number % _OF_PEER == 0:
            calls[FTS5] = functools.partial(by_words, index, query)
        for name in harness.rotated(list(calls), number):
            start = time.perf_counter()
            calls[name]()
            taken[name].append(1000 * (time.perf_counter() - start))
    return {name: np.array(series[len(series) * warm // len(queries) :]) for name, series in taken.items()}


def measure(config: Words) -> Iterator[harness.Row]:
    """Every number of documents."""
    corpus = wikipedia("benchmarks.words", None)
    asked = config.queries + config.warm
    for count in map(int, config.documents.split(",")):
        texts = list(itertools.islice(sentences(corpus), count + asked))
        if len(texts) < count + asked:
            raise SystemExit(f"{len(texts):,} sentences of Wikipedia, of which {count + asked:,} are needed.")
        order = np.random.default_rng(0).permutation(len(texts))
        queries = [texts[place] for place in order[:asked]]
        documents = [texts[place] for place in order[asked:]]
        x = vectors(count)
        with tempfile.TemporaryDirectory() as scratch:
            file = f"{scratch}/words.db"
            code = SpectrumCode(bytes=BYTES).fit(x[:100_000])
            build_index(x, codes=code, documents=documents).save(file)
            taken = milliseconds(load_index(file), queries, vectors(asked, seed=1), config.warm)
        for name, series in taken.items():
            p50, p99 = np.percentile(series, [50, 99])
            more = p50 - np.median(taken[BY_VECTORS])
            yield {
                "documents": count,
                "search": name,
                "p50_ms": float(p50),
                "p99_ms": float(p99),
                "more_ms": float(more),
            }


def words_table(run: Run) -> Table:
    """What words add to the time of a query."""
    columns = {"documents": lambda row: f"{row.documents:,}", "search": "search"}
    columns |= {"p50, ms": figure("p50_ms", 1), "p99, ms": figure("p99_ms", 1)}
    return table(run, columns | {"more than vectors, ms": figure("more_ms", 1)})


TABLES = {"words_table": words_table}


if __name__ == "__main__":
    harness.run(measure, Words)
