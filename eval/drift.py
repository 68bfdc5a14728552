"""How often `jaxwhiten drift` gives each verdict: on random halves of one corpus, and on pairs of different corpora.

`python -m eval.drift banking77.npy wikipedia.npy … -o docs/runs/drift.jsonl`

Each file has the vectors of one corpus, as `jaxwhiten encode` writes them, in any order. A trial fits on some rows of a
corpus and judges as many others: of the same corpus, for each corpus of 8,000 rows or more, or of another one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eval.runs import Record, Run, header
from jaxwhiten import Whitening, codes

SIZES = (100, 200, 300, 500, 1000, 2000, 4000)  # rows of the fit, and rows judged
PAIRS = "different corpora"
FITS: dict[str, Callable[[np.ndarray], Any]] = {
    "code of 48 bytes": lambda x: codes.SpectrumCode(bytes=48).fit(x),
    "whitening to 128": lambda x: Whitening(n_components=min(128, len(x) - 1), gamma=0.0).fit(x),
    "documents": lambda x: Whitening(gamma=0.0).fit(x),
}


def trials(vectors: dict[str, np.ndarray], kind: str, count: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Sizes, and rows to fit on and to judge: of the corpus named `kind`, or for `PAIRS` of two different ones."""
    rng = np.random.default_rng(0)
    for trial in range(count):
        size = SIZES[trial % len(SIZES)]
        pair = rng.choice(list(vectors), 2, replace=False) if kind == PAIRS else [kind, kind]
        old, new = (rng.permutation(len(vectors[name])) for name in pair)
        yield (
            size,
            vectors[pair[0]][old[:size]],
            vectors[pair[1]][new[:size] if kind == PAIRS else old[size : 2 * size]],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the verdicts of `jaxwhiten drift`.")
    parser.add_argument("vectors", nargs="+", type=Path, help=".npy files, one per corpus, of at least 4,000 rows")
    parser.add_argument("--trials", type=int, default=100, help="of each kind; default: 100")
    parser.add_argument("-o", "--output", required=True, help="the .jsonl file to write")
    args = parser.parse_args()
    vectors = {path.stem: np.load(path) for path in args.vectors}
    rows = list[Record]()
    for kind in [*(name for name, x in vectors.items() if len(x) >= 2 * SIZES[-1]), PAIRS]:
        for fit, fitted in FITS.items():
            verdicts = [
                (size, codes.drift(fitted(old), new).verdict) for size, old, new in trials(vectors, kind, args.trials)
            ]
            counts = Counter(verdict for _, verdict in verdicts)
            wrong = sorted(size for size, verdict in verdicts if (verdict == "fine") == (kind == PAIRS))
            rows.append(Record({"rows": kind, "fit": fit, **{v: counts[v] for v in codes.VERDICTS}, "wrong at": wrong}))
            print(rows[-1], flush=True)
    corpora = {name: len(x) for name, x in vectors.items()}
    Run(header("eval.drift", {"trials": args.trials}, complete=True, sizes=SIZES, corpora=corpora), rows).save(
        args.output
    )


if __name__ == "__main__":
    main()
