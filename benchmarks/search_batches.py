"""What the number of queries in a call does to full scans: FAISS in float32 and codes of 48 bytes.

    python -m benchmarks.search_batches [--documents 90000] [--rounds 5]

FAISS multiplies matrices by BLAS only where queries times dimensions reach a threshold, and scans vector by vector
below it. The vectors are random: a full scan takes the same time whatever they are.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

from benchmarks.harness import interleave, median, ratio, save
from jaxwhiten import normalize
from jaxwhiten.search import build_index

WIDTH, BYTES, K = 384, 48, 10
BATCHES = (1, 32, 300, 333, 334, 1000)  # the threshold of FAISS 1.15 lies between 333 × 384 and 334 × 384
FLOATS, OURS = "FAISS float32", "spectrum"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=90_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    x, q = (normalize(rng.standard_normal((n, WIDTH), dtype=np.float32)) for n in (args.documents, max(BATCHES)))
    indexes: dict[str, Any] = {FLOATS: faiss.IndexFlatIP(WIDTH), OURS: build_index(x, "faiss-flat", bytes=BYTES)}
    indexes[FLOATS].add(x)
    found = {}
    for batch in BATCHES:
        runs: dict[str, Callable[[], object]] = {
            name: functools.partial(index.search, q[:batch], K) for name, index in indexes.items()
        }
        seconds = interleave(runs, args.rounds)
        found[str(batch)] = {
            name: {"ms_a_query": 1000 * median(seconds[name]) / batch, "speed_to_float32": ratio(seconds, name, FLOATS)}
            for name in indexes
        }
        print(batch, {name: round(row["ms_a_query"], 3) for name, row in found[str(batch)].items()}, flush=True)
    save("search_batches", {"documents": args.documents, "width": WIDTH, "bytes": BYTES, "batches": found})


if __name__ == "__main__":
    main()
