"""Shared parts of the training programs: options from a config, and the results of a run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs import processes
from configs.settings import MLM, SBERT, Cross
from eval.data import load_sts
from eval.machine import devices
from jaxwhiten import Encoder, io, scoring
from jaxwhiten.datasets import Pairs
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import spearman
from jaxwhiten.options import TrainingOptions
from jaxwhiten.runtime import distributed


def options_of(config: SBERT | Cross | MLM) -> TrainingOptions:
    """The options of a run; InputError for invalid values. Rows are held out by the programs themselves."""
    names = {field.name for field in dataclasses.fields(TrainingOptions)}
    shared = {name: value for name, value in dataclasses.asdict(config).items() if name in names}
    return TrainingOptions(**{"held_out": 0.0, **shared})


def count(params: Any) -> int:
    """The number of values in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def splits(config: SBERT | Cross) -> dict[str, tuple[str, str]]:
    """The data on which a run is scored, by the name of the score."""
    pairs = [(task, "test") for task in config.test] + [(config.dev, "dev")] * bool(config.dev)
    return {f"{task} {split}": (task, split) for task, split in pairs}


def scored_pairs(config: SBERT, task: str, split: str) -> Pairs:
    """One split of an STS task."""
    by_split = load_sts(task, config.data.folder or None).splits
    if split not in by_split:
        raise InputError(f"{task} has no {split} split, only {', '.join(by_split)}.")
    return by_split[split]


def sts_score(pairs: Pairs) -> Callable[[Encoder], float]:
    """A function that scores an encoder: Spearman's correlation × 100, as `jaxwhiten.evaluate` computes it."""

    def encode(encoder: Encoder, texts: list[str], role: str | None) -> np.ndarray:
        vectors: np.ndarray = scoring.encoded(encoder, processes.share(texts), role, show_progress=False)
        return processes.gather_rows(vectors)

    return lambda encoder: 100 * spearman(scoring.compared(encoder, pairs, encode), pairs.score)


def write_results(
    config: SBERT | Cross,
    scores: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, Any],
    start: float,
) -> None:
    """Writes and prints the results of a finished run; `start` is a time of `time.perf_counter`."""
    output = Path(config.output)
    before = scores["before"]
    after = scores["after"]
    facts = {**facts, "seed": config.seed, "seconds": round(time.perf_counter() - start, 1)}
    if distributed.is_writer():
        io.write_json(output / "results.json", io.to_json({**scores, "hardware": devices(), **facts}))
    for name, value in after.items():
        print(f"{name}: {before[name]:.2f} before, {value:.2f} after")
    print(f"{output}/model written from step {facts['step']}, {facts['seconds']} s in this session")
    worse = {name: before[name] - value for name, value in after.items()}
    if lost := ", ".join(f"{drop:.2f} lower on {name}" for name, drop in worse.items() if drop > 0):
        print(
            f"Training made the model worse: {lost}. {output}/model was written anyway; keep {config.model}, or train"
            " with a lower learning rate or more rows."
        )
    distributed.gather(None)  # what comes next may read the model
