"""Fine-tuning of whole encoders: an encoder and rows in, a trained encoder and its scores out."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxwhiten.datasets.examples import Examples
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import check_saving, trained
from jaxwhiten.engines import DEFAULT
from jaxwhiten.errors import InputError
from jaxwhiten.head import AUTO, says_head
from jaxwhiten.io import PathLike
from jaxwhiten.models import StaticEncoder, load_config, load_model, resolve_folder
from jaxwhiten.options import TrainingOptions
from jaxwhiten.runtime.distributed import is_writer
from jaxwhiten.terminal import counted, say
from jaxwhiten.training.held_out import Evaluations, HeldOut, hold_out
from jaxwhiten.training.loop import run_plan
from jaxwhiten.training.objectives import find_objective, make_plan, objective_loss
from jaxwhiten.training.plan import Objective, Setup
from jaxwhiten.training.rows import mine_negatives, read_rows, with_negatives
from jaxwhiten.training.sentences import sentence_batches, tokenize_columns
from jaxwhiten.types import Fields, Json

BARE_LENGTH = 128  # in tokens, of an encoder whose folder describes no head
Score = Callable[[Encoder], float]
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A fine-tuned encoder, with its scores before and after, and the record of its run.

    >>> encoder = load_bare("jaxwhiten-tiny")
    >>> tuned = Tuned(encoder, {"dev": 70.0}, {"dev": 72.5}, step=10, recipe={}, held_out={})
    >>> tuned.after["dev"] - tuned.before["dev"]
    2.5
    """

    encoder: Encoder
    before: Mapping[str, float]
    after: Mapping[str, float]
    step: int  # of the checkpoint
    recipe: Fields
    held_out: Mapping[str, np.ndarray]  # `HeldOut.values` before and after, if rows were held out
    checkpoints: Sequence[np.ndarray] = ()  # and of the checkpoints, the best of which was chosen by its score on them


def train(
    encoder: Encoder,
    rows: Any,
    objective: str | Objective = "mnr",
    options: TrainingOptions | None = None,
    *,
    columns: Sequence[str] = (),
    label: str | None = None,
    classes: Sequence[str] = (),
    score_range: tuple[int | float, int | float] | None = None,
    folder: PathLike | None = None,
) -> Encoder:
    """Fine-tunes an encoder, through its head and with its prompts, and returns the trained one.

    A fraction of the rows, which share no sentence with the others, is held out, and the checkpoint with the best score
    on them is returned. A whitening or a code is removed: refit it on the trained encoder.

    >>> rows = [("A dog runs.", "A dog ran."), ("It rains.", "It is raining.")]
    >>> options = TrainingOptions(steps=1, batch_size=2, held_out=0.0)
    >>> tuned = train(Encoder.from_pretrained("jaxwhiten-tiny"), rows, options=options)
    >>> tuned.save("tuned").name
    'tuned'

    Args:
      encoder: A transformer encoder; it stays unchanged.
      rows: A table's path, tuples, dicts, a DataFrame, a `datasets.Dataset`, or `Examples`.
      objective: A name in `jaxwhiten.training.OBJECTIVES`, or an `Objective`.
      options: The settings of the run.
      columns, label, classes, score_range: The columns of the rows, see `jaxwhiten.training.read_rows`.
      folder: Where checkpoints and logs are written; the same call with the same folder resumes a stopped run. By
        default a temporary folder.

    Raises:
      InputError: The rows do not fit the objective, or a setting is invalid.
      MismatchError: The folder's run has different settings.
      NonFiniteError: The loss is NaN or infinite.
      KeyboardInterrupt: After Ctrl-C, when the checkpoint is written.
      SystemExit: After SIGTERM, likewise, with the code 143.
    """
    options = options or TrainingOptions()
    kind = find_objective(objective)
    examples = read_rows(rows, kind, columns=columns, label=label, classes=classes, score_range=score_range)
    rest, held_out = hold_out(examples, options.held_out, options.seed, bool(classes))
    with tempfile.TemporaryDirectory(prefix="jaxwhiten-training-") as temporary:
        where = temporary if folder is None else folder
        return fine_tune(encoder, rest, kind, options, where, held_out=held_out, say=say).encoder


