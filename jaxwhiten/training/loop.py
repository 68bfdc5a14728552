"""The loop under every training program: step, log, evaluate, save, stop when asked to."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxwhiten.errors import NonFiniteError
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log
from jaxwhiten.training.state import Params, TrainState, place_batch
from jaxwhiten.training.step import StepFn

Evaluate = Callable[[Params], dict[str, float]]


class FitResult(NamedTuple):
    """The state after the last step made, and whether that was the last step of the run."""

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
    evaluate: Evaluate | None = None,
    evaluate_every: int = 0,
    save_every: int = 0,
    log_every: int = 10,
) -> FitResult:
    """Trains from the state's step to `total_steps`.

    A checkpoint is written after every evaluation, every `save_every` steps, at the end, and when SIGTERM or the
    first Ctrl-C asks the run to stop.

    Args:
      state: Fresh, or restored; its memory is given away.
      step: From `make_step`.
      batches: Standing at the state's position.
      mesh: From `data_mesh`.
      total_steps: Steps of the whole run.
      log: Where metrics go.
      checkpoints: Of this run.
      evaluate: Parameters to scores.
      evaluate_every: Steps between evaluations; there is one at the end in any case.
      save_every: Steps between checkpoints that need no evaluation; 0 for none.
      log_every: Steps between looks at the device's results, which it is not waited for in between.

    Returns:
      The state, and whether the run is finished rather than stopped.

    Raises:
      NonFiniteError: The loss is no longer a number. The checkpoints are from before that.
      JaxwhitenError: A checkpoint could not be written.
    """
    number = int(state.step)
    waiting = []
    with _StopRequest(log_every) as stop:
        while number < total_steps:
            state, metrics = step(state, place_batch(next(batches), mesh))
            number += 1
            waiting.append((number, metrics))

            last, stopping = number == total_steps, stop.requested(number)
            evaluating = evaluate is not None and (last or _due(number, evaluate_every))
            saving = evaluating or last or stopping or _due(number, save_every)
            if saving or _due(number, log_every):
                log.steps(_finite(jax.device_get(waiting)))
                waiting.clear()
            scores = evaluate(state.params) if evaluate is not None and evaluating else None
            if scores is not None:
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
                f"The loss is {metrics['loss']} at step {number}. Lower the learning rate, or look at the data; the "
                "checkpoints written so far are from before."
            )
    return rows


class _StopRequest:
    """Within the block SIGTERM and the first SIGINT are remembered; a second SIGINT interrupts as usual."""

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
        """Whether to stop after this step; several processes agree on it every few steps."""
        if jax.process_count() == 1:
            return self._asked
        if step % self._every:
            return False
        from jax.experimental import multihost_utils

        return bool(np.any(multihost_utils.process_allgather(np.array(self._asked))))
