"""Search among real vectors: what whitening, centring and PCA do to inverted lists, and what codes cost and save.

    python -m benchmarks.search_real [--documents 300000] [--cache FOLDER] [--encoders all-MiniLM-L6-v2 ...]

Vectors are those of `benchmarks.wikipedia`; without its text, of the docstrings of Python's standard library.

1. Inverted lists (FAISS, nlist 1024) of raw vectors and three controls: centred only, PCA (centred, rotated, cut),
   whitened. nprobe is raised until recall@10 against exact search among the same vectors reaches `--recall`; times are
   at that recall. `imbalance` is FAISS's factor by which uneven lists raise the work: 1 is even.
2. Codes, scanned from end to end: FAISS's own of the raw vectors, as a user gets them from `index_factory`, and ours.
   Recall@10 is against exact search among raw float32 vectors, MRR@10 of the query's own document. FAISS decides on its
   threads itself; ours answers a single query on one.

Batched times are of all queries in slices, contestants in rotated order; single ones of 32 queries one by one.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jaxwhiten
from benchmarks import harness, wikipedia
from eval.pydocs import load_pydocs
from jaxwhiten import Encoder, Moments, Whitening, metrics
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.search import build_index

K = 10
KEPT = 128
SIZES = (48, 32, 16, 8)  # bytes of a code, the first into whose halves FAISS can cut the dimensions
SINGLE = 32
OURS = "spectrum"
# nprobe, tried until the recall is reached.
EFFORTS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256, 320, 512)
Found = tuple[np.ndarray, np.ndarray]


def real_vectors(name: str, documents: int, cache: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict]:
    """Documents, queries, the own document of each query, and where they come from."""
    try:
        passages = wikipedia.passages(documents)
    except DataNotFoundError:
        docs = load_pydocs()
        gold = np.array([docs.gold.ids[i] for i in docs.gold.indptr[:-1]])
        encoder = Encoder.from_pretrained(wikipedia.ENCODERS[name])
        x, q = (encoder.encode(list(texts), show_progress=False) for texts in (docs.documents, docs.queries))
        print("text/enwiki is not on this machine: docstrings of Python's standard library take its place")
        return x[:documents], q[gold < documents], gold[gold < documents], {"text": docs.name}
    return *wikipedia.vectors(name, passages, cache), passages.sources, passages.provenance


def exact(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The nearest documents by the inner product of unit vectors."""
    return build_index(x, "faiss-flat", normalize=False).search(q, K, prepared=True)[1]


def source_recall(ids: np.ndarray, documents: np.ndarray) -> dict[str, float]:
    """How well the own documents are found."""
    gold = metrics.Gold.from_pairs(np.arange(len(documents)), documents, len(documents))
    ranks = metrics.reciprocal_ranks(ids, gold, K)
    recalls = metrics.recalls(ids, gold, K)
    return {"mrr_at_10": ranks.mean(), "own_document_found": recalls.mean()}


