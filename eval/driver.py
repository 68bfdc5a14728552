"""The one driver of evaluations and benchmarks: it saves what a program yields, and shows the finished run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from eval.report import Views
from eval.runs import Record, Run, machine

Evaluator = Callable[[Any], Iterator[Run]]


def driven(
    evaluator: Evaluator,
    views: Views | None = None,
    closing: Callable[[Run], str] | None = None,
    place: Callable[[Any], Path] = lambda config: Path(config.out),
) -> Callable[[Any], None]:
    """The `main` of a program, from an evaluator that yields its run after each new row.

    The last run yielded is the finished one; an evaluator that yields none, as in a process that only encodes, shows
    nothing. `closing` makes the text below the tables. `place` is the folder or file of the results.
    """

    def main(config: Any) -> None:
        started = time.perf_counter()
        path = place(config)
        run = None
        for run in evaluator(config):
            if views is not None and not run.rows:
                views.remove(path)
            run.save(path)
        if run is None:
            return
        processes = Record(machine(), processes=jax.process_count())
        run = run.with_header(complete=True, seconds=time.perf_counter() - started, machine=processes)
        run.save(path)
        if views is not None:
            print(views.text(run, views.write(run, path)))
        if closing is not None:
            print(closing(run))

    return main
