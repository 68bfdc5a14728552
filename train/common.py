"""What the training programs share: the run from batches and loss to the best parameters, and its results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from jaxwhiten import io, report
from jaxwhiten.runtime import distributed, hardware
from jaxwhiten.training import (
    Batches,
    Evaluate,
    RunOptions,
    TokenTable,
    Trained,
    make_optimizer,
    make_schedule,
    sentence_batches,
    train,
)

# What is shown or kept, not computed: a resumed run may change it.
SHOWN_ONLY = ("output", "log_every", "save_every", "keep", "progress")


def make_recipe(config: ConfigDict, shown_only: tuple[str, ...], **found: Any) -> dict[str, Any]:
    """What decides the result: the config without what is only shown, and what was found on reading data and model."""
    left_out = SHOWN_ONLY + shown_only
    return {name: value for name, value in config.to_dict().items() if name not in left_out} | found


def make_batches(
    config: ConfigDict, table: TokenTable, labels: Any, pad_id: int, max_length: int, vectors: Any = None
) -> tuple[Batches, int]:
    """`sentence_batches` as the config wants them, and the steps of the run."""
    batches = sentence_batches(
        table,
        labels,
        batch_size=config.batch_size,
        max_length=max_length,
        pad_id=pad_id,
        buckets=config.buckets,
        seed=config.seed,
        process=(jax.process_index(), jax.process_count()),
        vectors=vectors,
    )
    steps = config.steps or config.epochs * batches.per_epoch
    print(f"{batches.per_epoch} batches per epoch, padded to {', '.join(map(str, batches.shapes))}; {steps} steps")
    return batches, steps


def splits(config: ConfigDict) -> dict[str, tuple[str, str]]:
    """What a run is scored on, by the name of its score."""
    named = [(task, "test") for task in config.test] + [(config.dev, "dev")] * bool(config.dev)
    return {f"{task} {split}": (task, split) for task, split in named}


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


def compare(scorers: Iterable[Evaluate], before: Any, after: Any) -> dict[str, dict[str, float]]:
    """The scores of the parameters before and after a run."""
    both = {"before": before, "after": after}
    return {when: {k: v for score in scorers for k, v in score(params).items()} for when, params in both.items()}


def finish(
    config: ConfigDict,
    title: str,
    scores: Mapping[str, Mapping[str, float]],
    recipe: Mapping[str, Any],
    began: float,
    **facts: Any,
) -> None:
    """Writes and prints what a finished run, which began at a time of `time.perf_counter`, has changed."""
    facts |= {"seed": config.seed, "seconds": round(time.perf_counter() - began, 1)}
    write_results(config, title, {**scores, **facts}, scores, recipe, {"hardware": hardware.describe(), **facts})
    for name, value in scores["after"].items():
        print(f"{name}: {scores['before'][name]:.2f} before, {value:.2f} after")
    print(f"{config.output}/model written from step {facts['step']}, {facts['seconds']} s in this session")
