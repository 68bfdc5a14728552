"""`jaxwhiten train` fine-tunes an encoder on a table; `jaxwhiten distill` replaces one by a table of token vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from jaxwhiten.commands.arguments import (
    DEFAULT_MODEL,
    EncoderOptions,
    Output,
    Report,
    Source,
    SourceName,
    TableOptions,
    check_places,
    new_folder,
)
from jaxwhiten.commands.texts import nonempty
from jaxwhiten.commands.texts import sentences as sentences_of
from jaxwhiten.options import TrainingOptions
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.training import HeldOut
    from jaxwhiten.training.fine_tune import Tuned


def train(
    rows: Source,
    /,
    *,
    output: Output,
    model: Source = SourceName(DEFAULT_MODEL),
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
) -> Report:
    """Fine-tune an encoder on a table of pairs.

    The settings of the training are those of `jaxwhiten.TrainingOptions` in Python.

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
      pooling: mean, cls or another one of `jaxwhiten encode --help`; auto is that of the model folder
      max_length: tokens per text; default: from the model folder, or 128
      skip_invalid: skip and count invalid rows
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten train pairs.csv -o tuned/
      jaxwhiten train pairs.csv --objective cosine --score-range 0 5 --epochs 2 --lora 8 -o tuned/
    """
    check_places({"output": output, "teacher": SourceName(options.teacher), "miner": SourceName(options.miner)})
    new_folder(output, "model", overwrite=overwrite)
    from jaxwhiten.errors import check_installed

    for module in ("optax", "grain", "tensorboardX", "matplotlib"):
        check_installed(module, "train", "Training")
    check_installed("orbax.checkpoint", "train", "Training", "orbax-checkpoint")

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
    folder = Path(f"{Path(output)}.training")
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
    from jaxwhiten import io
    from jaxwhiten.training.held_out import held_out_table, verdict, write_held_out

    results: Json = {"step": tuned.step, "recipe": tuned.recipe, "scores": tuned.after, "before": tuned.before}
    text = "No rows were held out, so the last checkpoint was kept: score it with `jaxwhiten score`."
    if held_out is not None:
        figures = held_out.compare({**tuned.held_out, "TF-IDF": held_out.values_of_words()}, tuned.checkpoints)
        results["held_out"] = figures
        io.write_json(folder / "results.json", io.to_json(results))
        write_held_out(folder / "held_out.tsv", held_out)
        checkpoints = len(tuned.checkpoints)
        sentence = verdict(figures, held_out.name, checkpoints)
        results |= {"checkpoints": checkpoints, "verdict": sentence}
        text = f"{held_out_table(figures, held_out)}\n\n{sentence}"
    return Report(text, {"output": output, **results})


def distill(
    *,
    output: Output,
    corpus: Source | None = None,
    k: Annotated[int, Parameter(name=("-k", "--dimension"))] = 256,
    gamma: float = 1.0,
    no_fit: bool = False,
    sentences: int = 20_000,
    half: bool = False,
    overwrite: bool = False,
    table: TableOptions = TableOptions(),
    encoder: EncoderOptions = EncoderOptions(),
) -> Report:
    """Distill an encoder into a table of token vectors.

    Args:
      output: model folder to write, for --model of every command; sentence-transformers and model2vec load it, too
      corpus: sentences for token counts and for fitting the teacher's vectors: .txt (one per line), .tsv, .csv, .jsonl
        or .parquet, - for stdin; default: none, and Zipf's law, as for fewer than 300
      k: dimensions to keep
      gamma: power of the whitening, 0 to 1
      no_fit: do not fit the rows to the teacher's vectors
      sentences: number of corpus sentences that the teacher encodes
      half: write float16, in half the bytes
      overwrite: replace an output that exists already

    Examples:
      jaxwhiten distill --model jaxwhiten-tiny --pooling mean --corpus sentences.txt -k 64 -o static/
    """
    new_folder(output, "model", overwrite=overwrite)
    texts = None
    if corpus is not None:
        filled = (text for text in sentences_of(corpus, table) if text.strip())
        texts = nonempty(filled, corpus)

    from jaxwhiten.encoding import Vocabulary, distil

    vocabulary = Vocabulary.read(encoder.load(), texts, sentences=sentences)
    fit = bool(vocabulary.drawn) and not no_fit
    static = distil(vocabulary, k, gamma=gamma, fit=fit)
    folder = static.save(output, dtype="float16" if half else None)
    size = (Path(folder) / "model.safetensors").stat().st_size
    text = f"{output}: {encoder.name} as a table of {size / 1e6:.1f} MB, {k} dimensions"
    return Report(text, {"output": output, "model": encoder.name, "bytes": size, "dimensions": k})
