"""Options: the parameters of a whitening and of a training, each declared once, and rules about which go together.

No heavy module is imported, so that `--help` is quick.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxwhiten.errors import Bounds, InputError, JaxwhitenError, check_name
from jaxwhiten.types import Fields, Json

SHRINKAGE = "oas"  # of what the library fits, unless the caller says otherwise; a plain `Whitening` has none
SHRINKAGES = (SHRINKAGE,)


def bounded(
    default: Any,
    low: int | float,
    high: int | float | None = None,
    *,
    help: str = "",
    above: bool = False,
    below: bool = False,
    names: tuple[str, ...] = (),
    **more: bool,
) -> Any:
    """A field of a dataclass with its bounds, as `Bounds` has them; None is valid if it is the default."""
    bounds = Bounds(low, high, above, below, names, default is None)
    return dataclasses.field(default=default, metadata={"help": help, "bounds": bounds, **more})


def check_bounds(options: Any, error: type[JaxwhitenError] = InputError, **highest: int) -> None:
    """Raises an error for a `bounded` field of a dataclass whose value is outside; `highest` replaces upper bounds."""
    for field in getattr(options, "__dataclass_fields__", {}).values():
        value = getattr(options, field.name)
        bounds = field.metadata.get("bounds")
        if bounds is not None and field.name in highest:
            bounds = bounds._replace(high=highest[field.name])
        elif bounds is None or value is field.default:  # which is inside
            continue
        if not bounds.hold(value):
            bounds.check(field.name, value, error)


@dataclasses.dataclass(eq=False, repr=False)
class WhiteningParameters:
    """The parameters of `Whitening`."""

    n_components: int | None = bounded(None, 1, help="columns kept")
    beta: float = bounded(1.0, 0.0, 1.0, help="fraction of the mean to subtract, 0 to 1")
    gamma: float = bounded(1.0, 0.0, 1.0, help="exponent of the scaling, 0 to 1: 1 is whitening, 0 is PCA")
    shrinkage: str | float | None = bounded(
        None, 0.0, 1.0, names=SHRINKAGES, help="'oas', a number from 0 to 1, or none"
    )
    eigenvalue_floor: float = bounded(1e-6, 0.0, 1.0, help="floor for eigenvalues, as a fraction of the largest")


DECAYS = ("linear", "cosine", "constant")
OPTIMIZERS = ("adamw", "adam")
DTYPES = ("float32", "bfloat16")


def _setting(default: Any, help: str, *, shown_only: bool = False) -> Any:
    """A field with its help. One that is `shown_only` does not change the result: a resumed run may change it."""
    return dataclasses.field(default=default, metadata={"help": help, "shown_only": shown_only})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The settings of a training run.

    >>> TrainingOptions(epochs=2).resolved(per_epoch=50).steps
    100

    References:
      Kingma and Ba, Adam (ICLR 2015), algorithm 1; Loshchilov and Hutter, AdamW (ICLR 2019), algorithm 2.
    """

    batch_size: int = bounded(32, 1, help="rows per batch, over all devices")
    accumulate: int = bounded(1, 1, help="gradient accumulation steps per batch")
    buckets: int = bounded(4, 1, help="padded lengths, each compiled once; 1 leaves batches unsorted by length")
    epochs: int = bounded(1, 0, help="passes over the rows")
    steps: int = bounded(0, 0, help="optimizer steps; overrides epochs if above 0")
    optimizer: str = _setting("adamw", "adamw or adam")
    learning_rate: float = bounded(2e-5, 0.0, 100.0, help="peak learning rate, after the warm-up")
    warmup: float = bounded(0.1, 0.0, 1.0, below=True, help="fraction of the steps in which the learning rate rises")
    decay: str = _setting("linear", "linear, cosine or constant, after the warm-up")
    weight_decay: float = bounded(0.01, 0.0, 100.0, help="weight decay of adamw; biases and norms are exempt")
    clip_norm: float = bounded(1.0, 0.0, 1e6, help="maximum norm of the gradient; 0 disables clipping")
    b2: float = bounded(0.999, 0.0, 1.0, below=True, help="Adam's second decay rate")
    eps: float = bounded(1e-8, 1e-30, 1.0, help="Adam's small constant")
    seed: int = bounded(0, 0, 2**32 - 1, help="seed for the order of rows, dropout, new parameters and held-out rows")
    dtype: str = _setting("float32", "float32 or bfloat16 for matrix products; parameters stay float32")
    remat: bool = _setting(False, "recompute activations in the backward pass: less memory, more time")

    settings: dict[str, float | str] = dataclasses.field(
        default_factory=dict, metadata={"help": "settings of the objective, such as scale or temperature"}
    )
    dims: Sequence[int] = _setting((), "prefixes of the vectors to train too (Matryoshka)")
    weights: Sequence[float] = _setting((), "weights of the prefixes; by default 1")
    lora: int = bounded(0, 0, help="rank of LoRA, which trains low-rank products instead of all parameters; 0 for none")
    lora_projections: Sequence[str] = _setting(("query", "value"), "query, key, value, output, up, down or gate")
    lora_alpha: float = bounded(16.0, 0.0, 1e6, above=True, help="LoRA's products are scaled by alpha / rank")
    teacher: str = _setting(
        "", "encoder to distill, for distil_mse and distil_cosine: a folder or a Hugging Face model ID"
    )
    teacher_pooling: str = _setting("auto", "pooling of the teacher")
    teacher_gamma: float = bounded(0.0, 0.0, 1.0, help="gamma of the whitening to the student's dimensions; 0 is PCA")
    negatives: int = bounded(0, 0, help="hard negatives to mine for each first sentence of pairs")
    miner: str = _setting("sentence-transformers/all-MiniLM-L6-v2", "encoder that mines the negatives")
    depth: int = bounded(30, 1, help="nearest sentences to draw negatives from")

    held_out: float = bounded(0.1, 0.0, 1.0, below=True, help="fraction of the rows to hold out and score; 0 for none")
    evaluate_every: int = bounded(0, 0, help="steps between evaluations; 0 for ten per run")
    save_every: int = bounded(0, 0, help="steps between additional checkpoints; 0 for none", shown_only=True)
    log_every: int = bounded(10, 1, help="steps between lines of the log", shown_only=True)
    keep: int = bounded(1, 1, help="latest checkpoints to keep, in addition to the best", shown_only=True)
    progress: bool | None = _setting(None, "show a progress bar; by default on a terminal", shown_only=True)

    def __post_init__(self) -> None:
        for name, choices in (("decay", DECAYS), ("optimizer", OPTIMIZERS), ("dtype", DTYPES)):
            check_name(name, getattr(self, name), choices)
        check_bounds(self)
        if not self.steps and not self.epochs:
            raise InputError(f"epochs={self.epochs!r}: must be above 0.")
        if invalid := [weight for weight in self.weights if not Bounds(0.0, 1e6).hold(weight)]:
            raise InputError(f"weights: {invalid[0]!r:.80}, expected {Bounds(0.0, 1e6).words}.")

    def resolved(self, per_epoch: int) -> TrainingOptions:
        """These options with the numbers of steps and of steps between evaluations that follow from an epoch's."""
        steps = self.steps or self.epochs * per_epoch
        every = self.evaluate_every or math.ceil(steps / 10)
        return dataclasses.replace(self, steps=steps, evaluate_every=every)

    def record(self) -> Json:
        """The values that determine the result, by name, as JSON."""
        shown_only = {field.name for field in dataclasses.fields(self) if field.metadata.get("shown_only")}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in shown_only}


