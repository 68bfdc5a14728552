"""What the training programs share: the run from batches and loss to the best parameters, and its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxwhiten import io, report
from jaxwhiten.runtime import distributed
from jaxwhiten.training import Batches, Evaluate, RunOptions, Trained, make_optimizer, make_schedule, train

# What is shown or kept, not computed: a resumed run may change it.
SHOWN_ONLY = ("output", "log_every", "save_every", "keep", "progress")


def make_recipe(config: ConfigDict, shown_only: tuple[str, ...], **found: Any) -> dict[str, Any]:
    """What decides the result: the config without what is only shown, and what was found on reading data and model."""
    left_out = SHOWN_ONLY + shown_only
    return {name: value for name, value in config.to_dict().items() if name not in left_out} | found


def run_training(
    config: ConfigDict,
    params: Any,
    loss: Any,
    batches: Batches,
    recipe: Mapping[str, Any],
    evaluate: Evaluate | None,
    *,
    best: str | None = None,
    unit: str = "sentences",
    per_row: int = 1,
    frozen: Any = None,
) -> Trained:
    """`jaxwhiten.training.train` with the optimizer, schedule and options that the config names."""
    schedule = make_schedule(config.learning_rate, recipe["steps"], warmup=config.warmup, decay=config.decay)
    rates = {name: config[name] for name in ("weight_decay", "clip_norm", "b2", "eps") if name in config}
    options = {field.name: config[field.name] for field in dataclasses.fields(RunOptions) if field.name in config}
    return train(
        config.output,
        params,
        loss,
        batches,
        make_optimizer(schedule, name=config.optimizer, **rates),
        schedule,
        steps=recipe["steps"],
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        seed=config.seed,
        recipe=recipe,
        evaluate=evaluate,
        best=best,
        options=RunOptions(**options, unit=unit, per_row=per_row),
        frozen=frozen,
    )


def write_results(
    config: ConfigDict,
    title: str,
    results: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, float]],
    recipe: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> None:
    """Writes `results.json` and `report.html`, in the process that writes."""
    if distributed.is_writer():
        io.write_json(Path(config.output) / "results.json", results)
        report.write_training(config.output, title, scores=scores, recipe=recipe, facts=facts)
