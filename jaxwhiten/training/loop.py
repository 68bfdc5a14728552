"""The training loop that every program shares: resume or start, step, log, evaluate, save, and stop on request."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import jax

from jaxwhiten.errors import JaxwhitenError, NonFiniteError
from jaxwhiten.io import PathLike
from jaxwhiten.io.locks import locked
from jaxwhiten.options import TrainingOptions
from jaxwhiten.runtime.distributed import check_same, gather, is_writer
from jaxwhiten.runtime.hardware import keep_compiled
from jaxwhiten.terminal import interrupts
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log, plot_run
from jaxwhiten.training.plan import Plan
from jaxwhiten.training.step import (
    Evaluate,
    Params,
    TrainState,
    create_state,
    data_mesh,
    make_step,
    place_batch,
)
from jaxwhiten.types import Fields


class Trained(NamedTuple):
    """Parameters, on the host, of the best checkpoint, or of the last one if nothing is scored, and its step."""

    params: Params
    step: int


def run_plan(
    folder: PathLike,
    plan: Plan,
    batches: Batches,
    options: TrainingOptions,
    recipe: Fields,
    *,
    evaluate: Evaluate | None = None,
    best: str | None = None,
    evaluated: Callable[[int], None] | None = None,
    unit: tuple[str, int] = ("sentences", 1),
    overwrite: bool = False,
) -> Trained:
    """Trains `options.steps` steps, resuming from the folder's latest checkpoint if there is one; plots the loss curve.

    A checkpoint is written after every evaluation, every `save_every` steps, at the end, and when SIGTERM or the first
    Ctrl-C asks the run to stop. A checkpoint in progress is finished even if the run fails. `evaluate` is also called
    once before the first step. The highest value of the score `best` marks the best checkpoint. `evaluated` is called
    with the step after each evaluation, before its checkpoint is written, by the process that writes. The recipe is
    everything that determines the result. `unit` names the unit of the logged rate and its number per row. With
    `overwrite`, a run of another recipe is replaced.

    >>> def loss(params, batch, key):
    ...     return jnp.mean((batch["x"] - params["w"]) ** 2), {}
    >>> plan = Plan({"w": jnp.zeros(1)}, loss, rebuild=lambda params: params)
    >>> x, options = np.ones(8, np.float32), TrainingOptions(steps=2, batch_size=4)
    >>> batches = Batches(x.astype(int), lambda rows, *_: {"x": x[rows]}, batch_size=4, ladder=np.array([1]))
    >>> run_plan("run", plan, batches, options, options.record()).step
    2

    Raises:
      OutputError: Another training runs in the folder.
      MismatchError: The folder's run, or another process, has another recipe.
      FormatError: The latest checkpoint is damaged.
      NonFiniteError: The loss or the norm of the gradient is NaN or infinite; the checkpoints are from earlier steps.
      KeyboardInterrupt: After Ctrl-C, when the checkpoint is written; the same call resumes the run.
      SystemExit: After SIGTERM, likewise, with the code 143.
    """
    check_same("the recipe of the run", dict(recipe))
    keep_compiled()
    mesh = data_mesh(options)
    steps = options.steps
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, 0) if is_writer() else contextlib.nullcontext():
        checkpoints = Checkpoints(folder, recipe, best=best, keep=options.keep, overwrite=overwrite)
        state = create_state(plan.params, options, mesh)
        if checkpoints.latest is not None:
            state, position = checkpoints.restore(state)
            batches.set_position(position)
        start = number = int(state.step)
        stopped: set[int] = set()  # signals that any process has received
        log = Log(
            folder,
            steps,
            start=start,
            progress=options.progress,
            unit=unit[0],
            per_step=options.batch_size * unit[1],
        )

        def scored(state: TrainState, number: int) -> dict[str, float]:
            # On the host: the next step donates the device buffers. In all processes they are the writer's.
            scores: dict[str, float] = gather(cast("Evaluate", evaluate)(jax.device_get(state.params)))[0]
            log.scores(number, scores)
            if evaluated is not None and is_writer():
                evaluated(number)
            return scores

        try:
            if evaluate is not None and start == 0:
                scored(state, 0)
            step = make_step(plan.loss, options, mesh, plan.frozen)
            if start < steps:
                log.compiles()
            waiting = []
            with stop_requests() as seen:
                while number < steps and not stopped:
                    state, metrics = step(state, place_batch(next(batches), mesh))
                    number += 1
                    waiting.append((number, metrics))

                    last = number == steps
                    scores = None
                    # Several processes agree on whether to stop.
                    if jax.process_count() == 1 or number % options.log_every == 0:
                        stopped = set().union(*gather(sorted(seen)))
                    evaluating = evaluate is not None and (last or _due(number, options.evaluate_every))
                    saving = evaluating or last or stopped or _due(number, options.save_every)
                    if saving or _due(number, options.log_every):
                        rows = jax.device_get(waiting)
                        waiting.clear()
                        if good := list(itertools.takewhile(_is_finite, rows)):
                            log.steps(good)
                        if len(good) < len(rows):
                            checkpoints.wait()
                            raise _not_finite(rows[len(good)], checkpoints)
                    if evaluate is not None and evaluating:
                        scores = scored(state, number)
                    if saving:
                        checkpoints.save(state, batches.position(), scores)
                checkpoints.wait()
            if number < steps:
                log.note(f"stopped at step {number} of {steps}, whose checkpoint is saved; rerun to resume")
            elif checkpoints.best != number:
                state, _ = checkpoints.restore(state, checkpoints.best)
        except BaseException:
            with contextlib.suppress(JaxwhitenError):  # the first error is the one to report
                checkpoints.close()
            raise
        finally:
            log.close()
        checkpoints.close()
        if is_writer():
            plot_run(folder)
        if signal.SIGINT in stopped:
            raise KeyboardInterrupt
        if number < steps:
            raise SystemExit(interrupts.STOPPED)
        return Trained(jax.device_get(state.params), int(state.step))


def _due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _is_finite(row: tuple[int, Fields]) -> bool:
    return math.isfinite(row[1]["loss"]) and math.isfinite(row[1]["grad_norm"])


def _not_finite(row: tuple[int, Fields], checkpoints: Checkpoints) -> NonFiniteError:
    number, metrics = row
    last = checkpoints.latest
    place = checkpoints.folder / "checkpoints" / str(last)
    remedy = "No checkpoint was written." if last is None else f"The last good checkpoint is {place}."
    return NonFiniteError(
        f"The loss is {metrics['loss']:g} and the norm of its gradient {metrics['grad_norm']:g} at step {number}, with"
        f" a learning rate of {metrics['learning_rate']:g}. {remedy} Use a lower learning rate and a new output folder,"
        " or check the data."
    )


@contextlib.contextmanager
def stop_requests() -> Iterator[set[int]]:
    """Collects SIGTERM and the first SIGINT while in the context; a second SIGINT interrupts as usual."""
    signals: set[int] = set()
    before: dict[int, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        if number in signals and number == signal.SIGINT and callable(handler := before[number]):
            handler(number, frame)
        signals.add(number)

    if threading.current_thread() is threading.main_thread():
        before |= {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