class Rule(NamedTuple):
    """Options of which at most some may be specified: always, beside others, or without others.

    >>> needs = Rule(("keep",), "`keep` requires `into`.", without=("into",))
    >>> check_options([needs], {"keep": True, "into": None})
    Traceback (most recent call last):
    jaxwhiten.errors.InputError: `keep` requires `into`.
    """

    names: tuple[str, ...]
    message: str  # may have options in braces, {given} and {beside}, which are the names that are specified
    beside: tuple[str, ...] = ()  # the rule holds only if one of these is specified
    without: tuple[str, ...] = ()  # ... and none of these
    most: int = 0


def check_options(rules: Iterable[Rule], options: Fields) -> None:
    """Raises InputError with the message of the first rule that options break.

    An option is specified unless it is None, False, or an empty text or list.
    """
    empty = (str, list, tuple, dict)
    specified = {
        name
        for name, value in options.items()
        if value is not None and value is not False and not (isinstance(value, empty) and not value)
    }
    for names, message, beside, without, most in rules:
        specified_names = [name for name in names if name in specified]
        others = [name for name in beside if name in specified]
        if len(specified_names) > most and (others or not beside) and specified.isdisjoint(without):
            raise InputError(
                message.format_map({**options, "given": _quoted(specified_names), "beside": _quoted(others)})
            )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
