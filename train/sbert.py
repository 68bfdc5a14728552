"""Fine-tunes an encoder into a sentence encoder.

    python -m train.sbert --config configs/nli.py
    python -m train.sbert --config configs/stsb.py --config.batch_size=32 --config.output=runs/stsb-32

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json, report.html and `model/`: a folder for `Encoder.from_pretrained`, `eval.sts` and sentence-transformers.
SIGTERM saves a checkpoint and ends the program with exit code 0, Ctrl-C with 130; the same command resumes the run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flax import nnx
from ml_collections import ConfigDict

from configs import launch
from jaxwhiten import Encoder, training
from jaxwhiten.datasets import Examples, Pairs, load_sts, write_pairs
from jaxwhiten.errors import InputError
from jaxwhiten.export import model_card, save_trained
from jaxwhiten.head import AUTO, modules_of, says_head
from jaxwhiten.models import StaticEncoder, load_model, resolve_folder
from jaxwhiten.parameters import DEFAULTS
from train import adapters, objectives
from train.common import Scores, check_run, count, load_examples, mined, splits, train_rows

BARE_LENGTH = 128  # in tokens, of an encoder whose folder describes no head


def main(config: ConfigDict) -> None:
    """Trains as the config says: one run, or several stages one after the other."""
    stages = config.get("stages", ())
    runs = [config[name] for name in stages] or [config]
    for run in runs:
        check_run(run)
    for run in runs:
        if not train_sentences(run):
            return


def train_sentences(config: ConfigDict) -> bool:
    """Runs one training, from its start or its latest checkpoint to the exported model; False if asked to stop."""
    began = time.perf_counter()
    objective = objectives.find_objective(config.objective)
    folder, model, start = load(config)
    examples, held_out = load_rows(config, objective)
    settings = objectives.own_settings(objective, config.settings.to_dict())
    for name in config.settings.keys() - settings.keys():
        print(f"settings.{name} is not used by objective {objective.name}: ignored")
    columns = list(examples.columns.values())
    prompts = objective.prompts(start, len(columns))
    forms = [start.head.form if prompt is None else start.head.form.with_prompt(prompt) for prompt in prompts]
    said = [f"{name}: {form.prompt!r}" for name, form in zip(examples.columns, forms, strict=True) if form.prompt]
    steps = " > ".join(step.words() for step in start.head.steps)
    print(f"Trained through {steps}, up to {start.max_length} tokens; {', '.join(said) or 'no prompt'}")
    if objective.in_batch and config.accumulate > 1:
        rows = config.batch_size // config.accumulate
        print(f"accumulate is {config.accumulate}: in-batch negatives come from {rows} rows, not {config.batch_size}")
    setup = training.Setup(
        model,
        start,
        columns,
        training.tokenize_columns(columns, start.tokenizer, forms),
        labels=examples.label,
        classes=len(examples.classes),
        seed=config.seed,
        settings=settings,
        dims=config.matryoshka.dims,
        weights=config.matryoshka.weights or None,
        teacher=training.Teacher(**config.teacher),
        lora=training.LoRA(**config.lora),
        prompts=prompts,
    )
    adapter = config.adapter.kind
    plan = training.make_plan(adapters.on_vectors(objective, **config.adapter) if adapter else objective, setup)
    trained, size = count(plan.params), count(nnx.state(model, nnx.Param))
    print(f"{trained:,} parameters are trained, {100 * trained / size:.2f} % of the encoder's {size:,}")
    given = {name: scored_pairs(config, *split) for name, split in splits(config).items()}
    scorers = {name: training.sts_evaluator(plan.encoder, name, pairs) for name, pairs in given.items()}
    of_folder = {name: training.sts_evaluator(lambda _: folder, name, pairs) for name, pairs in given.items()}

    def export(params: Any, recipe: Mapping[str, Any], scores: Scores) -> None:
        output, encoder = Path(config.output), plan.encoder(params)
        if held_out is not None:
            write_pairs(output / "held_out.tsv", held_out)
        card = model_card(
            output.name,
            base_model=config.model,
            dimension=encoder.dimension,
            recipe=recipe,
            scores=scores["after"],
            before=scores["before"],
            pooling=" > ".join(step.words() for step in encoder.head.steps),
            max_length=encoder.max_length,
        )
        save_trained(output / "model", plan.rebuild(params["encoder"]), encoder, card)

    labels = "" if examples.label is None else hashlib.sha256(examples.label.tobytes()).hexdigest()[:24]
    known = {"model": folder.fingerprint, "teacher": plan.teacher, "labels": labels}
    title = f"train.sbert: {config.objective} on {config.model}"
    return train_rows(config, title, plan, setup.table, scorers, export, began, of_folder=of_folder, fingerprints=known)


def load(config: ConfigDict) -> tuple[Encoder, Any, Encoder]:
    """The encoder as its folder describes it, its module to train, and the encoder with the head to train through."""
    described = says_head(resolve_folder(config.model))
    pooling = "mean" if config.pooling == AUTO and not described else config.pooling
    length = config.max_length or (None if described else BARE_LENGTH)
    folder = Encoder.from_pretrained(config.model, pooling=pooling, max_length=length)
    model = folder.model()
    if isinstance(model, StaticEncoder):
        raise InputError(f"{config.model} is a static encoder: train a transformer, and distil it anew.")
    if config.dtype != folder.dtype:
        model = load_model(config.model, dtype=config.dtype)[0]
    model.remat = config.remat
    head = folder.head.unfitted()
    if head is not folder.head:
        what = "whitening" if folder.head.code is None else "whitening and code"
        print(
            f"{config.model}: its {what} was fitted on vectors before training and is left out. Fit it again with\n"
            f"  jaxwhiten fit TEXTS --model {config.output}/model{fit_options(folder)} -o {config.output}/fitted"
        )
    modules_of(head, model, folder.tokenizer)  # before the work of training it
    return folder, model, folder.trained(model, head.steps)


def fit_options(encoder: Encoder) -> str:
    """The options of `jaxwhiten fit` that fit the whitening or the code of an encoder again."""
    code, whitening = encoder.head.code, encoder.head.whitening
    options = f" -k {encoder.dimension}" if code is None else f" --bytes {code.nbytes}"
    for name in ("beta", "gamma", "shrinkage") if whitening is not None else ():
        if (value := getattr(whitening, name)) != DEFAULTS[name]:
            options += f" --{name} {value}"
    return options


def load_rows(config: ConfigDict, objective: training.Objective) -> tuple[Examples, Examples | None]:
    """The rows to train on, with negatives, and the rows held out."""
    data, held_out = config.data, None
    examples = load_examples(data, objective)
    objective.check([*examples.columns, *["negative"] * bool(data.negatives)], examples.label_kind)
    if data.held_out:
        examples, held_out = examples.hold_out(data.held_out)
    examples = examples.take(data.limit, config.seed) if data.limit else examples
    examples = with_negatives(config, examples) if data.negatives else examples
    if len(examples.columns) > 2 and examples.label is None and (data.file or data.negatives):
        skipped, examples = examples.skipped, examples.without_false_negatives()
        if examples.skipped > skipped:
            print(f"{examples.skipped - skipped} rows left out: their negative equals a positive of their anchor")
    print(f"{len(examples)} rows of {' / '.join(examples.columns)}; {examples.skipped} left out")
    return examples, held_out


def with_negatives(config: ConfigDict, pairs: Examples) -> Examples:
    """Triplets: each pair, repeated with every negative that was mined for its first sentence."""
    negatives: dict[str, list[str]] = {}
    for owner, negative in zip(*mined(config, sides := list(pairs.columns.values())), strict=True):
        negatives.setdefault(owner, []).append(negative)
    rows = [(first, second, text) for first, second in zip(*sides, strict=True) for text in negatives.get(first, ())]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("anchor", "positive", "negative"))}
    return Examples(columns, skipped=pairs.skipped)


def scored_pairs(config: ConfigDict, task: str, split: str) -> Pairs:
    """One split of an STS task."""
    found = load_sts(task, config.data.folder or None).splits
    if split not in found:
        raise InputError(f"{task} has no {split} split, only {', '.join(found)}.")
    return found[split]


if __name__ == "__main__":
    launch.run(main, "configs/nli.py")
