"""Fit, coding and search of the spectrum code, beside those of another commit, in one run.

    git worktree add FOLDER COMMIT
    python -m benchmarks.codes --before FOLDER [--documents 100000] [--rounds 5]

Every round starts a process for each checkout, in turn, which fits a code of 48 bytes from moments, codes the documents
and asks 300 queries one by one. Fit and coding are CPU time of all threads, a query is wall time; the least of all
rounds is kept beside the ratios, because threads that wait in a loop on a busy machine count as CPU time. Vectors are
normal with falling variances: times do not depend on what they mean.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 48
WIDTH = 384
QUERIES = 300
K = 10
OURS = "now"
BEFORE = "before"


def times(documents: int) -> dict[str, float]:
    """Milliseconds of the fit, of the coding of all documents, and of a query, by the jaxwhiten that is on the path."""
    from jaxwhiten import Moments
    from jaxwhiten.codes import SpectrumCode
    from jaxwhiten.search import build_index

    rng = np.random.default_rng(0)
    scales = np.arange(1, WIDTH + 1) ** -0.4
    x = (rng.standard_normal((documents, WIDTH)) * scales).astype(np.float32)
    queries = (rng.standard_normal((QUERIES, WIDTH)) * scales).astype(np.float32)
    moments = Moments().update(x)
    seconds = [time.process_time()]
    code = SpectrumCode(bytes=SIZE).fit(moments)
    seconds.append(time.process_time())
    code.encode(x)
    seconds.append(time.process_time())
    index = build_index(x, "faiss-flat", codes=code)
    durations = []
    index.search(queries[:1], K)
    for query in queries:
        start = time.perf_counter()
        index.search(query[None], K)
        durations.append(time.perf_counter() - start)
    fit, coding = np.diff(seconds)
    return {"fit_cpu_ms": 1e3 * fit, "coding_cpu_ms": 1e3 * coding, "search_p50_ms": 1e3 * float(np.median(durations))}


def measured(folder: Path, documents: int) -> dict[str, float]:
    """`times` of a checkout, in a process of its own."""
    from benchmarks.harness import printed

    words = ["-P", __file__, "--one", "--documents", f"{documents}"]
    figures: dict[str, float] = printed(words, PYTHONPATH=str(folder), JAX_PLATFORMS="cpu")
    return figures


def code_times_table(run: Any) -> Any:
    """Fit, coding and search of a code beside those of another commit."""
    from benchmarks.harness import table

    documents = f"{run.header.documents:,}"
    names = {
        "fit_cpu_ms": "fit a code from moments, CPU time",
        "coding_cpu_ms": f"code {documents} vectors, CPU time",
        "search_p50_ms": f"a query among {documents}, p50",
    }
    columns = {
        "least of all rounds": lambda row: names[row.part],
        "before, ms": lambda row: f"{row.before:,.1f}",
        "now, ms": lambda row: f"{row.now:,.1f}",
        "now ÷ before": lambda row: f"{row.now / row.before:.2f}",
    }
    return table(run, columns, 1)


TABLES = {"code_times_table": code_times_table}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="a checkout of the other commit")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help="measure the checkout on the path, and print")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(times(args.documents)))
        return
    if args.before is None:
        parser.error("expected --before FOLDER, a checkout of the commit to compare with")
    from benchmarks import harness

    folders = {OURS: Path(__file__).parents[1], BEFORE: args.before.resolve()}
    commits = {
        name: subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout[:7]
        for name, folder in folders.items()
    }
    measured_by: dict[str, list[dict[str, float]]] = {name: [] for name in folders}
    for number in range(args.rounds):
        for name in harness.rotated(list(folders), number):
            measured_by[name].append(measured(folders[name], args.documents))
            print(name, measured_by[name][-1], flush=True)
    rows = [
        {
            "part": part,
            **{name: min(run[part] for run in runs) for name, runs in measured_by.items()},
            "ratio": harness.ratio(
                {name: [run[part] for run in runs] for name, runs in measured_by.items()}, OURS, BEFORE
            ),
        }
        for part in measured_by[OURS][0]
    ]
    harness.save("codes", rows, documents=args.documents, bytes=SIZE, commits=commits, rounds=measured_by)


if __name__ == "__main__":
    main()
