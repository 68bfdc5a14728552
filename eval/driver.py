"""The one driver of the evaluations: it saves what an evaluator yields, and shows the finished run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from configs.settings import Scored
from eval.report import Views, remove_views
from eval.runs import Record, Run, machine

Evaluator = Callable[[Any], Iterator[Run]]


def driven(
    evaluator: Evaluator, views: Views | None = None, closing: Callable[[Run], str] | None = None
) -> Callable[[Any], None]:
    """The `main` of a program, from an evaluator that yields its run after each new row.

    The last run yielded is the finished one; an evaluator that yields none, as in a process that only encodes, shows
    nothing. `closing` makes the text below the tables.
    """

    def main(config: Scored) -> None:
        started = time.perf_counter()
        out = Path(config.out)
        run = None
        for run in evaluator(config):
            if not run.rows:
                remove_views(out)
            run.save(out)
        if run is None:
            return
        seconds = time.perf_counter() - started
        processes = Record(machine(), processes=jax.process_count())
        run = run.with_header(
            complete=True,
            seconds=seconds,
            machine=processes,
            resamples=config.bootstrap,
        )
        run.save(out)
        if views is not None:
            print(views.text(run, views.write(run, out)))
        if closing is not None:
            print(closing(run))

    return main
