"""Samples of queries, the time of a search and its recall of the exact results, and a fair clock for a peer."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxwhiten import metrics
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.search import build_index

WARM_QUERIES = 1024  # at least one whole batch of every backend, so that nothing is compiled while the clock runs
TIE = 1e-6
_TOKENIZER_THREADS = "TOKENIZERS_PARALLELISM"


def sample_rows(n: int, count: int) -> np.ndarray:
    """At most `count` row numbers (0: all), spread evenly over n rows."""
    if not count or count >= n:
        return np.arange(n)
    return np.linspace(0, n - 1, count).astype(np.int64)


def sample_queries(data: RetrievalData, count: int) -> tuple[np.ndarray, list[str], metrics.Gold]:
    """At most `count` queries with gold (0: all), spread evenly: their numbers, texts, and gold."""
    rows = np.flatnonzero(np.diff(data.gold.indptr))
    rows = rows[sample_rows(len(rows), count)]
    return rows, [data.queries[i] for i in rows], data.gold.of(rows)


def batched_seconds(index: Any, queries: np.ndarray, k: int) -> float:
    """Seconds of one search with all queries at once, after a warm-up."""
    index.search(queries[:WARM_QUERIES], k)
    start = time.perf_counter()
    index.search(queries, k)
    return time.perf_counter() - start


def single_milliseconds(search: Callable[[Any], Any], queries: Sequence[Any]) -> tuple[float, float]:
    """Median and 99th percentile of searching for one query after another; the first pass is a warm-up."""
    for query in queries:
        search(query)
    times = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        times.append(1000 * (time.perf_counter() - start))
    return float(np.percentile(times, 50)), float(np.percentile(times, 99))


class Exact:
    """Exact neighbors of prepared queries in stored (whitened, normalized) vectors, as the reference for indexes."""

    def __init__(self, documents: np.ndarray, queries: np.ndarray, k: int, backend: str):
        self.documents = documents
        self.queries = queries
        scores, self.ids = build_index(documents, backend, normalize=False).search(queries, k)
        self.last = scores[:, -1]

    def recall(self, ids: np.ndarray) -> float:
        """The share of the results that belong to the exact first k; documents equally near as the k-th count."""
        hits = 0
        for start in range(0, len(ids), 1024):
            part = slice(start, start + 1024)
            scores = np.einsum("qd,qkd->qk", self.queries[part], self.documents[ids[part]])
            hits += int(((scores >= self.last[part, None] - TIE) & (ids[part] >= 0)).sum())
        return hits / ids.size


def keeping_tokenizer_threads(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a peer that turns off the threads of all tokenizers, as model2vec does; they are turned on again."""

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        threads = os.environ.get(_TOKENIZER_THREADS)
        try:
            return call(*args, **kwargs)
        finally:
            os.environ.pop(_TOKENIZER_THREADS, None)
            if threads is not None:
                os.environ[_TOKENIZER_THREADS] = threads

    return wrapper
