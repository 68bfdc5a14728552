"""What an index costs its readers: searches of six threads by it, and by the backend alone.

    python -m benchmarks.search_threads [--documents 20000] [--rounds 21]

`index` is `Index.search` of an index in a file, which others may change; `backend` is the search of the backend alone,
without a look at the file, ids and the order of ties. Each round is the same number of searches by six threads, in turn
with the others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import flat, interleave, median, ratio, save
from jaxwhiten.search import Index, build_index

BACKENDS = {"faiss-flat": {}, "faiss-ivf": {"bytes": 48, "nlist": 64, "nprobe": 8}, "jax": {}}
THREADS = 6
SEARCHES = 40
QUERIES = 4
K = 10
WIDTH = 128


def _contestants(index: Index, queries: np.ndarray) -> dict[str, Callable[[], object]]:
    pool = ThreadPoolExecutor(THREADS)

    def side_by_side(search: Callable[[np.ndarray], Any]) -> None:
        starts = range(0, len(queries), QUERIES)
        list(pool.map(lambda start: search(queries[start : start + QUERIES]), starts))

    return {
        "index": lambda: side_by_side(lambda x: index.search(x, K)),
        "backend": lambda: side_by_side(lambda x: index.store.search(x, K, False)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    documents = rng.standard_normal((args.documents, WIDTH)).astype(np.float32)
    queries = rng.standard_normal((THREADS * SEARCHES * QUERIES, WIDTH)).astype(np.float32)
    figures = {}
    for backend, options in BACKENDS.items():
        with tempfile.TemporaryDirectory() as folder:
            index = build_index(documents, backend, **options)
            index.save(Path(folder) / "docs.db")
            seconds = interleave(_contestants(index, queries), args.rounds)
        figures[backend] = {
            "searches_per_second": {name: THREADS * SEARCHES / median(s) for name, s in seconds.items()},
            "of_backend": ratio(seconds, "index", "backend"),
        }
        print(f"{backend}: {figures[backend]}", flush=True)
    save("search_threads", flat(figures, "backend"), documents=args.documents, threads=THREADS)


if __name__ == "__main__":
    main()
