"""`jaxwhiten train ROWS --model MODEL -o DIR`: fine-tunes an encoder on a table, with scores before and after."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import DEFAULT_MODEL, POOLINGS, Output, Report, Source, add, tokens, values_of
from jaxwhiten.options import TrainingOptions
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.training import Figure, HeldOut
    from jaxwhiten.training.fine_tune import Tuned

RANK = 8  # of --lora
_PACKAGES = {"orbax.checkpoint": "orbax-checkpoint"}
# Options of training that have a flag; each flag has the help of its field.
_FLAGS = {
    **{"held_out": "--held-out FRACTION", "epochs": "--epochs N", "steps": "--steps N", "learning_rate": "--lr RATE"},
    **{"batch_size": "--batch-size ROWS", "accumulate": "--accumulate N", "seed": "--seed N", "dtype": "--dtype DTYPE"},
    **{"evaluate_every": "--evaluate-every STEPS", "save_every": "--save-every STEPS", "teacher": "--teacher MODEL"},
    **{"negatives": "--negatives N", "miner": "--miner MODEL"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "rows",
        "a table with a row per example: .tsv, .csv, .jsonl or .parquet; for simcse and distil_… also .txt",
        type=Source,
    )
    add(
        parser,
        "-o --output DIR",
        "folder for the trained model; logs and checkpoints go to DIR.training",
        type=Output("model", folder=True),
        required=True,
    )
    model = f"Hugging Face model ID or folder; default: {DEFAULT_MODEL}"
    add(parser, "--model MODEL", model, type=Source, default=DEFAULT_MODEL)
    kinds = (
        "mnr (pairs, or triplets with a hard negative), cosent or cosine (scored pairs), softmax (pairs with a class);"
        " or triplet, simcse, distil_mse, distil_cosine; default: mnr"
    )
    add(parser, "--objective NAME", kinds, default="mnr")
    column = "column of sentences; repeat it in the order of the objective. Default: usual names, or the only two"
    add(parser, "--column NAME", column, action="append", default=[], dest="columns")
    add(parser, "--label COLUMN", "column of scores or classes; with mnr, of NLI's classes; default: label, or score")
    classes = "the classes, from the least to the most similar; default: those of NLI, or all in the table"
    add(parser, "--classes A,B,C", classes, type=lambda text: text.split(","), default=())
    scores = "the scores that map to 0 and 1; default: the lowest and the highest"
    add(parser, "--score-range LOW,HIGH", scores, type=lambda text: tuple(map(float, text.split(","))))
    add(parser, "--pooling POOLING", f"{POOLINGS}; default: auto (from the model folder)", default="auto")
    add(parser, "--max-length TOKENS", "tokens per text; default: from the model folder, or 128", type=tokens)
    add(parser, "--lora", f"train low-rank products of rank {RANK} instead of all parameters")
    dev = "a table of scored pairs that chooses the checkpoint, instead of held-out rows; its sentences are not trained"
    add(parser, "--dev PAIRS", dev, type=Source)
    add(parser, "--setting NAME=VALUE", "a setting of the objective, such as scale=20", action="append", default=[])
    add(parser, "--skip-invalid", "skip and count invalid rows")
    fields = {field.name: field for field in dataclasses.fields(TrainingOptions)}
    for name, flag in _FLAGS.items():
        default = fields[name].default
        if default:
            what = f"{fields[name].metadata['help']}; default: {default}"
        else:
            what = fields[name].metadata["help"]
        add(parser, flag, what, dest=name, type=Source if flag.endswith(" MODEL") else type(default))


def run(args: argparse.Namespace) -> Report | None:
    from jaxwhiten.errors import check_installed

    for module in ("optax", "orbax.checkpoint", "grain", "tensorboardX", "matplotlib"):
        check_installed(module, "train", "Training", _PACKAGES.get(module, ""))

    from jaxwhiten import training
    from jaxwhiten.export import save_trained
    from jaxwhiten.terminal import note, say

    specified = {name: value for name in _FLAGS if (value := getattr(args, name)) is not None}
    settings = values_of("--setting", args.setting, float, "NAME=NUMBER")
    options = TrainingOptions(**specified, settings=settings, lora=RANK if args.lora else 0)
    objective = training.find_objective(args.objective)
    examples = training.read_rows(
        args.rows,
        objective,
        columns=args.columns,
        label=args.label,
        classes=args.classes,
        score_range=args.score_range,
        skip_bad_rows=args.skip_invalid,
    )
    encoder = training.load_bare(args.model, args.pooling, args.max_length)
    training_rows, held_out = training.hold_out(
        examples, 0.0 if args.dev else options.held_out, options.seed, bool(args.classes)
    )
    if args.dev:
        held_out = training.HeldOut(training.read_rows(args.dev, training.find_objective("cosent")))
        training_rows = training.beside(training_rows, held_out)
    output = Path(args.output)
    folder = output.with_name(f"{output.name}.training")
    tuned = training.fine_tune(
        encoder,
        training_rows,
        objective,
        options,
        folder,
        record={"model": args.model, "dev": args.dev},
        held_out=held_out,
        model_folder=args.output,
        say=say,
        overwrite=args.overwrite,
    )
    if not tuned.finished:
        return None
    save_trained(
        output,
        tuned.encoder,
        base_model=encoder.name,
        recipe=tuned.recipe,
        scores=tuned.after,
        before=tuned.before,
    )
    note(f"{args.output}: model of step {tuned.step}; logs and checkpoints are in {folder}")
    return _report(args.output, folder, tuned, held_out)


def _report(output: str, folder: Path, tuned: Tuned, held_out: HeldOut | None) -> Report:
    """The scores of the held-out rows, which are written to the folder of the training, too."""
    from jaxwhiten import io, training
    from jaxwhiten.io.records import to_json

    results: Json = {
        "step": tuned.step,
        "recipe": tuned.recipe,
        "scores": tuned.after,
        "before": tuned.before,
    }
    if held_out is None:
        text = "No rows were held out, so the last checkpoint was kept: score it with `jaxwhiten score`."
        return Report(text, {"output": output, **results})
    figures = held_out.compare({**tuned.held_out, "TF-IDF": held_out.values_of_words()}, tuned.checkpoints)
    io.write_json(folder / "results.json", to_json({**results, "held_out": figures}))
    training.write_held_out(folder / "held_out.tsv", held_out)
    checkpoints = len(tuned.checkpoints)
    sentence = verdict(figures, held_out.name, checkpoints)
    facts = {"output": output, **results, "held_out": figures, "checkpoints": checkpoints, "verdict": sentence}
    return Report(f"{table(figures, held_out)}\n\n{sentence}", facts)


def table(figures: dict[str, Figure], held_out: HeldOut) -> str:
    rows = len(held_out.examples)
    units = int(held_out.units.max()) + 1
    if units < len(held_out.units):
        groups = f" in {units:,} groups without a common sentence"
    else:
        groups = ""
    lines = [f"{rows:,} held-out rows{groups}; {held_out.name} × 100", ""]
    lines.append(f"{'':8}{held_out.name:>10}{'95% CI':>16}{'vs. before':>27}")
    for name, figure in figures.items():
        if math.isnan(figure.value):
            lines.append(f"{name:8}{'undefined':>10}, all similarities are equal")
            continue
        gain = "" if name == "before" else str(figure.change)
        ends = "" if math.isnan(figure.interval.low) else "{:.2f}–{:.2f}".format(*figure.interval)
        lines.append(f"{name:8}{figure.value:10.2f}{ends:>16}{gain:>27}".rstrip())
    return "\n".join(lines)


def verdict(figures: dict[str, Figure], measure: str, checkpoints: int = 1) -> str:
    """One sentence: whether training helped, beyond chance, and whether words alone do better.

    Of several checkpoints, the best was chosen on the same rows; the interval allows for that.
    """
    after = figures["after"]
    words = figures["TF-IDF"]
    gain, (low, high) = after.change
    choice = f", which allows for choosing the best of {checkpoints} checkpoints on the same rows"
    changed = f"{measure} {gain:+.2f}, 95% CI {low:+.2f} to {high:+.2f}{choice if checkpoints > 1 else ''}"
    if math.isnan(low):
        text = f"Too few held-out rows share no sentence to judge the training ({measure} {gain:+.2f}): hold out more"
    elif low > 0:
        text = f"Training helped: {changed}"
    elif high < 0:
        text = f"Training made the model worse ({changed}): keep the old one, or use a lower learning rate or more rows"
    else:
        text = f"Training made no significant difference ({changed}): use more rows"
    if words.value > after.value:
        return f"{text}; TF-IDF is ahead by {words.value - after.value:.2f}."
    return f"{text}."
