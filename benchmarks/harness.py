"""What every benchmark shares: interleaved rounds, medians and ratios with their spread, and runs with their tables."""

from __future__ import annotations

import functools
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval import report, runs

RESULTS = Path(os.environ.get("JAXWHITEN_BENCHMARKS", "runs/benchmarks"))
OURS = "jaxwhiten"
Ratio = tuple[str, str, Mapping[str, float]]  # what, the peer, and how many times as long it takes
runs.source()  # the commit before anything is measured
PAUSE = 0.05  # seconds before each run, in which threads that the last one left waiting in a loop go to sleep


def interleave(contestants: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Times each contestant `rounds` times, in rotated order, so that a drift of the machine's speed hits all of them.

    Args:
      contestants: Name -> what to time.
      rounds: Counted runs of each.
      warmup: Runs of each that are not counted (compilation, caches).

    Returns:
      Name -> seconds of each counted run.
    """
    for _ in range(warmup):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in rotated(list(contestants), number):
            gc.collect()
            time.sleep(PAUSE)
            start = time.perf_counter()
            contestants[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def rotated(names: list[str], number: int) -> list[str]:
    """The names in the order of a round: each begins one in turn, so that none always follows the same other."""
    first = 0
    if names:
        first = number % len(names)
    return [*names[first:], *names[:first]]


def ratio(seconds: Mapping[str, list[float]], name: str, peer: str) -> dict[str, float]:
    """How many times faster `ours` is than `peer`, round by round: median, lowest, highest."""
    ratios = [b / a for a, b in zip(seconds[name], seconds[peer], strict=True)]
    return {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


def in_words(ratio: Mapping[str, float] | None) -> str:
    """A ratio for the end of a line; nothing where there is none."""
    if ratio:
        return f"ours is {ratio['median']:.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return ""


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def torch_device() -> str:
    """PyTorch's name for the kind of device that JAX computes on, so that peers run on the same.

    Raises:
      SystemExit: PyTorch has no such device here, and a comparison would say nothing.
    """
    import jax
    import torch

    backend = jax.default_backend()
    if backend == "cpu":
        return "cpu"
    if backend == "gpu" and torch.cuda.is_available():
        return "cuda"
    raise SystemExit(
        f"JAX computes on {backend}, PyTorch {torch.__version__} cannot here, and peers are timed on the same device: "
        "install a PyTorch with CUDA beside jaxwhiten[cuda], or measure the CPU with JAX_PLATFORMS=cpu"
    )


def flat(nested: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    """Rows of nested results; the keys of each level become a column of that name.

    >>> flat({"fit": {"ours": {"ms": 2.0}, "peer": {"ms": 3.0}}}, "what", "contestant")
    [{'what': 'fit', 'contestant': 'ours', 'ms': 2.0}, {'what': 'fit', 'contestant': 'peer', 'ms': 3.0}]
    """
    if not names:
        return [dict(nested)]
    return [{names[0]: key, **row} for key, inner in nested.items() for row in flat(inner, *names[1:])]


def printed(words: Sequence[str], **variables: str) -> Any:
    """What a Python process prints last, read as JSON; `variables` are added to its environment.

    Raises:
      RuntimeError: It fails; with the end of what it says.
    """
    environment = os.environ | variables
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    if result.returncode:
        raise RuntimeError(f"{' '.join(words):.200}: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def save(name: str, rows: Iterable[Mapping[str, Any]], **facts: Any) -> Path:
    """Writes `runs/benchmarks/NAME.jsonl`: rows, and a header with the machine and facts.

    `make tables` keeps it in docs/runs/benchmarks and writes the tables of the documents from it.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"benchmarks.{name}"
    if spec and spec.name.startswith("benchmarks."):
        program = spec.name
    header = runs.header(program, {}, **facts, complete=True)
    path = runs.Run(header, [runs.Record(row) for row in rows]).save(RESULTS / f"{name}.jsonl")
    print(f"wrote {path}")
    return path


figure = functools.partial(report.figure, missing="")


def table(
    run: runs.Run,
    columns: report.Columns,
    words: int = 2,
    rows: Iterable[runs.Record] | None = None,
    notes: Sequence[str] | None = None,
) -> report.Table:
    """A line for each row of a run, or of `rows`; the first `words` columns hold words. The note is by `conditions`."""
    selected = run.rows if rows is None else list(rows)
    return report.table(selected, columns, words, "", notes=[conditions(run)] if notes is None else notes, merged=True)


def times(ratio: Mapping[str, float]) -> str:
    """A ratio with its range."""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def speed_of_ours(row: runs.Record) -> str:
    """How many times as fast as the contestant of a row ours is; nothing for ours."""
    if row.contestant == OURS:
        return ""
    return times(row.speed_of_ours)


def conditions(run: runs.Run) -> str:
    """Where and when a run was made; its header has the versions and the flags of the processor."""
    header = run.header
    machine = run.header.machine
    load = ""
    if machine.load_at_start is not None:
        load = f", load {machine.load_at_start:.1f} at the start"
    return f"`{header.command}`, {header.date[:10]}, {machine.cores} cores of {machine.cpu}{load}."


def speed_table(run: runs.Run) -> report.Table:
    """How many times as fast as each peer ours is, by the program's `ratios`."""
    rows = [runs.Record(what=task, beside=peer, ratio=ratio) for task, peer, ratio in runs.module(run).ratios(run)]
    return table(run, {"what": "what", "beside": "beside", "ratio": lambda row: times(row.ratio)}, 2, rows)


def headline_table(*sources: runs.Run) -> report.Table:
    """What README shows: rows of every `speed_table`, by the program's `HEADLINE`, a part of `what` and the peers."""
    rows = []
    for run in sources:
        part, peers = runs.module(run).HEADLINE
        for task, compared, ratio in speed_table(run).rows:
            peer = compared.partition(", off")[0]
            if part in task and peer in peers:
                dtype = task.partition(", dtype ")[2]
                job = task.partition(", ")[0] + f", dtype {dtype}" * bool(dtype)
                rows.append(runs.Record(job=job, peer=peer, ratio=ratio))
    columns = {"job": "job", "compared with": "peer", "their time ÷ ours": "ratio"}
    return table(sources[0], columns, 2, rows, notes=())


SPEED = {"speed_table": speed_table, "headline_table": headline_table}
