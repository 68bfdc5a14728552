"""Fine-tunes an encoder into a sentence encoder.

    python -m train.sbert --config configs/nli.py
    python -m train.sbert --config configs/stsb.py --config.batch_size=32 --config.output=runs/stsb-32

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json, report.html and `model/`: a folder for `Encoder.from_pretrained`, `eval.sts` and sentence-transformers.
SIGTERM or Ctrl-C saves and ends the program with exit code 0; the same command goes on from there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from ml_collections import ConfigDict

from jaxwhiten import Encoder, losses
from jaxwhiten.commands import launch
from jaxwhiten.datasets import (
    Examples,
    load_nli,
    load_sts,
    nli_examples,
    sts_examples,
    table_examples,
    text_examples,
    write_pairs,
)
from jaxwhiten.errors import InputError
from jaxwhiten.export import check_pooling, model_card, save_sentence_transformer
from jaxwhiten.models import load_model
from jaxwhiten.runtime import distributed
from jaxwhiten.training import (
    Evaluate,
    Rebuild,
    Setup,
    make_plan,
    sts_evaluator,
    tokenize_columns,
)
from train.common import compare, finish, make_batches, make_recipe, run_training, splits


def main(config: ConfigDict) -> None:
    """Trains what the config says: one run, or its stages one after the other."""
    stages = config.get("stages", ())
    for run in [config[name] for name in stages] or [config]:
        if not train_sentences(run):
            return


def train_sentences(config: ConfigDict) -> bool:
    """One run, from its start or its latest checkpoint to the exported model; False if it was asked to stop."""
    began = time.perf_counter()
    pooling, kind = check_pooling(config.pooling), losses.objective_kind(config.objective)
    examples = load_examples(config, kind)
    data, held_out = config.data, None
    if data.held_out:
        examples, held_out = examples.hold_out(data.held_out)
    examples = examples.take(data.limit, config.seed) if data.limit else examples
    print(f"{len(examples)} rows of {' / '.join(examples.columns)}; {examples.skipped} left out")

    model, sizes, folder = load_model(config.model, dtype=config.dtype, remat=config.remat)
    columns = list(examples.columns.values())
    table = tokenize_columns(columns, folder, config.max_length, special_tokens=not sizes.static)
    matryoshka = {"matryoshka_dims": config.matryoshka.dims, "matryoshka_weights": config.matryoshka.weights or None}
    setup = Setup(
        model,
        folder,
        pooling,
        config.max_length,
        columns,
        table,
        labels=examples.label if kind.labelled else None,
        classes=len(examples.classes),
        seed=config.seed,
        settings=config.settings.to_dict(),
        matryoshka=matryoshka,
        teacher=config.teacher.to_dict(),
        adapter=config.adapter.to_dict(),
    )
    plan = make_plan(config.objective, setup)
    trained_size, size = (
        sum(x.size for x in jax.tree.leaves(tree)) for tree in (plan.params, nnx.state(model, nnx.Param))
    )
    print(f"{trained_size:,} parameters are trained, {100 * trained_size / size:.2f} % of the encoder's {size:,}")
    batches, steps = make_batches(config, table, plan.labels, sizes.pad_token_id, config.max_length, plan.vectors)
    recipe = make_recipe(config, ("test",), rows=table.key, steps=steps)
    scorers = {name: scorer(config, plan.rebuild, folder, *split) for name, split in splits(config).items()}
    best = f"{config.dev} dev" if config.dev else None
    options = {"best": best, "per_row": len(columns), "frozen": plan.frozen}
    trained = run_training(config, plan.params, plan.loss, batches, recipe, scorers.get(best), **options)
    if not trained.finished:
        return False

    scores = compare(scorers.values(), plan.params, trained.params)
    if held_out is not None and distributed.is_writer():
        write_pairs(Path(config.output) / "held_out.tsv", held_out)
    adapter = jax.device_get(trained.params.get("steps", ()))
    export(config, plan.rebuild(trained.params["encoder"]), adapter, folder, recipe, scores["after"])
    title = f"train.sbert: {config.objective} on {config.model}"
    finish(config, title, scores, recipe, began, step=trained.step)
    distributed.wait_for_all()  # the next stage reads the model
    return True


def load_examples(config: ConfigDict, kind: losses.ObjectiveKind) -> Examples:
    """The rows the config names, in the form the objective takes."""
    data, alone = config.data, kind.columns == (1, 1)
    if data.file and not data.columns:
        examples = text_examples(data.file, split=data.split_sentences, skip_bad_rows=data.skip_bad_rows)
    elif data.file:
        examples = table_examples(
            data.file,
            data.columns,
            label=(data.label or None) if kind.labelled else None,
            classes=data.classes if kind.label == "class" else (),
            score_range=data.score_range,
            skip_bad_rows=data.skip_bad_rows,
        )
    elif data.name == "nli":
        rows = load_nli(
            data.folder or None,
            sources=data.sources or None,
            exclude_overlap=data.exclude_overlap,
            skip_bad_rows=data.skip_bad_rows,
        )
        print(rows.summary())
        examples = nli_examples(rows, "sentences" if alone else "pairs" if kind.columns == (2, 2) else "triplets")
    else:
        pairs = load_sts(data.name, data.folder or None).splits["train"]
        examples = sts_examples(pairs, *data.score_range, "sentences" if alone else "pairs")
    losses.check_data(config.objective, list(examples.columns), examples.label_kind)
    return examples


def scorer(config: ConfigDict, rebuild: Rebuild, folder: Path, task: str, split: str) -> Evaluate:
    """Spearman's correlation on one split of an STS task."""
    splits = load_sts(task, config.data.folder or None).splits
    if split not in splits:
        raise InputError(f"{task} has no {split} split, only {', '.join(splits)}.")
    pairs = splits[split]
    return sts_evaluator(
        rebuild,
        folder,
        f"{task} {split}",
        pairs.sentence1,
        pairs.sentence2,
        pairs.score,
        pooling=config.pooling,
        max_length=config.max_length,
    )


def export(
    config: ConfigDict, model: Any, steps: Any, folder: Path, recipe: dict[str, Any], scores: dict[str, float]
) -> None:
    """Writes the finished model's folder with its card; that of a static encoder is as it was, but for the table."""
    if not distributed.is_writer():
        return
    max_length = config.max_length
    if model.config.static:
        began = Encoder.from_pretrained(config.model)
        steps, max_length = (*steps, *began.head.steps[1:]), began.max_length
    card = model_card(
        Path(config.output).name,
        base_model=config.model,
        dimension=model.config.hidden_size,
        pooling=config.pooling,
        max_length=max_length,
        recipe=recipe,
        scores=scores,
    )
    how = {"pooling": config.pooling, "max_length": max_length, "steps": steps, "card": card}
    save_sentence_transformer(Path(config.output) / "model", model, folder, **how)


if __name__ == "__main__":
    launch.run(main, "configs/nli.py")