def fine_tune(
    encoder: Encoder,
    examples: Examples,
    objective: Objective,
    options: TrainingOptions,
    folder: PathLike,
    *,
    held_out: HeldOut | None = None,
    scores: Mapping[str, Score] | None = None,
    best: str | None = None,
    record: Fields | None = None,
    model_folder: PathLike = "FOLDER",
    say: Say = print,
    overwrite: bool = False,
) -> Tuned:
    """Trains an encoder from its start, or from the latest checkpoint in the folder.

    The score of the held-out rows, or the score `best`, chooses the checkpoint; all `scores` are computed before and
    after. `record` is written with the settings: a run with other values is a different run. `model_folder` is the
    trained model's in messages. With `overwrite`, a run with other settings in the folder is replaced.

    >>> kind, options = find_objective("mnr"), TrainingOptions(steps=1, batch_size=2)
    >>> examples = read_rows("searches.tsv", kind)
    >>> fine_tune(load_bare("jaxwhiten-tiny"), examples, kind, options, "run", say=lambda line: None).step
    1
    """
    objective_loss(objective, options.dims, options.weights, **options.settings)  # refuses before the work
    start = trainable(encoder, options, model_folder, say)
    objective.check([*examples.columns, *["negative"] * bool(options.negatives)], examples.label_kind)
    part = options.batch_size // options.accumulate
    if objective.in_batch and part < 2 and len(examples.columns) + bool(options.negatives) < 3:
        raise InputError(
            f"batch_size={options.batch_size}, accumulate={options.accumulate}: {objective.name!r} compares the rows of"
            f" a batch, and a row alone trains nothing: set batch_size={2 * options.accumulate} or more."
        )
    if options.negatives:
        examples = mined(examples, options, say)
    say(f"{counted(len(examples), 'rows')} of {' / '.join(examples.columns)}; {examples.skipped:,} skipped")
    if objective.in_batch and options.accumulate > 1:
        say(f"accumulate={options.accumulate}: in-batch negatives come from {part} rows, not {options.batch_size}")
    setup = _setup(start, examples, objective, options, say)
    plan = make_plan(objective, setup)
    table = setup.table
    trained = _count(plan.params)
    size = _count(nnx.state(setup.model, nnx.Param))
    say(f"{trained:,} trained parameters, {100 * trained / size:.2f}% of the encoder's {size:,}")
    sizes = {name: getattr(options, name) for name in ("batch_size", "buckets", "seed")}
    batches = sentence_batches(table, plan.labels, plan.vectors, **sizes)
    options = options.resolved(batches.per_epoch)
    lengths = ", ".join(map(str, batches.shapes))
    per_epoch = counted(batches.per_epoch, "batches")
    say(f"{per_epoch} per epoch, padded to {lengths} tokens; {counted(options.steps, 'steps')}")

    scores = dict(scores or {})
    evaluations = None
    if held_out is not None:
        evaluations = Evaluations(held_out, Path(folder))
        best = f"held-out {held_out.name}"
        scores = {best: evaluations.score, **scores}
    # Rows, models and labels by their content, not their names.
    labels = "" if examples.label is None else hashlib.sha256(examples.label.tobytes()).hexdigest()[:24]
    fingerprints = {"model": encoder.view.fingerprint, "teacher": plan.teacher, "labels": labels}
    of_rows = {"rows": table.key, "fingerprints": fingerprints}
    recipe = {**(record or {}), "objective": objective.name, **options.record(), **of_rows}
    result = run_plan(
        folder,
        plan,
        batches,
        options,
        recipe,
        unit=("sentences", table.sentences.shape[1]),
        evaluate=None if best is None else lambda params: {best: scores[best](plan.encoder(params))},
        evaluated=None if evaluations is None else evaluations.keep,
        best=best,
        overwrite=overwrite,
    )
    tuned = plan.encoder(result.params)
    tuned = tuned.with_view(tuned.view.judged())
    scored = dict[str, dict[str, float]]()
    values = dict[str, np.ndarray]()
    for when, one in (("before", encoder), ("after", tuned)):
        scored[when] = {name: score(one) for name, score in scores.items()}
        if evaluations is not None:
            values[when] = evaluations.last
    checkpoints = evaluations.checkpoints() if evaluations is not None and is_writer() else []
    return Tuned(tuned, scored["before"], scored["after"], result.step, recipe, values, checkpoints)


