"""Fine-tunes an encoder into a sentence encoder.

    python -m train.sbert --config configs/nli.py
    python -m train.sbert --config configs/stsb.py --config.batch_size=32 --config.output=runs/stsb-32

The output folder holds the checkpoints, metrics.jsonl, TensorBoard events, loss.png and, when the run is finished,
results.json, report.html and `model/`: a folder for `Encoder.from_pretrained`, `eval.sts` and sentence-transformers.
SIGTERM or Ctrl-C saves and ends the program with exit code 0; the same command goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from jaxwhiten.training import Evaluate, Rebuild, Setup, make_plan, sts_evaluator, tokenize_columns
from train.common import count, mined, splits, train_rows


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
    losses.check_data(config.objective, [*examples.columns, *["negative"] * bool(data.negatives)], examples.label_kind)
    if data.held_out:
        examples, held_out = examples.hold_out(data.held_out)
    examples = examples.take(data.limit, config.seed) if data.limit else examples
    examples = with_negatives(config, examples) if data.negatives else examples
    print(f"{len(examples)} rows of {' / '.join(examples.columns)}; {examples.skipped} left out")

    model, sizes, folder = load_model(config.model, dtype=config.dtype, remat=config.remat)
    columns = list(examples.columns.values())
    table = tokenize_columns(columns, folder, config.max_length, special_tokens=model.special_tokens)
    rows = {"labels": examples.label, "classes": len(examples.classes), "seed": config.seed}
    parts = {name: config[name].to_dict() for name in ("settings", "teacher", "adapter")}
    dims, weights = config.matryoshka.dims, config.matryoshka.weights or None
    parts["matryoshka"] = {"matryoshka_dims": dims, "matryoshka_weights": weights}
    setup = Setup(model, folder, pooling, config.max_length, columns, table, **rows, **parts)
    plan = make_plan(config.objective, setup)
    trained, size = count(plan.params), count(nnx.state(model, nnx.Param))
    print(f"{trained:,} parameters are trained, {100 * trained / size:.2f} % of the encoder's {size:,}")
    scorers = {name: scorer(config, plan.rebuild, folder, *split) for name, split in splits(config).items()}

    def export(params: Any, recipe: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        if held_out is not None:
            write_pairs(Path(config.output) / "held_out.tsv", held_out)
        # The folder of a static encoder is as it was, but for the table; others get what the config says.
        start = Encoder.from_pretrained(config.model) if model.pools else setup.encoder()
        how = {"pooling": config.pooling, "max_length": start.max_length}
        names = {"base_model": config.model, "dimension": sizes.hidden_size, "recipe": recipe, "scores": scores}
        card = model_card(Path(config.output).name, **names, **how)
        steps = (*params.get("steps", ()), *start.head.steps[1:])
        finished = plan.rebuild(params["encoder"])
        save_sentence_transformer(Path(config.output) / "model", finished, folder, steps=steps, card=card, **how)

    title, options = f"train.sbert: {config.objective} on {config.model}", {"pad_id": sizes.pad_token_id}
    return train_rows(config, title, plan, table, config.max_length, scorers, export, began=began, **options)


def load_examples(config: ConfigDict, kind: losses.ObjectiveKind) -> Examples:
    """The rows the config names, in the form the objective takes."""
    data, alone = config.data, kind.columns == (1, 1)
    skip = {"skip_bad_rows": data.skip_bad_rows}
    if data.file and not data.columns:
        examples = text_examples(data.file, split=data.split_sentences, **skip)
    elif data.file:
        label = (data.label or None) if kind.labelled else None
        classes = data.classes if kind.label == "class" else ()
        how = {"label": label, "classes": classes, "score_range": data.score_range}
        examples = table_examples(data.file, data.columns, **how, **skip)
    elif data.name == "nli":
        how = {"sources": data.sources or None, "exclude_overlap": data.exclude_overlap}
        rows = load_nli(data.folder or None, **how, **skip)
        print(rows.summary())
        examples = nli_examples(rows, "sentences" if alone else "pairs" if kind.columns == (2, 2) else "triplets")
    else:
        pairs = load_sts(data.name, data.folder or None).splits["train"]
        examples = sts_examples(pairs, *data.score_range, "sentences" if alone else "pairs")
    return examples


def with_negatives(config: ConfigDict, pairs: Examples) -> Examples:
    """Triplets: each first sentence with its second, once for every negative that is mined for it."""
    owners, negatives = mined(config, sides := list(pairs.columns.values()))
    positive = dict(zip(*sides, strict=True))
    columns = {"anchor": owners, "positive": [positive[text] for text in owners], "negative": negatives}
    return Examples(columns, skipped=pairs.skipped)


def scorer(config: ConfigDict, rebuild: Rebuild, folder: Path, task: str, split: str) -> Evaluate:
    """Spearman's correlation on one split of an STS task."""
    found = load_sts(task, config.data.folder or None).splits
    if split not in found:
        raise InputError(f"{task} has no {split} split, only {', '.join(found)}.")
    rows = (found[split].sentence1, found[split].sentence2, found[split].score)
    how = {"pooling": config.pooling, "max_length": config.max_length}
    return sts_evaluator(rebuild, folder, f"{task} {split}", *rows, **how)


if __name__ == "__main__":
    launch.run(main, "configs/nli.py")
