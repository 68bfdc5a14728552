"""A whole run, as every training program calls it: resume or start, train, and return the best parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import optax

from jaxwhiten.runtime.compilation import keep_compiled
from jaxwhiten.runtime.distributed import check_same, from_writer, is_writer
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.checkpoint import Checkpoints
from jaxwhiten.training.log import Log, plot_run
from jaxwhiten.training.loop import Evaluate, RunOptions, fit
from jaxwhiten.training.state import Params, create_state, data_mesh
from jaxwhiten.training.step import LossFn, make_step


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
    """Trains for `steps` steps, resuming from the folder's latest checkpoint if there is one; plots the loss curve.

    Args:
      folder: Holds checkpoints, metrics and the curve.
      params: Initial parameters.
      loss_fn: The objective; see `make_step`.
      batches: At their first batch.
      optimizer: From `make_optimizer`.
      schedule: From `make_schedule`.
      steps: Steps of the whole run.
      batch_size: Rows per global batch, over all devices.
      recipe: Everything that determines the result; a folder with a run of another recipe is refused.
      accumulate: Parts each batch is split into for gradient accumulation.
      seed: Seed of the dropout noise.
      evaluate: Parameters to scores; also called once before the first step.
      best: The score whose highest value marks the best checkpoint.
      options: How the run is logged and checkpointed.

    Returns:
      The best parameters.

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
            log.scores(0, from_writer(evaluate(state.params)))
        step = make_step(loss_fn, optimizer, schedule, mesh, seed=seed, accumulate=accumulate)
        state, finished = fit(
            state,
            step,
            batches,
            mesh,
            total_steps=steps,
            log=log,
            checkpoints=checkpoints,
            options=options,
            evaluate=evaluate,
        )
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
