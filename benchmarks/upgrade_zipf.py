"""What an upgrade embeds as queries come, and how long they wait: Zipf-distributed queries over many documents.

    python -m benchmarks.upgrade_zipf [--documents 300000] [--queries 1000 10000] [--candidates 30 100] [--timed 1000]

Documents and queries are those of `benchmarks.wikipedia`, with a query for every third document. A query's rank is its
place in a random order, and its probability is in proportion to 1 / rank. The old encoder is jaxwhiten-tiny, whitened
on the documents, the new one all-MiniLM-L6-v2.

The first --timed queries are asked one by one of `Upgraded`: milliseconds of the first and the last hundred, and texts
embedded. What more queries embed is counted from the candidates of the old index, which are all that is embedded; the
run stops if count and `Upgraded` differ. The prediction beside the count is n (1 − (1 − C/n)^q) of n texts, with q the
distinct queries that the distribution makes expected: what is embedded if candidates are drawn evenly.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks import wikipedia
from benchmarks.harness import save
from jaxwhiten import Encoder, normalize
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.search import Index, Upgraded, build_index, search_text

K = 10
HUNDRED = 100
MAX_LENGTH = 64
OLD = "jaxwhiten-tiny"
NEW = "all-MiniLM-L6-v2"


def zipf_ranks(pool: int, queries: int, seed: int = 0) -> np.ndarray:
    """Numbers of the queries asked: ranks of a Zipf distribution with exponent 1."""
    return np.random.default_rng(seed).choice(pool, queries, p=zipf(pool))


def zipf(pool: int) -> np.ndarray:
    weights = 1 / np.arange(1, pool + 1)
    return weights / weights.sum()


def first_asked(queries: np.ndarray) -> np.ndarray:
    """The distinct queries, in the order in which they are first asked."""
    return queries[np.sort(np.unique(queries, return_index=True)[1])]


def embedded(candidates: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """How many distinct texts the first 1, 2, … distinct queries embed, [queries]."""
    hits = texts[candidates]
    order = np.repeat(np.arange(len(hits)), hits.shape[1])
    firsts = np.unique(hits.ravel(), return_index=True)[1]
    return np.cumsum(np.bincount(order[firsts], minlength=len(hits)))


def predicted(pool: int, queries: int, texts: int, candidates: int) -> dict[str, float]:
    """Distinct queries expected, and texts embedded if candidates are drawn evenly."""
    distinct = float(np.sum(1 - (1 - zipf(pool)) ** queries))
    return {"distinct": distinct, "texts": texts * (1 - (1 - candidates / texts) ** distinct)}


def milliseconds(times: list[float]) -> dict[str, float]:
    return {"p50_ms": float(np.quantile(times, 0.5)), "p99_ms": float(np.quantile(times, 0.99)), "first_ms": times[0]}


def asked_one_by_one(index: Index, old: Encoder, queries: list[str], candidates: int) -> dict[str, Any]:
    """Milliseconds of the first and the last hundred queries, and texts embedded by all."""
    new = Encoder.from_pretrained(wikipedia.ENCODERS[NEW], max_length=MAX_LENGTH)
    upgraded = Upgraded(index, old, new.warm_up(), candidates)
    times = []
    steady = []
    new.encode(queries[-candidates:] * 2)  # the programs of as many texts as a query has embedded
    for query in queries:
        start = time.perf_counter()
        upgraded.search([query], K)
        times.append(1000 * (time.perf_counter() - start))
    for query in queries[-HUNDRED:]:
        start = time.perf_counter()
        search_text(index, old, [query], K)
        steady.append(1000 * (time.perf_counter() - start))
    return {
        "embedded": len(upgraded.vectors.slots),
        "first": milliseconds(times[:HUNDRED]),
        "last": milliseconds(times[-HUNDRED:]),
        "old_index": milliseconds(steady),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=wikipedia.DOCUMENTS)
    parser.add_argument("--queries", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--candidates", type=int, nargs="*", default=[30, 100])
    parser.add_argument("--timed", type=int, default=1000, help="queries that are asked one by one")
    args = parser.parse_args()
    try:
        passages = wikipedia.passages(args.documents, every=3)
    except DataNotFoundError as error:
        print(f"left out: {error}")
        return
    pool = np.random.default_rng(1).permutation(len(passages.queries))
    log = pool[zipf_ranks(len(pool), max(*args.queries, args.timed))]

    raw = Encoder.from_pretrained(wikipedia.ENCODERS[OLD], pooling="first_last_avg", max_length=MAX_LENGTH)
    x = wikipedia.encoded(raw, EmbeddingStore(), passages.documents)
    old = raw.whiten(x)
    assert old.head.whitening is not None
    index = build_index(
        normalize(old.head.whitening.transform(x)),
        "faiss-flat",
        encoding=old.encoding(),
        documents=passages.documents,
    )
    texts = np.unique(passages.documents, return_inverse=True)[1]
    size = int(texts.max()) + 1
    distinct = first_asked(log)
    vectors = old.encode([passages.queries[i] for i in distinct])
    ranked = index.search(vectors, max(args.candidates))[1]
    rows = []
    for candidates in args.candidates:
        counts = embedded(ranked[:, :candidates], texts)
        one_by_one = [passages.queries[i] for i in log[: args.timed]]
        timed = asked_one_by_one(index, old, one_by_one, candidates)
        counted = int(counts[len(set(one_by_one)) - 1])
        if abs(counted - timed["embedded"]) > 0.001 * counted:  # a tie of scores at the last place
            raise SystemExit(f"{counted} texts counted, {timed['embedded']} embedded: there is nothing to extrapolate")
        for queries in args.queries:
            number = len(np.unique(log[:queries]))
            expected = predicted(len(pool), queries, size, candidates)
            row = {
                "candidates": candidates,
                "queries": queries,
                "distinct": number,
                "embedded": int(counts[number - 1]),
            }
            row |= {"share": row["embedded"] / size, "predicted": expected, "timed": timed}
            rows.append(row)
            print(
                f"C = {candidates}, {queries:,} queries, {number:,} distinct: {row['embedded']:,} texts,"
                f" {row['share']:.1%}; predicted {expected['texts']:,.0f}"
            )
        for name in ("first", "last", "old_index"):
            print(f"  {name}: p50 {timed[name]['p50_ms']:.1f} ms, p99 {timed[name]['p99_ms']:.1f} ms")
    save("upgrade_zipf", rows, provenance=passages.provenance, texts=size, pool=len(pool), timed=args.timed)


if __name__ == "__main__":
    main()
