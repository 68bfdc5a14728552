"""What the training programs share: the run from a plan to the best parameters, and its results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from jaxwhiten import Encoder, io, report
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed, hardware
from jaxwhiten.training import (
    Batches,
    Evaluate,
    Plan,
    RunOptions,
    TokenTable,
    Trained,
    make_optimizer,
    make_schedule,
    mine_negatives,
    sentence_batches,
    train,
)

# What is shown or kept, not computed: a resumed run may change it.
SHOWN_ONLY = ("output", "log_every", "save_every", "keep", "progress")


def make_recipe(config: ConfigDict, shown_only: tuple[str, ...], **found: Any) -> dict[str, Any]:
    """What decides the result: the config without what is only shown, and what was found on reading data and model."""
    left_out = SHOWN_ONLY + shown_only
    return {name: value for name, value in config.to_dict().items() if name not in left_out} | found


def order(config: ConfigDict) -> dict[str, Any]:
    """What decides the batches that this process sees, as `Batches` takes it."""
    process = (jax.process_index(), jax.process_count())
    return {"batch_size": config.batch_size, "seed": config.seed, "process": process}


def count(params: Any) -> int:
    """Numbers in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def splits(config: ConfigDict) -> dict[str, tuple[str, str]]:
    """What a run is scored on, by the name of its score."""
    named = [(task, "test") for task in config.test] + [(config.dev, "dev")] * bool(config.dev)
    return {f"{task} {split}": (task, split) for task, split in named}


def mined(config: ConfigDict, columns: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """First sentences of pairs, and a hard negative for each, as many as the config wants."""
    if len(columns) != 2:
        raise InputError(f"Negatives are mined for pairs; the rows have {len(columns)} sentences.")
    data, miner = config.data, Encoder.from_pretrained(config.data.miner)
    found = mine_negatives(miner, *columns, count=data.negatives, depth=data.depth, seed=config.seed)
    print(f"{len(found[0])} negatives mined by {data.miner}")
    return found


def run_training(
    config: ConfigDict,
    plan: Plan,
    batches: Batches,
    recipe: Mapping[str, Any],
    evaluate: Evaluate | None,
    *,
    best: str | None = None,
    unit: str = "sentences",
    per_row: int = 1,
) -> Trained:
    """`jaxwhiten.training.train` with the optimizer, schedule and options that the config names."""
    schedule = make_schedule(config.learning_rate, recipe["steps"], warmup=config.warmup, decay=config.decay)
    rates = {name: config[name] for name in ("weight_decay", "clip_norm", "b2", "eps") if name in config}
    optimizer = make_optimizer(schedule, name=config.optimizer, **rates)
    shown = {field.name: config[field.name] for field in dataclasses.fields(RunOptions) if field.name in config}
    how = {name: config[name] for name in ("batch_size", "accumulate", "seed")}
    how |= {"steps": recipe["steps"], "recipe": recipe, "evaluate": evaluate, "best": best, "frozen": plan.frozen}
    options = RunOptions(**shown, unit=unit, per_row=per_row)
    return train(config.output, plan.params, plan.loss, batches, optimizer, schedule, options=options, **how)


def train_rows(
    config: ConfigDict,
    title: str,
    plan: Plan,
    table: TokenTable,
    max_length: int,
    scorers: Mapping[str, Evaluate],
    export: Callable[[Any, Mapping[str, Any], Mapping[str, float]], None],
    *,
    began: float,
    pad_id: int,
    shown_only: tuple[str, ...] = ("test",),
    **facts: Any,
) -> bool:
    """Trains a plan on tokenised rows, from its start or its latest checkpoint, and writes and prints what came of it.

    `export` gets the trained parameters, the recipe and the scores, in the process that writes. `began` is a time of
    `time.perf_counter`. False if the run was asked to stop.
    """
    shape = {"max_length": max_length, "pad_id": pad_id, "buckets": config.buckets}
    batches = sentence_batches(table, plan.labels, vectors=plan.vectors, **shape, **order(config))
    steps = config.steps or config.epochs * batches.per_epoch
    print(f"{batches.per_epoch} batches per epoch, padded to {', '.join(map(str, batches.shapes))}; {steps} steps")
    recipe = make_recipe(config, shown_only, rows=table.key, steps=steps)  # rows by their content, not their place
    best, per_row = f"{config.dev} dev" if config.dev else None, table.sentences.shape[1]
    trained = run_training(config, plan, batches, recipe, scorers.get(best or ""), best=best, per_row=per_row)
    if not trained.finished:
        return False

    both = {"before": plan.params, "after": trained.params}
    scores = {when: {k: v for f in scorers.values() for k, v in f(params).items()} for when, params in both.items()}
    if distributed.is_writer():
        export(jax.device_get(trained.params), recipe, scores["after"])
    facts = {"step": trained.step, **facts, "seed": config.seed, "seconds": round(time.perf_counter() - began, 1)}
    if distributed.is_writer():
        io.write_json(Path(config.output) / "results.json", {**scores, **facts})
        named = {"hardware": hardware.describe(), **facts}
        report.write_training(config.output, title, scores=scores, recipe=recipe, facts=named)
    for name, value in scores["after"].items():
        print(f"{name}: {scores['before'][name]:.2f} before, {value:.2f} after")
    print(f"{config.output}/model written from step {trained.step}, {facts['seconds']} s in this session")
    distributed.wait_for_all()  # what comes next may read the model
    return True