def controls(x: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """The vectors that are searched, each of unit length."""
    moments = Moments().update(x)
    d = x.shape[1]

    def transform(gamma: float, k: int = d) -> Callable[[np.ndarray], np.ndarray]:
        whitening = Whitening.from_moments(moments, gamma=gamma, n_components=k)
        return lambda rows: jaxwhiten.normalize(whitening.transform(rows))

    return {
        f"raw, {d}": jaxwhiten.normalize,
        f"centred, {d}": transform(gamma=0.0),  # and rotated, which changes no inner product
        f"PCA, {KEPT}": transform(gamma=0.0, k=KEPT),
        f"whitened, {d}": transform(gamma=1.0),
        f"whitened, {KEPT}": transform(gamma=1.0, k=KEPT),
    }


def approximate(
    x: np.ndarray, q: np.ndarray, documents: np.ndarray, recall: float, slices: int, nlist: int
) -> dict[str, dict[str, Any]]:
    """Every control in inverted lists, at the nprobe that reaches the recall."""
    import faiss

    runs: dict[str, Callable[[np.ndarray], Found]] = {}
    prepared: dict[str, np.ndarray] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, change in controls(x).items():
        stored, prepared[name] = (np.ascontiguousarray(change(rows), np.float32) for rows in (x, q))
        nearest = exact(stored, prepared[name])
        start = time.perf_counter()
        index = faiss.index_factory(stored.shape[1], f"IVF{nlist},Flat", faiss.METRIC_INNER_PRODUCT)
        index.train(stored)
        index.add(stored)
        row = rows[name] = {"build_seconds": time.perf_counter() - start, **source_recall(nearest, documents)}
        row["mean_cosine"] = float((stored.mean(axis=0) ** 2).sum())
        row["imbalance"] = index.invlists.imbalance_factor()
        recalls: dict[int, float] = {}
        for effort in [n for n in EFFORTS if n < nlist] + [nlist]:
            index.nprobe = effort
            recalls[effort] = metrics.recalls(index.search(prepared[name], K)[1], list(nearest), K).mean()
            if recalls[effort] >= recall:
                break
        row |= {"effort": effort, "recall": recalls[effort], "recall_by_effort": recalls}
        runs[name] = functools.partial(_search, index)
        print(f"{name}: recall {recalls[effort]:.3f} at {effort}; {recalls}", flush=True)
    batched, single = timed(runs, prepared, slices)
    first = next(iter(runs))
    for name, row in rows.items():
        row |= {"ms_a_query": 1000 * sum(batched[name]) / len(q), "single_ms": _single_ms(single[name])}
        row["speed_to_raw"] = harness.ratio(batched, name, first)
        print(f"{name}: {row['ms_a_query']:.3f} ms, {harness.in_words(row['speed_to_raw'])}", flush=True)
    return rows


def codes(x: np.ndarray, q: np.ndarray, documents: np.ndarray, slices: int) -> dict:
    """Scans of codes beside float32."""
    import faiss

    x, q = (np.ascontiguousarray(jaxwhiten.normalize(rows), np.float32) for rows in (x, q))
    d = x.shape[1]
    size = next(size for size in SIZES if d % (2 * size) == 0)
    trained = {
        "FAISS float32": "Flat",
        "FAISS SQ8": "SQ8",
        f"FAISS PQ{size}": f"PQ{size}x8np",
        f"FAISS PQ{2 * size}x4 fast-scan": f"PQ{2 * size}x4fs",
        "FAISS RaBitQ": "RaBitQ",
        "FAISS RaBitQ fast-scan": "RaBitQfs",
    }
    nearest = exact(x, q)
    runs: dict[str, Callable[[np.ndarray], Found]] = {}
    rows: dict[str, dict] = {}
    for name, factory in trained.items():
        start = time.perf_counter()
        index = faiss.index_factory(d, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(x)
        index.add(x)
        rows[name] = {"bytes": int(index.sa_code_size()), "build_seconds": time.perf_counter() - start}
        runs[name] = functools.partial(_search, index)
    start = time.perf_counter()
    coded = build_index(x, "faiss-flat", bytes=size)
    rows[OURS] = {"bytes": size, "build_seconds": time.perf_counter() - start}
    runs[OURS] = functools.partial(_search, coded)
    for name, row in rows.items():
        ids = runs[name](q)[1]
        row |= {"recall_at_10": metrics.recalls(ids, list(nearest), K).mean(), **source_recall(ids, documents)}
        row["memory_mb"] = len(x) * row["bytes"] / 1e6
    batched, single = timed(runs, dict.fromkeys(runs, q), slices)
    for name, row in rows.items():
        row |= {"ms_a_query": 1000 * sum(batched[name]) / len(q), "single_ms": _single_ms(single[name])}
        row["speed_to_float32"] = harness.ratio(batched, name, "FAISS float32")
        row["single_speed_to_float32"] = harness.ratio(single, name, "FAISS float32")
        print(
            f"{name}: {row['bytes']} bytes, MRR@10 {row['mrr_at_10']:.3f}, recall {row['recall_at_10']:.3f}, "
            f"{row['ms_a_query']:.3f} ms, one by one {row['single_ms']:.3f} ms",
            flush=True,
        )
    return rows


def timed(
    runs: dict[str, Callable[[np.ndarray], Found]], queries: dict[str, np.ndarray], slices: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every slice of the queries, and of queries one by one in as many rounds."""
    parts = np.array_split(np.arange(len(next(iter(queries.values())))), slices)
    batched: dict[str, list[float]] = {name: [] for name in runs}
    for number, part in enumerate(parts):
        for name in harness.rotated(list(runs), number):
            block = queries[name][part[0] : part[-1] + 1]
            start = time.perf_counter()
            runs[name](block)
            batched[name].append(time.perf_counter() - start)

    def one_by_one(name: str) -> None:
        for row in range(min(SINGLE, len(queries[name]))):
            runs[name](queries[name][row : row + 1])

    return batched, harness.interleave({name: functools.partial(one_by_one, name) for name in runs}, 3)


def _single_ms(seconds: list[float]) -> float:
    return 1000 * harness.median(seconds) / SINGLE


def _search(index: Any, queries: np.ndarray) -> Found:
    return index.search(queries, K)


LISTS = "lists"
CODES = "codes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=wikipedia.DOCUMENTS)
    parser.add_argument("--cache", type=Path, help="folder of the vectors; default: the store of every program")
    parser.add_argument("--encoders", nargs="*", choices=wikipedia.ENCODERS, default=list(wikipedia.ENCODERS))
    parser.add_argument("--recall", type=float, default=0.9, help="at which inverted lists are compared; default: 0.9")
    parser.add_argument("--slices", type=int, default=3, help="parts the queries are searched in; default: 3")
    args = parser.parse_args()
    rows = list[dict[str, Any]]()
    encoders = {}
    for name in args.encoders:
        x, q, documents, provenance = real_vectors(name, args.documents, args.cache)
        print(f"\n{name}: {len(x):,} documents, {len(q):,} queries of {x.shape[1]} dimensions", flush=True)
        nlist = min(1024, len(x) // 39)
        encoders[name] = {
            "documents": len(x),
            "queries": len(q),
            "dimension": x.shape[1],
            "provenance": provenance,
            "nlist": nlist,
            "recall": args.recall,
        }
        parts = {LISTS: approximate(x, q, documents, args.recall, args.slices, nlist)}
        parts[CODES] = codes(x, q, documents, args.slices)
        rows += ({"encoder": name, **row} for row in harness.flat(parts, "part", "name"))
    harness.save("search_real", rows, encoders=encoders)


if __name__ == "__main__":
    main()
