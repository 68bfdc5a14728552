"""The driver of the benchmarks, and what they share: interleaved rounds, medians and ratios with their spread, tables.

A benchmark is a config and a function `measure(config)` that yields rows, and `Facts` for the header of its run.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import launch
from configs.settings import Config
from eval import report, runs
from eval.driver import driven

RESULTS = Path(os.environ.get("JAXWHITEN_BENCHMARKS", "runs/benchmarks"))
OURS = "jaxwhiten"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PAUSE = 0.05  # seconds before each run, in which threads that the last one left waiting in a loop go to sleep
Row = Mapping[str, Any]
runs.source()  # the commit before anything is measured


class Facts(dict[str, Any]):
    """Fields of the header of a run, which a benchmark yields among its rows."""


def run(measure: Callable[[Any], Iterator[Row]], kind: type[Config]) -> None:
    """Runs a benchmark with the settings of the command line."""
    name = sys.modules["__main__"].__spec__.name.removeprefix("benchmarks.")
    tables = getattr(sys.modules["__main__"], "TABLES", {}).values()
    launch.run(driven_by_rows(name, measure, tuple(tables)), kind)


def driven_by_rows(
    name: str,
    measure: Callable[[Any], Iterator[Row]],
    tables: Sequence[Callable[[runs.Run], report.Table]] = (),
) -> Callable[[Any], None]:
    """The `main` of a benchmark, which writes `runs/benchmarks/NAME.jsonl` and ends with its tables.

    `make tables` keeps the file in docs/runs/benchmarks and writes the tables of the documents from it.
    """

    def evaluator(config: Config) -> Iterator[runs.Run]:
        run = runs.Run(runs.header(f"benchmarks.{name}", dataclasses.asdict(config)))
        for row in measure(config):
            if isinstance(row, Facts):
                run = run.with_header(**row)
            else:
                run.rows.append(runs.Record(row))
                print(summary(row), flush=True)
            yield run

    def closing(run: runs.Run) -> str:
        return "\n\n".join([*(make(run).text() for make in tables), f"wrote {file}"])

    file = RESULTS / f"{name}.jsonl"
    return driven(evaluator, closing=closing, place=lambda config: file)


def summary(row: Row) -> str:
    """The words, numbers and ratios of a row in a line."""
    parts = []
    for key, value in row.items():
        if isinstance(value, dict) and "median" in value:
            value = times(value)
        elif isinstance(value, float):
            value = f"{value:,.4g}"
        if isinstance(value, str | int):
            parts.append(f"{key} {value}")
    return ", ".join(parts)


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
