"""Trains a cross-encoder: a classifier of sentence pairs, or a scorer of them for re-ranking.

    python -m train.cross --config configs/cross_nli.py
    python -m train.cross --config configs/cross_quora.py --config.data.file=PAIRS --config.data.exclude=TEST

Rows with classes are learnt by softmax, rows with scores by the cross-entropy of one sigmoid. The output folder holds
the checkpoints, metrics.jsonl, loss.png and, when the run is finished, results.json and `model/`: a folder
for `CrossEncoder.from_pretrained`, `jaxwhiten search --rerank` and sentence-transformers' CrossEncoder. SIGTERM
saves a checkpoint and ends the program with exit code 143, Ctrl-C with 130; the same command resumes the run.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np

from configs import launch
from configs.settings import Cross
from eval.data import STS_TASKS, load_nli, load_sts
from eval.searches import load_search
from jaxwhiten import CrossEncoder, Encoder, io, training
from jaxwhiten.datasets import Examples
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.models import load_pair_classifier
from jaxwhiten.runtime import distributed
from jaxwhiten.text import BulkTokenizer
from train import examples as sources
from train import pairs
from train.common import options_of, splits, write_results

# The kind of labels, and an objective of train.sbert that takes such rows.
LABELS = {"classes": "softmax", "scores": "cosine", "positives": "mnr"}


def main(config: Cross) -> None:
    """Runs one training, from its start or its latest checkpoint to the exported model."""
    start = time.perf_counter()
    io.check_folder(Path(config.output) / "model")  # before the work of training it
    options = options_of(config)
    held_out = {score: load_split(config, *split) for score, split in splits(config).items()}
    examples = load_examples(config, held_out)
    model, folder = load_pair_classifier(
        config.model, len(examples.classes) or 1, seed=config.seed, dtype=config.dtype, remat=config.remat
    )
    max_length = min(config.max_length, model.config.longest_input)
    table = pairs.pair_table(examples, BulkTokenizer(folder, max_length, model.config.vocab_size))
    params, rebuild = training.split_encoder(model)
    score = pairs.pair_evaluator
    scorers = {name: score(rebuild, folder, name, rows, max_length) for name, rows in held_out.items()}
    plan = training.Plan({"encoder": params}, pairs.pair_loss(rebuild), rebuild, examples.label)
    settings = {"batch_size": options.batch_size, "buckets": options.buckets, "seed": options.seed}
    batches = training.sentence_batches(table, plan.labels, **settings)
    options = options.resolved(batches.per_epoch)
    print(f"{batches.per_epoch} batches per epoch, {options.steps} steps")
    # The model by its name, rows by their content.
    model_settings = {name: getattr(config, name) for name in ("model", "max_length", "labels", "dev")}
    recipe = {**model_settings, **options.record(), "rows": table.key}
    best = None
    if config.dev:
        best = f"{config.dev} dev"
    trained = training.run_plan(
        config.output, plan, batches, options, recipe, evaluate=scorers.get(best or ""), best=best
    )
    states = {"before": plan.params, "after": trained.params}
    scores = {
        moment: {name: value for f in scorers.values() for name, value in f(params).items()}
        for moment, params in states.items()
    }
    if distributed.is_writer():
        model = rebuild(trained.params["encoder"])
        finished = CrossEncoder(model, folder, max_length=max_length, label_names=examples.classes)
        finished.save(Path(config.output) / "model")
    facts = {"step": trained.step, "rows": len(examples)}
    write_results(config, scores, facts, start)


def load_split(config: Cross, name: str, split: str) -> Examples:
    """A split of an STS task, or a source of NLI rows with all its splits."""
    folder = config.data.folder or None
    if name in STS_TASKS:
        return sources.sts_pairs(load_sts(name, folder).splits[split], *config.data.score_range)
    return sources.nli_pairs(load_nli(folder, sources=(name,)))


def load_examples(config: Cross, held_out: dict[str, Examples]) -> Examples:
    """The training rows, with negatives, and without rows that share a text with the data of the scores."""
    if config.labels not in LABELS:
        raise unknown_name("kind of labels", config.labels, LABELS)
    objective = training.OBJECTIVES[LABELS[config.labels]]
    examples = sources.load_examples(config.data, objective)
    objective.check(list(examples.columns), examples.label_kind)
    if config.data.limit:
        examples = sources.drawn(examples, config.data.limit, config.seed)
    if len(examples.columns) != 2:
        raise InputError(f"A cross-encoder takes rows of two sentences; these have {', '.join(examples.columns)}.")
    excluded = [column for rows in held_out.values() for column in rows.columns.values()]
    if config.data.exclude:
        retrieval = load_search(config.data.exclude, config.data.folder or None)
        excluded += [retrieval.documents, retrieval.queries]
    remaining = examples.without_sentences(excluded, plain)
    shared = len(examples) - len(remaining)
    print(f"{len(remaining)} rows of {' / '.join(remaining.columns)}; {shared} share a text with test data")
    first, second = remaining.columns.values()
    label = remaining.label
    if label is None:
        label = np.ones(len(remaining), np.float32)
    if config.negatives:
        together = np.flatnonzero(label >= 0.5).tolist()
        miner = Encoder.from_pretrained(config.miner)
        sides = [[side[row] for row in together] for side in (first, second)]
        mining = {"count": config.negatives, "depth": config.depth, "seed": config.seed}
        owners, negatives = training.mine_negatives(miner, *sides, **mining)
        print(f"{len(owners):,} negatives mined by {config.miner}")
        first = first + owners
        second = second + negatives
        label = np.concatenate([label, np.zeros(len(owners), np.float32)])
    return Examples({"first": first, "second": second}, label, examples.classes)


def plain(text: str) -> str:
    """A key of a text, its letters and digits: texts with equal keys count as the same text."""
    return re.sub(r"[\W_]+", "", text.lower())


if __name__ == "__main__":
    launch.run(main, "configs/cross_nli.py", Cross)