def load_bare(model: str | Path, pooling: str = AUTO, max_length: int | None = None) -> Encoder:
    """An encoder to train: one whose folder describes no head gets mean pooling and at most 128 tokens.

    >>> load_bare("jaxwhiten-tiny").view.head.name
    'mean'
    """
    if not says_head(folder := resolve_folder(model)):
        pooling = "mean" if pooling == AUTO else pooling
        max_length = max_length or min(BARE_LENGTH, load_config(folder).longest_input)
    return Encoder.from_pretrained(model, pooling=pooling, max_length=max_length, engine=DEFAULT)


def trainable(encoder: Encoder, options: TrainingOptions, model_folder: PathLike, say: Say) -> Encoder:
    """The encoder with the head to train through, without a whitening or code."""
    module = encoder.module
    if isinstance(module, StaticEncoder):
        raise InputError(f"{encoder.name} is a static encoder: train a transformer, and distill it again.")
    if options.dtype != encoder.view.core.engine.dtype:
        module = load_model(encoder.name, dtype=options.dtype)[0]
    module.remat = options.remat
    head = encoder.view.head.without_fitted()
    if head is not encoder.view.head:
        fitted = {"whitening": encoder.view.head.whitening, "code": encoder.view.head.code}
        what = " and ".join(name for name, value in fitted.items() if value is not None)
        say(
            f"{encoder.name}: its {what or 'whitening'}, fitted before training, is omitted. Refit with\n"
            f"  jaxwhiten fit TEXTS --model {model_folder}{fit_options(encoder)} -o FITTED"
        )
    start = trained(encoder, module, head.steps)
    check_saving(start)
    return start


def fit_options(encoder: Encoder) -> str:
    """The options of `jaxwhiten fit` that refit the whitening or the code of an encoder."""
    code, whitening = encoder.view.code, encoder.view.head.whitening
    options: Json = {}
    if whitening is not None or code is None:
        options["-k"] = encoder.view.columns
    if code is not None:
        options["--bytes"] = code.nbytes
    if whitening is not None and whitening.beta != 1:
        options["--beta"] = whitening.beta
    if whitening is not None and (code is not None or whitening.gamma not in (0.25, 1.0)):
        options["--gamma"] = whitening.gamma  # without γ, vectors may be coded unchanged
    return "".join(f" {name} {value}" for name, value in options.items())


def mined(pairs: Examples, options: TrainingOptions, say: Say) -> Examples:
    """Triplets of pairs and the negatives that the options' miner finds."""
    if len(pairs.columns) != 2:
        raise InputError(f"Negatives are mined for pairs; the rows have {len(pairs.columns)} sentences.")
    first, second = pairs.columns.values()
    how = {"count": options.negatives, "depth": options.depth, "seed": options.seed}
    owners, negatives = mine_negatives(Encoder.from_pretrained(options.miner), first, second, **how)
    say(f"{len(negatives):,} negatives mined by {options.miner}")
    return with_negatives(pairs, owners, negatives)


def _setup(start: Encoder, examples: Examples, objective: Objective, options: TrainingOptions, say: Say) -> Setup:
    columns = list(examples.columns.values())
    prompts = objective.prompts(start, len(columns))
    forms = [start.view.head.form if prompt is None else start.view.head.form.with_prompt(prompt) for prompt in prompts]
    used = [f"{name}: {form.prompt!r}" for name, form in zip(examples.columns, forms, strict=True) if form.prompt]
    steps = " > ".join(step.words() for step in start.view.head.steps)
    say(f"Training through {steps}, up to {start.max_length} tokens; {', '.join(used) or 'no prompt'}")
    table = tokenize_columns(columns, start.view.core.tokenizer, forms)
    return Setup(
        start.view.core.model(), start, columns, table, examples.label, len(examples.classes), prompts, options
    )


def _count(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))
