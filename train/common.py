"""Shared parts of the training programs: rows from a config, the run of a plan, and its results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
from ml_collections import ConfigDict

from eval import report
from jaxwhiten import Encoder, io, training
from jaxwhiten.datasets import Examples, load_nli, load_sts, nli_examples, sts_examples, table_examples, text_examples
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import distributed, hardware

T = TypeVar("T")
Scores = dict[str, dict[str, float]]  # "before" and "after" training, by the name of the score
# Settings of display and storage, which a resumed run may change.
SHOWN_ONLY = ("output", "log_every", "save_every", "keep", "progress")


def make_recipe(config: ConfigDict, shown_only: tuple[str, ...], **found: Any) -> dict[str, Any]:
    """Everything that determines the result: the config without display settings, and facts about data and model."""
    left_out = SHOWN_ONLY + shown_only
    return {name: value for name, value in config.to_dict().items() if name not in left_out} | found


def count(params: Any) -> int:
    """The number of values in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def load_examples(data: ConfigDict, objective: training.Objective) -> Examples:
    """The rows that `config.data` names, in the form that the objective takes."""
    alone = objective.columns == (1, 1)
    if data.file and not data.columns:
        return text_examples(data.file, split=data.split_sentences, skip_bad_rows=data.skip_bad_rows)
    if data.file:
        return table_examples(
            data.file,
            data.columns,
            label=(data.label or None) if objective.label in ("class", "score") else None,
            classes=data.classes if objective.label == "class" else (),
            score_range=data.score_range,
            skip_bad_rows=data.skip_bad_rows,
        )
    if data.name == "nli":
        rows = load_nli(
            data.folder or None,
            sources=data.sources or None,
            exclude_overlap=data.exclude_overlap,
            skip_bad_rows=data.skip_bad_rows,
        )
        print(rows.summary())
        return nli_examples(rows, "sentences" if alone else "pairs" if objective.columns == (2, 2) else "triplets")
    pairs = load_sts(data.name, data.folder or None).splits["train"]
    return sts_examples(pairs, *data.score_range, "sentences" if alone else "pairs")


def splits(config: ConfigDict) -> dict[str, tuple[str, str]]:
    """The data on which a run is scored, by the name of the score."""
    named = [(task, "test") for task in config.test] + [(config.dev, "dev")] * bool(config.dev)
    return {f"{task} {split}": (task, split) for task, split in named}


def mined(config: ConfigDict, columns: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """First and second sentences of pairs with a hard negative each, as many as the config asks for."""
    if len(columns) != 2:
        raise InputError(f"Negatives are mined for pairs; the rows have {len(columns)} sentences.")
    data, miner = config.data, Encoder.from_pretrained(config.data.miner)
    found = training.mine_negatives(miner, *columns, count=data.negatives, depth=data.depth, seed=config.seed)
    print(f"{len(found[0])} negatives mined by {data.miner}")
    return found


def read(kind: type[T], config: ConfigDict, **more: Any) -> T:
    """A dataclass of arguments, filled from the config keys with the names of its fields."""
    names = {field.name for field in dataclasses.fields(kind)} & set(config) - set(more)
    return kind(**{name: config[name] for name in names}, **more)


def check_run(config: ConfigDict) -> None:
    """Raises InputError for invalid numbers of a run before anything is read."""
    if not config.steps and config.epochs <= 0:
        raise InputError(f"epochs={config.epochs!r}: expected a number above 0.")
    read(training.Optimization, config, steps=config.steps or 1)


def train_rows(
    config: ConfigDict,
    title: str,
    plan: training.Plan,
    table: training.TokenTable,
    scorers: Mapping[str, training.Evaluate],
    export: Callable[[Any, Mapping[str, Any], Scores], None],
    began: float,
    *,
    of_folder: Mapping[str, training.Evaluate] | None = None,
    fingerprints: Mapping[str, str] | None = None,
    shown_only: tuple[str, ...] = ("test",),
    **facts: Any,
) -> bool:
    """Trains a plan on tokenised rows, from its start or its latest checkpoint; writes and prints the results.

    `export` gets the trained parameters, the recipe and the scores, in the process that writes. `began` is a time of
    `time.perf_counter`. `of_folder` scores the model before training, by default as `scorers` do. Runs whose
    `fingerprints`, the contents behind names in the config, differ are different runs. Returns False if the run was
    asked to stop.
    """
    io.check_folder(Path(config.output) / "model")  # before the work of training it
    size, buckets, seed = config.batch_size, config.buckets, config.seed
    batches = training.sentence_batches(table, plan.labels, plan.vectors, batch_size=size, buckets=buckets, seed=seed)
    steps = config.steps or config.epochs * batches.per_epoch
    print(f"{batches.per_epoch} batches per epoch, padded to {', '.join(map(str, batches.shapes))}; {steps} steps")
    # Rows, models and labels by their content, not their place.
    recipe = make_recipe(config, shown_only, rows=table.key, steps=steps, fingerprints=dict(fingerprints or {}))
    best, per_row = f"{config.dev} dev" if config.dev else None, table.sentences.shape[1]
    how, options = read(training.Optimization, config, steps=steps), read(training.RunOptions, config, per_row=per_row)
    evaluate = scorers.get(best or "")
    trained = training.train(config.output, plan, batches, how, recipe, evaluate=evaluate, best=best, options=options)
    if not trained.finished:
        return False

    both = {"before": (of_folder or scorers, plan.params), "after": (scorers, trained.params)}
    scores = {
        when: {name: score for f in given.values() for name, score in f(params).items()}
        for when, (given, params) in both.items()
    }
    facts = {"step": trained.step, **facts, "seed": config.seed, "seconds": round(time.perf_counter() - began, 1)}
    if distributed.is_writer():
        export(trained.params, recipe, scores)
        io.write_json(Path(config.output) / "results.json", {**scores, **facts})
        named = {"hardware": hardware.describe(), **facts}
        report.write_training(config.output, title, scores=scores, recipe=recipe, facts=named)
    for name, value in scores["after"].items():
        print(f"{name}: {scores['before'][name]:.2f} before, {value:.2f} after")
    print(f"{config.output}/model written from step {trained.step}, {facts['seconds']} s in this session")
    worse = {name: scores["before"][name] - value for name, value in scores["after"].items()}
    if lost := ", ".join(f"{drop:.2f} lower on {name}" for name, drop in worse.items() if drop > 0):
        print(
            f"Training made the model worse: {lost}. {config.output}/model was written all the same; keep"
            f" {config.model}, or train with a lower learning rate or more rows."
        )
    distributed.wait_for_all()  # what comes next may read the model
    return True
