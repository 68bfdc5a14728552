"""The training loop every program shares: step, log, evaluate, save, and stop on request."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxwhiten.errors import NonFiniteError
from jaxwhiten.runtime.distributed import from_writer
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log
from jaxwhiten.training.state import Params, TrainState, place_batch
from jaxwhiten.training.step import StepFn

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


class FitResult(NamedTuple):
    """The state after the last step taken, and whether that was the last step of the run."""

    state: TrainState
    finished: bool


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
      step: From `make_step`.
      batches: Positioned at the state's step.
      mesh: From `data_mesh`.
      total_steps: Steps of the whole run.
      log: Where metrics go.
      checkpoints: Of this run.
      options: How often to evaluate, save and log.
      evaluate: Parameters to scores.

    Returns:
      The state, and whether the run is finished rather than stopped.

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

            last, stopping = number == total_steps, stop.requested(number)
            evaluating = evaluate is not None and (last or _due(number, options.evaluate_every))
            saving = evaluating or last or stopping or _due(number, options.save_every)
            if saving or _due(number, options.log_every):
                log.steps(_finite(jax.device_get(waiting)))
                waiting.clear()
            scores = None
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
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._asked = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def requested(self, step: int) -> bool:
        """Whether to stop after this step; multiple processes agree on it every `every` steps."""
        if jax.process_count() == 1:
            return self._asked
        if step % self._every:
            return False
        from jax.experimental import multihost_utils

        return bool(np.any(multihost_utils.process_allgather(np.array(self._asked))))
