"""Codes in LanceDB's own index of inverted lists: the points of our code beside the quantizers that LanceDB trains.

    python -m benchmarks.lance [--dataset snli] [--bytes 48,96] [--partitions 1,32]

recall@10 is the share of the first ten of a search in float32, without looking at the stored float32 vectors again. All
lists are visited. With several partitions, what is coded is the difference from a list's center, and the code is
fitted on these differences. A tenth of the documents is added once the index is there, and then compacted into it.
RaBitQ of LanceDB 0.40 has one bit per dimension.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.encode import MODEL
from benchmarks.harness import save
from eval.searches import load_search
from jaxwhiten import Encoder, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.metrics import recalls
from jaxwhiten.search import build_index

K = 10
QUERIES = 500
Vectors = np.ndarray


def table_of(x: Vectors, folder: Path, make_index: Callable[[Any], Any]) -> tuple[Any, float]:
    """A table whose index was made when nine tenths of the rows were there, and the bytes of the index a row."""
    import lancedb
    import pyarrow as pa

    def rows(part: slice) -> Any:
        vectors = np.ascontiguousarray(x[part], np.float32)
        numbers = np.arange(part.start, part.stop)
        return pa.table({"id": numbers, "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), x.shape[1])})

    first = len(x) * 9 // 10
    table = lancedb.connect(folder).create_table("texts", rows(slice(0, first)))
    make_index(table)
    table.checkout_latest()
    table.add(rows(slice(first, len(x))))
    table.optimize()
    [index] = table.list_indices()
    return table, index.size_bytes / len(x)


def our_index(x: Vectors, size: int, partitions: int) -> tuple[Vectors, float, Callable[[Any], Any], Vectors]:
    """The vectors that LanceDB gets, the stretch of queries, what makes the index, and the matrix Vᵀ of queries."""
    centers = np.zeros((1, x.shape[1]), np.float32)
    stretch = SpectrumCode(bytes=size).fit(x).quantiser().stretch
    if partitions > 1:
        import faiss

        clusters = faiss.Kmeans(x.shape[1], partitions, seed=1)
        clusters.train(x)
        centers = clusters.centroids
    nearest = np.argmax(x @ centers.T - np.square(centers).sum(axis=1) / 2, axis=1)
    quantiser = SpectrumCode(bytes=size).fit(x - centers[nearest]).quantiser()
    matrix = np.asarray(quantiser.affine.matrix, np.float32)
    centroids = np.ascontiguousarray(centers @ matrix + quantiser.center[0], np.float32)
    codebook = np.ascontiguousarray(quantiser.centroids)

    def make_index(table: Any) -> None:
        table.to_lance().create_index(
            "vector",
            "IVF_PQ",
            metric="L2",
            num_partitions=partitions,
            num_sub_vectors=2 * size,
            num_bits=4,
            ivf_centroids=centroids,
            pq_codebook=codebook,
        )

    return x @ matrix, stretch, make_index, matrix


def lance_indexes(partitions: int, size: int) -> Mapping[str, Callable[[Any], Any]]:
    """What makes LanceDB's own indexes."""
    from lancedb.index import IvfPq, IvfRq

    configs = {
        "LanceDB PQ, 8 bits": IvfPq("cosine", num_partitions=partitions, num_sub_vectors=size, num_bits=8),
        "LanceDB PQ, 4 bits": IvfPq("cosine", num_partitions=partitions, num_sub_vectors=2 * size, num_bits=4),
    }
    if size == 48:
        configs["LanceDB RaBitQ, 1 bit"] = IvfRq("cosine", num_partitions=partitions)
    return {
        name: lambda table, config=config: table.create_index("vector", config=config)
        for name, config in configs.items()
    }


def search_table(table: Any, queries: Vectors, metric: str, partitions: int) -> tuple[list[list[int]], float]:
    """The first ten of each query, and milliseconds a query."""
    start = time.perf_counter()
    results = []
    for query in queries:
        search = table.search(query).distance_type(metric).nprobes(partitions).limit(K)
        results.append([row["id"] for row in search.select(["id", "_distance"]).to_list()])
    return results, (time.perf_counter() - start) / len(queries) * 1e3


def recall(results: list[list[int]], exact: Vectors) -> float:
    return float(np.mean(recalls(np.asarray(results), exact.tolist(), K)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", default="snli", help="a name or folder of eval.searches")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--bytes", default="48,96")
    parser.add_argument("--partitions", default="1,32")
    args = parser.parse_args()
    data = load_search(args.dataset, None)
    encoder = Encoder.from_pretrained(args.model)
    store = EmbeddingStore()
    x = np.ascontiguousarray(normalize(np.asarray(store.encode(encoder, data.documents))))
    queries = np.ascontiguousarray(normalize(np.asarray(store.encode(encoder, data.queries[:QUERIES]))))
    exact = build_index(x).search(queries, K)[1]
    rows = list[dict[str, Any]]()
    for size in map(int, args.bytes.split(",")):
        index = build_index(x, bytes=size, tuned=True)
        row: dict[str, Any] = {"bytes": size, "partitions": None, "index": "jaxwhiten, faiss-flat"}
        rows.append(row | {"recall": recall(index.search(queries, K)[1].tolist(), exact)})
        for partitions in map(int, args.partitions.split(",")):
            mapped, stretch, make_index, matrix = our_index(x, size, partitions)
            contestants = {"LanceDB, points of our code": (mapped, queries @ matrix * stretch, "l2", make_index)}
            for name, make in lance_indexes(partitions, size).items():
                contestants[name] = (x, queries, "cosine", make)
            for name, (vectors, mapped_queries, metric, make) in contestants.items():
                with TemporaryDirectory() as folder:
                    table, nbytes = table_of(vectors, Path(folder), make)
                    results, ms = search_table(table, mapped_queries, metric, partitions)
                row = {"bytes": size, "partitions": partitions, "index": name, "index_bytes": nbytes, "ms": ms}
                rows.append(row | {"recall": recall(results, exact)})
                print(rows[-1], flush=True)
    save(
        "lance",
        rows,
        dataset=data.name,
        documents=len(x),
        queries=len(queries),
        model=args.model,
        lancedb=metadata.version("lancedb"),
    )


if __name__ == "__main__":
    main()
