"""Exact search of codes in JAX, in several ways of decoding, beside float32 documents and FAISS's fast scan on the CPU.

    python -m benchmarks.coded_search [--documents 1000000] [--bytes 48,24,96] [--queries 1,16,256,1024] [--rounds 5]

Vectors are drawn on the device from a normal distribution of 384 axes whose variances fall like 1 / axis, with a mean;
queries are documents with noise. Every code has 16 points per half byte. `jaxwhiten` ways give the 10 documents of the
highest exact cosine with the decoded document; `float32` searches the vectors themselves; `faiss` is the scan of
`IndexPQFastScan` for 40 candidates on all cores of the CPU, without their exact scores. Times are of whole calls, from
queries on the host to results there. What is found is compared with brute force over decoded vectors.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import interleave, median, save
from jaxwhiten import scoring
from jaxwhiten.codes.gaussian import design, nearest_on_device
from jaxwhiten.search import jax_kernels as kernels

WIDTH = 384
K = 10
CHECKED = 64
BLOCK = 100_000
FAISS_DOCUMENTS = 1_000_000  # at most
# The last only for few queries: see `jaxwhiten.search.jax_kernels`.
WAYS = {"cpu": ["passes", "gather", "bytes"], "gpu": ["gather", "selects", "bytes"], "tpu": ["selects", "gather"]}
REPEATS = 4  # of a call, whose mean is one time


class Vectors:
    """Documents and queries, in the coordinates of the axes; those of the mean come first."""

    def __init__(self, documents: int, queries: int) -> None:
        self.variances = 1 / np.arange(1, WIDTH + 1)
        self.variances /= self.variances.sum()
        rng = np.random.default_rng(0)
        self.mean = rng.standard_normal(WIDTH).astype(np.float32) / np.float32((4 * WIDTH) ** 0.5)
        self.size = documents
        self.rows = -(-documents // kernels.TILE) * kernels.TILE
        spread = jnp.asarray(np.sqrt(self.variances), jnp.float32)
        keys = jax.random.split(jax.random.key(0), -(-self.rows // BLOCK))
        draw = jax.jit(lambda key: jax.random.normal(key, (BLOCK, WIDTH)) * spread)
        self.parts = [draw(key) for key in keys]  # x − μ
        noise = jax.random.normal(jax.random.key(1), (queries, WIDTH)) * spread
        q = np.asarray(self.parts[0][:queries] * 0.8 + noise * 0.6 + self.mean)
        self.queries = q / np.linalg.norm(q, axis=1, keepdims=True)

    def normalized(self) -> Any:
        """The documents at unit length, for float32."""
        unit = jax.jit(lambda x: (x + self.mean) / jnp.linalg.norm(x + self.mean, axis=1, keepdims=True))
        return jnp.concatenate([unit(part) for part in self.parts])[: self.rows]


class Coded:
    """Documents coded in so many bytes, and the coordinates of queries."""

    def __init__(self, vectors: Vectors, size: int) -> None:
        designed = design(vectors.variances, 2 * size, 4)
        axes = len(designed.group)
        self.centroids = designed.centroids * np.float32(np.sqrt(vectors.variances[:axes].sum()))
        groups, _, width = self.centroids.shape
        order = np.argsort(designed.group, kind="stable")
        self.map = np.zeros((WIDTH, groups * width), np.float32)
        self.map[order, designed.used] = 1
        rotation = jnp.asarray(self.map)

        @jax.jit
        def encode(x: Any) -> Any:
            numbers = nearest_on_device(jnp.matmul(x, rotation, precision="highest"), jnp.asarray(self.centroids))
            return numbers[:, ::2] | numbers[:, 1::2] << 4

        self.codes = jnp.concatenate([encode(part) for part in vectors.parts])[: vectors.rows]
        self.mean = vectors.mean
        self.size = vectors.size
        mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), kernels.local_mesh().axis_names)
        self.placed = kernels.place_codes(
            mesh,
            np.asarray(self.codes[: self.size]),
            self.centroids,
            self.mean @ self.map,
            float(self.mean @ self.mean),
        )
        self.raw = vectors.queries
        self.queries = vectors.queries @ self.map
        self.offsets = vectors.queries @ vectors.mean

    def decoded(self, rows: slice) -> np.ndarray:
        """The columns of ẑ of some documents."""
        codes = np.asarray(self.codes[rows])
        numbers = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
        return self.centroids[np.arange(numbers.shape[1]), numbers].reshape(len(codes), -1)

    @functools.cached_property
    def brute(self) -> tuple[np.ndarray, np.ndarray]:
        """The first documents and their cosines for the first queries, by the vectors μ + V ẑ themselves."""
        queries = self.raw[: CHECKED if self.size <= 1_000_000 else 8]
        rotation = jnp.asarray(self.map.T)

        @jax.jit
        def score(codes: Any, q: Any) -> Any:
            numbers = jnp.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
            z = jnp.asarray(self.centroids)[jnp.arange(numbers.shape[1]), numbers].reshape(len(codes), -1)
            y = jnp.matmul(z, rotation, precision="highest") + self.mean
            return jnp.matmul(q, (y / jnp.linalg.norm(y, axis=1, keepdims=True)).T, precision="highest")

        scores = np.concatenate(
            [np.asarray(score(self.codes[i : i + BLOCK], queries)) for i in range(0, self.size, BLOCK)], axis=1
        )[:, : self.size]
        first = scoring.best(scores, K)
        return np.take_along_axis(scores, first, axis=1), first


def fast_scan(coded: Coded) -> Any:
    """FAISS's fast scan of the same codes."""
    import faiss

    groups, _, width = coded.centroids.shape
    index = faiss.IndexPQFastScan(groups * width, groups, 4, faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector(coded.centroids.ravel(), index.pq.centroids)
    index.is_trained = True
    for start in range(0, coded.size, BLOCK):
        index.add(coded.decoded(slice(start, min(start + BLOCK, coded.size))))
    return index


def agreement(result: list[np.ndarray], coded: Coded, count: int) -> dict[str, float]:
    """How the scores and rows of a search agree with those of all documents, and the share that is certain."""
    checked = min(len(coded.brute[0]), count)
    scores, ids = (part[:checked] for part in coded.brute)
    return {
        "same_rows": float((result[1][:checked] == ids).mean()),
        "largest_difference": float(np.abs(result[0][:checked] - scores).max()),
        "certain": float(result[2].mean()),
    }


def measure(
    vectors: Vectors, coded: Coded, size: int, count: int, ways: list[str], rounds: int, faiss_index: Any, exact: Any
) -> dict[str, Any]:
    """All ways for one number of queries."""
    mesh = kernels.local_mesh()
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    placed = coded.placed
    q = coded.queries[:count]
    offsets = coded.offsets[:count]
    errors: dict[str, str] = {}
    compile_seconds: dict[str, float] = {}

    def prepare(kernel: str) -> tuple[str, Any]:
        slack = 1e-5
        if dtype == jnp.bfloat16:
            slack = placed.largest[0] / 256
        if kernel == "passes":
            slack = placed.largest[1]
        arguments = (q, offsets, placed.codes, placed.inverse, placed.points, np.int32(placed.size), np.float32(slack))
        start = time.perf_counter()
        try:
            run = kernels.coded_searcher(mesh, K, dtype, kernel, jax.default_backend() == "cpu", placed.mirrored)
            compiled = run.lower(*arguments).compile()
            compile_seconds[kernel] = time.perf_counter() - start
            compiled(*arguments)
        except Exception as error:
            errors[kernel] = f"{type(error).__name__}: {error}"[:300]
            return kernel, None
        return kernel, lambda: [np.asarray(x) for x in compiled(*arguments)]

    def prepare_float32() -> tuple[str, Any]:
        block = min(vectors.rows, max(kernels.TILE, (128 << 20) // 4 // count // kernels.TILE * kernels.TILE))
        arguments = (vectors.queries[:count], exact, None, np.int32(vectors.size))
        compiled = kernels.searcher(mesh, K, block, None).lower(*arguments).compile()
        return "float32", lambda: [np.asarray(x) for x in compiled(*arguments)]

    with ThreadPoolExecutor() as pool:
        waiting = [*(pool.submit(prepare, kernel) for kernel in ways), pool.submit(prepare_float32)]
        runs = {name: run for name, run in (job.result() for job in waiting) if run is not None}
    call = jax.jit(lambda q, *rest: (q[:, :K], q[:, :K], q[:, 0]))
    runs["call alone"] = lambda: [np.asarray(x) for x in call(q, offsets, np.int32(0), np.float32(0))]
    if faiss_index is not None:
        runs["faiss"] = lambda: faiss_index.search(q, 40)
    timed = interleave({name: lambda run=run: [run() for _ in range(REPEATS)] for name, run in runs.items()}, rounds)
    seconds = {name: [second / REPEATS for second in series] for name, series in timed.items()}
    agree = {name: agreement(runs[name](), coded, count) for name in ways if name in runs}
    row = {
        "documents": vectors.size,
        "bytes": size,
        "queries": count,
        "seconds": seconds,
        "milliseconds": {name: 1000 * median(series) for name, series in seconds.items()},
        "agree": agree,
        "compile_seconds": compile_seconds,
        "errors": errors,
    }
    show(row)
    return row


def show(row: dict[str, Any]) -> None:
    """Prints the times of a row, the shortest first, and its errors."""
    print(f"{row['documents']:,} documents, {row['bytes']} bytes, {row['queries']} queries", flush=True)
    for name, milliseconds in sorted(row["milliseconds"].items(), key=lambda pair: pair[1]):
        print(f"  {name:45}{milliseconds:10.3f} ms  {row['agree'].get(name, '')}", flush=True)
    for name, error in row["errors"].items():
        print(f"  {name}: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", default="1000000")
    parser.add_argument("--bytes", default="48,24,96")
    parser.add_argument("--queries", default="1,16,256,1024")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    counts = [int(count) for count in args.queries.split(",")]
    rows: list[dict[str, Any]] = []
    for documents in (int(n) for n in args.documents.split(",")):
        start = time.perf_counter()
        vectors = Vectors(documents, max(counts))
        exact = vectors.normalized()
        for size in [int(size) for size in args.bytes.split(",")]:
            coded = Coded(vectors, size)
            index = None
            if documents <= FAISS_DOCUMENTS:
                with contextlib.suppress(ImportError):
                    index = fast_scan(coded)
            print(f"made after {time.perf_counter() - start:.0f} s; centroids {coded.centroids.shape}", flush=True)
            for count in counts:
                ways = WAYS[jax.default_backend()]
                if count > 16:
                    ways = ways[:-1]
                rows.append(measure(vectors, coded, size, count, ways, args.rounds, index, exact))
                save("coded_search", rows, width=WIDTH, k=K)


if __name__ == "__main__":
    main()
