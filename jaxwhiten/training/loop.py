"""The training loop every program shares: resume or start, step, log, evaluate, save, and stop on request."""

from __future__ import annotations

import functools
import math
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from jaxwhiten.errors import NonFiniteError
from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.runtime.distributed import check_same, from_writer, is_writer
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log, plot_run
from jaxwhiten.training.step import LossFn, Params, StepFn, TrainState, create_state, data_mesh, make_step, place_batch

Evaluate = Callable[[Params], dict[str, float]]


@dataclass(frozen=True)
class RunOptions:
    """How a run is logged and checkpointed; none of it changes what is computed.

    Attributes:
      evaluate_every: Steps between evaluations; the last step is always followed by one.
      save_every: Steps between checkpoints in addition to those after evaluations; 0 for none.
      log_every: Steps between fetches of the metrics; in between, steps are dispatched without waiting.
      keep: How many of the latest checkpoints to keep, in addition to the best.
      progress: Whether to show a progress bar; None shows it on a terminal.
      unit: What the logged rate counts, such as `"sentences"`.
      per_row: Units per row of a batch.
    """

    evaluate_every: int = 0
    save_every: int = 0
    log_every: int = 10
    keep: int = 1
    progress: bool | None = None
    unit: str = "sentences"
    per_row: int = 1


class Trained(NamedTuple):
    """The result of a run.

    Attributes:
      params: Parameters of the best checkpoint by score, or of the last if nothing is scored.
      step: The step they were saved at.
      finished: False if the run was asked to stop; the same call resumes it.
    """

    params: Params
    step: int
    finished: bool


class FitResult(NamedTuple):
    """The state after the last step taken, and whether that was the last step of the run."""

    state: TrainState
    finished: bool


def train(
    folder: str | Path,
    params: Params,
    loss_fn: LossFn,
    batches: Batches,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    *,
    steps: int,
    batch_size: int,
    recipe: Mapping[str, Any],
    accumulate: int = 1,
    seed: int = 0,
    evaluate: Evaluate | None = None,
    best: str | None = None,
    options: RunOptions | None = None,
    frozen: Params | None = None,
) -> Trained:
    """Trains for `steps` steps, resuming from the folder's latest checkpoint if there is one; plots the loss curve.

    Args:
      folder: Holds checkpoints, metrics and the curve.
      params: Initial parameters.
      loss_fn: The objective; see `make_step`.
      batches: At their first batch.
      optimizer, schedule: From `make_optimizer` and `make_schedule`.
      steps: Steps of the whole run.
      batch_size: Rows per global batch, over all devices.
      recipe: Everything that determines the result; a folder with a run of another recipe is refused.
      accumulate, seed, frozen: As in `make_step`.
      evaluate: Parameters to scores; also called once before the first step.
      best: The score whose highest value marks the best checkpoint.
      options: How the run is logged and checkpointed.

    Raises:
      MismatchError: The folder's run, or another process, has another recipe.
      FormatError: Its latest checkpoint is damaged.
      NonFiniteError: The loss is NaN or infinite.
      JaxwhitenError: A checkpoint could not be written.
    """
    options = options or RunOptions()
    check_same("the recipe of the run", dict(recipe))
    keep_compiled()
    mesh = data_mesh(batch_size, accumulate)
    checkpoints = Checkpoints(Path(folder), recipe, best=best, keep=options.keep)
    state = create_state(params, optimizer, mesh)
    if checkpoints.latest is not None:
        state, position = checkpoints.restore(state)
        batches.set_position(position)
    start, per_step = int(state.step), batch_size * options.per_row
    log = Log(Path(folder), steps, start=start, per_step=per_step, unit=options.unit, progress=options.progress)
    try:
        if evaluate is not None and start == 0:
            log.scores(0, from_writer(evaluate(state.params)))
        step = make_step(loss_fn, optimizer, schedule, mesh, seed=seed, accumulate=accumulate, frozen=frozen)
        run = functools.partial(fit, log=log, checkpoints=checkpoints, options=options, evaluate=evaluate)
        state, finished = run(state, step, batches, mesh, total_steps=steps)
        if not finished:
            log.note(f"stopped at step {int(state.step)} of {steps}; the same command resumes it")
        elif checkpoints.best != int(state.step):
            state, _ = checkpoints.restore(state, checkpoints.best)
    finally:
        log.close()
    checkpoints.close()
    if is_writer():
        plot_run(folder)
    return Trained(state.params, int(state.step), finished)


def fit(
    state: TrainState,
    step: StepFn,
    batches: Batches,
    mesh: Mesh,
    *,
    total_steps: int,
    log: Log,
    checkpoints: Checkpoints,
    options: RunOptions,
    evaluate: Evaluate | None = None,
) -> FitResult:
    """Trains from the state's step to `total_steps`.

    A checkpoint is written after every evaluation, every `save_every` steps, at the end, and when SIGTERM or the
    first Ctrl-C asks the run to stop.

    Args:
      state: Fresh or restored; its buffers are donated.
      step, mesh: From `make_step` and `data_mesh`.
      batches: Positioned at the state's step.
      total_steps: Steps of the whole run.
      log, checkpoints, options: Of this run.
      evaluate: Parameters to scores.

    Raises:
      NonFiniteError: The loss is NaN or infinite. The checkpoints were written before that.
      JaxwhitenError: A checkpoint could not be written.
    """
    number = int(state.step)
    waiting = []
    with _StopRequest(options.log_every) as stop:
        while number < total_steps:
            state, metrics = step(state, place_batch(next(batches), mesh))
            number += 1
            waiting.append((number, metrics))

            last, stopping, scores = number == total_steps, stop.requested(number), None
            evaluating = evaluate is not None and (last or _due(number, options.evaluate_every))
            saving = evaluating or last or stopping or _due(number, options.save_every)
            if saving or _due(number, options.log_every):
                log.steps(_finite(jax.device_get(waiting)))
                waiting.clear()
            if evaluate is not None and evaluating:
                scores = from_writer(evaluate(state.params))  # equal in all processes: they agree on the best step
                log.scores(number, scores)
            if saving:
                checkpoints.save(state, batches.position(), scores)
            if stopping:
                break
        checkpoints.wait()
    return FitResult(state, number >= total_steps)


def _due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _finite(rows: list[Any]) -> list[Any]:
    for number, metrics in rows:
        if not math.isfinite(metrics["loss"]):
            raise NonFiniteError(
                f"The loss is {metrics['loss']} at step {number}. Lower the learning rate, or check the data; the "
                "checkpoints are from earlier steps."
            )
    return rows


class _StopRequest:
    """Records SIGTERM and the first SIGINT while in the context; a second SIGINT interrupts as usual."""

    def __init__(self, every: int):
        self._every = max(every, 1)
        self._seen: set[int] = set()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number in self._seen and number == signal.SIGINT and callable(before := self._before[number]):
            before(number, frame)
        self._seen.add(number)

    def requested(self, step: int) -> bool:
        """Whether to stop after this step; multiple processes agree on it every `every` steps."""
        if jax.process_count() == 1:
            return bool(self._seen)
        if step % self._every:
            return False
        from jax.experimental import multihost_utils

        return bool(np.any(multihost_utils.process_allgather(np.array(bool(self._seen)))))
