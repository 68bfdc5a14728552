"""Search at the paper's scale: what do 256 whitened dimensions save over 768, and what does exact search cost?

`python -m benchmarks.search_scale` takes minutes and about 8 GB; `--documents 20000 --queries 20000` is a quick look.

1. The index of the paper (FAISS inverted lists, nlist 1024, nprobe 5) over 299,364 documents and 290,654 queries: raw
   768 dimensions, whitened 768, whitened 256. Time is that of batched searches in turn, a slice of all queries each,
   so that a drift of the machine's speed hits all three; recall is against exact search for a sample of queries.
2. Exact search in JAX and in FAISS (flat) on the same vectors, on CPU, and on a GPU where there is one.

The vectors are generated. Their eigenvalues fall as (i + 25)^-2, which is close to what was measured for real encoders
(first 10 of 384 components of all-MiniLM-L6-v2, first_last_avg: 28 % of the variance; here 30 %), and their common
mean makes the cosine of two raw vectors 0.6 on average, as in BERT. A query is its document's latent vector, correlated
0.8; documents come in 3,000 topics.

References:
  Su et al. 2021 (BERT-whitening), section 4.4: 0.7488 ms raw against 0.2698 ms at 256 dimensions is a ratio of 0.36.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import harness
from eval.faiss_indexes import OPTIONS, FaissIndex
from eval.runs import Run
from jaxwhiten import Moments, Whitening, metrics
from jaxwhiten.search import build_index

DIMENSION = 768
KEPT = 256
TOPICS = 3000
PAPER_RATIO = 0.2698 / 0.7488
K = 10
SINGLE = 32  # queries searched one by one
GPU_COMMAND = "pip uninstall faiss-cpu; pip install 'jaxwhiten[cuda]'; python -m benchmarks.search_scale"


def generate(documents: int, queries: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Document and query vectors; query i belongs to document i (modulo the number of documents)."""
    rng = np.random.default_rng(seed)
    eigenvalues = (np.arange(1, DIMENSION + 1) + 25.0) ** -2
    scale = np.sqrt(eigenvalues / eigenvalues.sum())
    rotation = np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)))[0]
    mix = (scale[:, None] * rotation).astype(np.float32)
    mean = rng.standard_normal(DIMENSION)
    mean = (np.sqrt(0.6 / 0.4) * mean / np.linalg.norm(mean)).astype(np.float32)
    topics = rng.standard_normal((TOPICS, DIMENSION)).astype(np.float32)
    x = np.empty((documents, DIMENSION), np.float32)
    q = np.empty((queries, DIMENSION), np.float32)
    for start in range(0, max(documents, queries), 16384):
        count = min(start + 16384, max(documents, queries)) - start
        noise = rng.standard_normal((count, DIMENSION), np.float32)
        latent = np.float32(0.5**0.5) * (topics[rng.integers(0, TOPICS, count)] + noise)
        near = np.float32(0.8) * latent + np.float32(0.6) * rng.standard_normal((count, DIMENSION), np.float32)
        for array, part in ((x, latent), (q, near)):
            rows = array[start : start + count]
            np.matmul(part[: len(rows)], mix, out=rows)
            rows += mean
    return x, q


INDEX = "the paper's index"
EXACT = "exact search"
WIDTHS = ("768", "256")


def paper_index(x: np.ndarray, q: np.ndarray, slices: int, sample: int) -> dict[str, object]:
    """The three settings on the paper's index, searched in turn."""
    start = time.perf_counter()
    whitening = Whitening.from_moments(Moments().update(x).update(q))
    fit_seconds = time.perf_counter() - start
    settings = {
        "raw 768": None,
        "whitened 768": whitening,
        "whitened 256": whitening.with_params(n_components=KEPT),
    }
    chosen = np.linspace(0, len(q) - 1, min(sample, len(q))).astype(np.int64)
    sources = list(chosen[:, None] % len(x))
    indexes: dict[str, FaissIndex] = {}
    prepared: dict[str, np.ndarray] = {}
    rows: dict[str, dict[str, object]] = {}
    for name, fitted in settings.items():
        indexes[name] = index = FaissIndex(x, "faiss-ivf", whitening=fitted, nlist=1024, nprobe=5)
        prepared[name] = index.prepare(q)
        exact = build_index(x, "jax", whitening=fitted).search(prepared[name][chosen], K, prepared=True)[1]
        ids = index.search(prepared[name][chosen], K, prepared=True)[1]
        rows[name] = {
            "dimension": index.dimension,
            "memory_gib": 4 * index.size * index.dimension / 2**30,
            "index_bytes": index.nbytes,
            "build_seconds": index.build_seconds,
            "recall_at_10_of_exact": metrics.recalls(ids, list(exact), K).mean(),
            "own_document_found": metrics.recalls(ids, sources, K).mean(),
            "own_document_found_by_exact": metrics.recalls(exact, sources, K).mean(),
            "notes": index.notes,
        }
        print(f"{name}: recall@10 of exact {rows[name]['recall_at_10_of_exact']:.3f}", flush=True)
    parts = np.array_split(np.arange(len(q)), slices)
    seconds: dict[str, list[float]] = {name: [] for name in settings}
    for part in parts:
        for name, index in indexes.items():
            block = prepared[name][part[0] : part[-1] + 1]
            start = time.perf_counter()
            index.search(block, K, prepared=True)
            seconds[name].append(time.perf_counter() - start)
    for name, row in rows.items():
        row["ms_a_query"] = 1000 * sum(seconds[name]) / len(q)
    ratios = {
        f"{name} / {peer}": {
            "whole": sum(seconds[name]) / sum(seconds[peer]),
            "by_slice": harness.ratio(seconds, peer, name),
        }
        for name, peer in (("whitened 256", "raw 768"), ("whitened 256", "whitened 768"))
    }
    return {
        "documents": len(x),
        "queries": len(q),
        "slices": slices,
        "recall_measured_on_queries": len(chosen),
        "fit_seconds": fit_seconds,
        "settings": rows,
        "memory_ratio": rows["whitened 256"]["memory_gib"] / rows["raw 768"]["memory_gib"],
        "index_bytes_ratio": rows["whitened 256"]["index_bytes"] / rows["raw 768"]["index_bytes"],
        "time_ratio": ratios,
        "paper_time_ratio": PAPER_RATIO,
    }


