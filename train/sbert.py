"""Fine-tunes an encoder into a sentence encoder.

    python -m train.sbert --config configs/nli.py
    python -m train.sbert --config configs/stsb.py --config.batch_size=32 --config.output=runs/stsb-32

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json, report.html and `model/`: a folder for `Encoder.from_pretrained`, `eval.sts` and sentence-transformers.
SIGTERM or Ctrl-C saves and ends the program with exit code 0; the same command resumes the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flax import nnx
from ml_collections import ConfigDict

from jaxwhiten import training
from jaxwhiten.commands import launch
from jaxwhiten.datasets import Examples, load_sts, write_pairs
from jaxwhiten.errors import InputError
from jaxwhiten.export import check_pooling, model_card, save_sentence_transformer
from jaxwhiten.models import StaticEncoder, load_model
from train.common import check_run, count, load_examples, mined, splits, train_rows


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
    pooling, objective = check_pooling(config.pooling), training.find_objective(config.objective)
    model, sizes, folder = load_model(config.model, dtype=config.dtype, remat=config.remat)
    if isinstance(model, StaticEncoder):
        raise InputError(f"{config.model} is a static encoder: train a transformer, and distil it anew.")
    data, held_out = config.data, None
    examples = load_examples(data, objective)
    objective.check([*examples.columns, *["negative"] * bool(data.negatives)], examples.label_kind)
    if data.held_out:
        examples, held_out = examples.hold_out(data.held_out)
    examples = examples.take(data.limit, config.seed) if data.limit else examples
    examples = with_negatives(config, examples) if data.negatives else examples
    print(f"{len(examples)} rows of {' / '.join(examples.columns)}; {examples.skipped} left out")
    settings = training.own_settings(objective.name, config.settings.to_dict())
    for name in config.settings.keys() - settings.keys():
        print(f"settings.{name} is of other objectives than {objective.name}, and left out")
    columns = list(examples.columns.values())
    table = training.tokenize_columns(columns, folder, config.max_length)
    setup = training.Setup(
        model,
        folder,
        pooling,
        columns,
        table,
        labels=examples.label,
        classes=len(examples.classes),
        seed=config.seed,
        settings=settings,
        dims=config.matryoshka.dims,
        weights=config.matryoshka.weights or None,
        teacher=training.Teacher(**config.teacher),
        adapter=training.Adapter(**config.adapter),
    )
    plan = training.make_plan(config.objective, setup)
    trained, size = count(plan.params), count(nnx.state(model, nnx.Param))
    print(f"{trained:,} parameters are trained, {100 * trained / size:.2f} % of the encoder's {size:,}")
    scorers = {name: scorer(config, plan.rebuild, folder, *split) for name, split in splits(config).items()}

    def export(params: Any, recipe: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        output = Path(config.output)
        if held_out is not None:
            write_pairs(output / "held_out.tsv", held_out)
        card = model_card(
            output.name,
            base_model=config.model,
            dimension=sizes.hidden_size,
            recipe=recipe,
            scores=scores,
            pooling=config.pooling,
            max_length=config.max_length,
        )
        save_sentence_transformer(
            output / "model",
            plan.rebuild(params["encoder"]),
            folder,
            steps=params.get("steps", ()),
            card=card,
            pooling=config.pooling,
            max_length=config.max_length,
        )

    title = f"train.sbert: {config.objective} on {config.model}"
    return train_rows(config, title, plan, table, scorers, export, began)


def with_negatives(config: ConfigDict, pairs: Examples) -> Examples:
    """Triplets: each pair, repeated with every negative that was mined for its first sentence."""
    owners, negatives = mined(config, sides := list(pairs.columns.values()))
    positive = dict(zip(*sides, strict=True))
    columns = {"anchor": owners, "positive": [positive[text] for text in owners], "negative": negatives}
    return Examples(columns, skipped=pairs.skipped)


def scorer(config: ConfigDict, rebuild: training.Rebuild, folder: Path, task: str, split: str) -> training.Evaluate:
    """Spearman's correlation on one split of an STS task."""
    found, name = load_sts(task, config.data.folder or None).splits, f"{task} {split}"
    if split not in found:
        raise InputError(f"{task} has no {split} split, only {', '.join(found)}.")
    return training.sts_evaluator(rebuild, folder, name, found[split], config.pooling, config.max_length)


if __name__ == "__main__":
    launch.run(main, "configs/nli.py")
