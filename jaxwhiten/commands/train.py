"""`jaxwhiten train`: fine-tunes an encoder on a table, with scores before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from jaxwhiten.commands.arguments import DEFAULT_MODEL, Output, Report, Source, check_places, new_folder
from jaxwhiten.options import TrainingOptions
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.training import Figure, HeldOut
    from jaxwhiten.training.fine_tune import Tuned

_PACKAGES = {"orbax.checkpoint": "orbax-checkpoint"}


def train(
    rows: Source,
    /,
    *,
    output: Output,
    model: Source = Source(DEFAULT_MODEL),
    objective: str = "mnr",
    columns: Annotated[Sequence[str], Parameter(name="--column")] = (),
    label: str | None = None,
    classes: Sequence[str] = (),
    score_range: tuple[float, float] | None = None,
    dev: Source | None = None,
    pooling: str = "auto",
    max_length: int | None = None,
    skip_invalid: bool = False,
    overwrite: bool = False,
    options: Annotated[TrainingOptions, Parameter(name="*", group="settings of the training")] = TrainingOptions(),
) -> Report | None:
    """Fine-tune an encoder on a table of pairs.

    Args:
      rows: a table with a row per example: .tsv, .csv, .jsonl or .parquet; for simcse and distil_… also .txt
      output: folder for the trained model; logs and checkpoints go to DIR.training
      model: Hugging Face model ID or folder
      objective: mnr (pairs, or triplets with a hard negative), cosent or cosine (scored pairs), softmax (pairs with a
        class); or triplet, simcse, distil_mse, distil_cosine
      columns: column of sentences; repeat it in the order of the objective. Default: usual names, or the only two
      label: column of scores or classes; with mnr, of NLI's classes; default: label, or score
      classes: the classes, from the least to the most similar, repeated; default: those of NLI, or all in the table
      score_range: the scores that map to 0 and 1; default: the lowest and the highest
      dev: a table of scored pairs that chooses the checkpoint, instead of held-out rows; its sentences are not trained
      pooling: mean, cls, max, first_last_avg, embeddings_last_avg, last2avg, pooler, weightedmean,
        mean_sqrt_len_tokens, lasttoken, layers:I+J
      max_length: tokens per text; default: from the model folder, or 128
      skip_invalid: skip and count invalid rows
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten train pairs.csv -o tuned/
      jaxwhiten train pairs.csv --objective cosine --score-range 0 5 --epochs 2 --lora 8 -o tuned/
    """
    sources = {"teacher": Source(options.teacher), "miner": Source(options.miner)}
    check_places({"output": output, **{name: source for name, source in sources.items() if source}})
    new_folder(output, "model", overwrite=overwrite)
    from jaxwhiten.errors import check_installed

    for module in ("optax", "orbax.checkpoint", "grain", "tensorboardX", "matplotlib"):
        check_installed(module, "train", "Training", _PACKAGES.get(module, ""))

    from jaxwhiten import training
    from jaxwhiten.export import save_trained
    from jaxwhiten.terminal import note, say

    chosen = training.find_objective(objective)
    examples = training.read_rows(
        rows,
        chosen,
        columns=columns,
        label=label,
        classes=classes,
        score_range=score_range,
        skip_bad_rows=skip_invalid,
    )
    encoder = training.load_bare(model, pooling, max_length)
    training_rows, held_out = training.hold_out(examples, 0.0 if dev else options.held_out, options.seed, bool(classes))
    if dev:
        held_out = training.HeldOut(training.read_rows(dev, training.find_objective("cosent")))
        training_rows = training.beside(training_rows, held_out)
    folder = Path(output).with_name(f"{Path(output).name}.training")
    tuned = training.fine_tune(
        encoder,
        training_rows,
        chosen,
        options,
        folder,
        record={"model": model, "dev": dev},
        held_out=held_out,
        model_folder=output,
        say=say,
        overwrite=overwrite,
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
    note(f"{output}: model of step {tuned.step}; logs and checkpoints are in {folder}")
    return _report(output, folder, tuned, held_out)


def _report(output: str, folder: Path, tuned: Tuned, held_out: HeldOut | None) -> Report:
    """The scores of the held-out rows, which are written to the folder of the training, too."""
    from jaxwhiten import io, training
    from jaxwhiten.records import to_json

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