def exact_search(x: np.ndarray, q: np.ndarray, rounds: int) -> dict[str, object]:
    """Exact search in JAX and FAISS, in turn, and whether they agree.

    FAISS runs three times: as it comes, where its threads and those of its BLAS get in each other's way on few cores,
    and with one thread of either kind. The ratio is to the fastest of the three.
    """
    whitening = Whitening.from_moments(Moments().update(x[: 1 << 16]), n_components=KEPT)
    result: dict[str, object] = {"queries": len(q), "documents": len(x), "gpu": _gpu()}
    for name, fitted in zip(WIDTHS, (None, whitening), strict=True):
        backends = ["jax", "faiss-flat", *(["faiss-gpu-flat"] if result["gpu"] is True else [])]
        indexes: dict[str, Any] = {
            backend: (FaissIndex if backend in OPTIONS else build_index)(x, backend, whitening=fitted)
            for backend in backends
        }
        prepared = indexes["jax"].prepare(q)
        hits = {backend: index.search(prepared, K, prepared=True) for backend, index in indexes.items()}
        runs = {backend: functools.partial(_search, index, prepared) for backend, index in indexes.items()}
        runs["faiss-flat, 1 OpenMP thread"] = functools.partial(_one_thread, "openmp", runs["faiss-flat"])
        runs["faiss-flat, 1 BLAS thread"] = functools.partial(_one_thread, "blas", runs["faiss-flat"])
        single = {backend: functools.partial(_one_by_one, index, prepared) for backend, index in indexes.items()}
        seconds = harness.interleave(runs, rounds)
        one_by_one = harness.interleave(single, rounds)
        flat = min((name for name in runs if name.startswith("faiss-flat")), key=lambda n: harness.median(seconds[n]))
        result[name] = {
            "queries_per_second": {b: len(q) / harness.median(times) for b, times in seconds.items()},
            "fastest_faiss_on_cpu": flat,
            "jax_times_as_fast": harness.ratio(seconds, "jax", flat),
            "single_query_ms": {b: 1000 * harness.median(times) / SINGLE for b, times in one_by_one.items()},
            "same_neighbours": float((hits["jax"][1] == hits["faiss-flat"][1]).mean()),
            "largest_score_difference": float(np.abs(hits["jax"][0] - hits["faiss-flat"][0]).max()),
        }
        print(f"exact, {name} dimensions: {result[name]}", flush=True)
    return result


def _search(index: Any, prepared: np.ndarray) -> None:
    index.search(prepared, K, prepared=True)


def _one_by_one(index: Any, prepared: np.ndarray) -> None:
    for row in range(SINGLE):
        index.search(prepared[row : row + 1], K, prepared=True)


def _one_thread(kind: str, run: Callable[[], None]) -> None:
    with threadpool_limits(1, user_api=kind):
        run()


def _gpu() -> bool | str:
    """Whether FAISS sees a GPU; otherwise the command that fills the gap."""
    try:
        import faiss
    except ImportError:
        return f"not run: {GPU_COMMAND}"
    return bool(hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()) or f"not run: {GPU_COMMAND}"


TABLES = {"speed_table": harness.speed_table}


def ratios(run: Run) -> Iterator[harness.Ratio]:
    """The exact search in JAX beside FAISS."""
    exact = run.header.exact
    for row in run.rows:
        if row.part == EXACT:
            task = f"exact search of {exact.documents:,} × {row.setting}, {exact.queries:,} queries, JAX"
            yield task, "FAISS flat, its fastest setting of threads", row.jax_times_as_fast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=299_364, help="default: the paper's 299364")
    parser.add_argument("--queries", type=int, default=290_654, help="default: the paper's 290654")
    parser.add_argument("--slices", type=int, default=8, help="parts the queries are searched in; default: 8")
    parser.add_argument("--sample", type=int, default=2000, help="queries searched exactly for the recall")
    parser.add_argument("--exact-queries", type=int, default=2048, help="queries of the exact search; default: 2048")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the exact search; default: 3")
    args = parser.parse_args()
    x, q = generate(args.documents, args.queries)
    exact = exact_search(x, q[: args.exact_queries], args.rounds)
    paper = paper_index(x, q, args.slices, args.sample)
    parts = {INDEX: paper.pop("settings"), EXACT: {width: exact.pop(width) for width in WIDTHS}}
    harness.save("search_scale", harness.flat(parts, "part", "setting"), paper_index=paper, exact=exact)
    ratio = paper["time_ratio"]["whitened 256 / raw 768"]["whole"]
    print(f"memory ratio {paper['memory_ratio']:.3f}, time ratio {ratio:.3f} (paper: {PAPER_RATIO:.3f})")


if __name__ == "__main__":
    main()
