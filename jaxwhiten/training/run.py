"""A whole run: resume or start, train, and hand back the best parameters. What every training program calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optax

from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.runtime.distributed import check_same, from_writer, is_writer
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log, plot_run
from jaxwhiten.training.loop import Evaluate, fit
from jaxwhiten.training.state import Params, create_state, data_mesh
from jaxwhiten.training.step import LossFn, make_step


@dataclass(frozen=True)
class RunOptions:
    """How a run is kept and shown; none of it changes what is computed.

    Attributes:
      evaluate_every: Steps between evaluations; there is one at the end in any case.
      save_every: Steps between further checkpoints; 0 for none.
      log_every: Steps between looks at the device's results.
      keep: How many of the latest checkpoints to keep, beside the best.
      progress: Whether to show a bar; None shows it on a terminal.
      unit: What the rate counts, such as `"sentences"`.
      per_row: How many of them a row holds.
    """

    evaluate_every: int = 0
    save_every: int = 0
    log_every: int = 10
    keep: int = 1
    progress: bool | None = None
    unit: str = "sentences"
    per_row: int = 1


class Trained(NamedTuple):
    """What a run leaves.

    Attributes:
      params: Of the best checkpoint by score, or of the last where nothing is scored.
      step: The step they are from.
      finished: False for a run that was asked to stop; the same call goes on with it.
    """

    params: Params
    step: int
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
) -> Trained:
    """Trains to `steps`, going on from the folder's latest checkpoint if it has one, and draws the loss curve.

    Args:
      folder: Holds checkpoints, metrics and the curve.
      params: Initial parameters.
      loss_fn: The objective; see `make_step`.
      batches: At their start.
      optimizer: From `make_optimizer`.
      schedule: From `make_schedule`.
      steps: Of the whole run.
      batch_size: Rows of a global batch, over all devices.
      recipe: What decides the result; a folder whose run has another is refused.
      accumulate: Parts a batch is worked through in.
      seed: Of the dropout noise.
      evaluate: Parameters to scores; also called once before the first step.
      best: The score whose highest value marks the best checkpoint.
      options: How the run is kept and shown.

    Returns:
      The best parameters.

    Raises:
      MismatchError: The folder's run, or another process, has another recipe.
      FormatError: Its latest checkpoint is damaged.
      NonFiniteError: The loss is no longer a number.
      JaxwhitenError: A checkpoint could not be written.
    """
    options = options or RunOptions()
    check_same("the recipe of the run", dict(recipe))
    if evaluate is not None:
        evaluate = _alike(evaluate)
    keep_compiled()
    mesh = data_mesh(batch_size, accumulate)
    checkpoints = Checkpoints(Path(folder), recipe, best=best, keep=options.keep)
    state = create_state(params, optimizer, mesh)
    if checkpoints.latest is not None:
        state, position = checkpoints.restore(state)
        batches.set_position(position)
    log = Log(
        Path(folder),
        steps,
        start=int(state.step),
        per_step=batch_size * options.per_row,
        unit=options.unit,
        progress=options.progress,
        writer=is_writer(),
    )
    try:
        if evaluate is not None and int(state.step) == 0:
            log.scores(0, evaluate(state.params))
        step = make_step(loss_fn, optimizer, schedule, mesh, seed=seed, accumulate=accumulate)
        state, finished = fit(
            state,
            step,
            batches,
            mesh,
            total_steps=steps,
            log=log,
            checkpoints=checkpoints,
            evaluate=evaluate,
            evaluate_every=options.evaluate_every,
            save_every=options.save_every,
            log_every=options.log_every,
        )
        if not finished:
            log.note(f"stopped at step {int(state.step)} of {steps}; the same command goes on from there")
        elif checkpoints.best != int(state.step):
            state, _ = checkpoints.restore(state, checkpoints.best)
    finally:
        log.close()
    checkpoints.close()
    if is_writer():
        plot_run(folder)
    return Trained(state.params, int(state.step), finished)


def _alike(evaluate: Evaluate) -> Evaluate:
    """An evaluation whose scores are equal in all processes to the last bit, so that they agree on the best step."""
    return lambda params: from_writer(evaluate(params))
