"""The parameters of a whitening and of a training, each declared once: Python, flags, configs and records read them.

No heavy module is imported, so that `--help` is quick.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxwhiten.errors import InputError, check_name

SHRINKAGES = ("oas",)


class Parameter(NamedTuple):
    """A constructor argument for command lines; `parse` converts a text to a value, or raises ValueError."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


def _dimensions(text: str) -> int | None:
    return None if text == "none" else int(text)


def _shrinkage(text: str) -> str | float | None:
    if text == "none":
        return None
    return text if text in SHRINKAGES else float(text)


WHITENING = (
    Parameter("n_components", _dimensions, None, "columns kept"),
    Parameter("beta", float, 1.0, "fraction of the mean to subtract, 0 to 1"),
    Parameter("gamma", float, 1.0, "exponent of the scaling, 0 to 1: 1 is whitening, 0 is PCA"),
    Parameter("shrinkage", _shrinkage, None, "'oas', a number from 0 to 1, or none"),
    Parameter("eigenvalue_floor", float, 1e-6, "floor for eigenvalues, as a fraction of the largest"),
)
DEFAULTS = {parameter.name: parameter.default for parameter in WHITENING}

DECAYS, OPTIMIZERS, DTYPES = ("linear", "cosine", "constant"), ("adamw", "adam"), ("float32", "bfloat16")
_LOWEST = {
    **{"learning_rate": 0.0, "weight_decay": 0.0, "clip_norm": 0.0, "held_out": 0.0, "warmup": 0.0},
    **{"batch_size": 1, "accumulate": 1, "buckets": 1, "steps": 0, "lora": 0, "negatives": 0},
}


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

    batch_size: int = _setting(32, "rows per batch, over all devices")
    accumulate: int = _setting(1, "gradient accumulation steps per batch")
    buckets: int = _setting(4, "padded lengths, each compiled once; 1 leaves batches unsorted by length")
    epochs: int = _setting(1, "passes over the rows")
    steps: int = _setting(0, "optimizer steps; overrides epochs if above 0")
    optimizer: str = _setting("adamw", "adamw or adam")
    learning_rate: float = _setting(2e-5, "peak value, after the warm-up")
    warmup: float = _setting(0.1, "fraction of the steps in which the learning rate rises")
    decay: str = _setting("linear", "linear, cosine or constant, after the warm-up")
    weight_decay: float = _setting(0.01, "weight decay of adamw; biases and norms are exempt")
    clip_norm: float = _setting(1.0, "maximum norm of the gradient; 0 disables clipping")
    b2: float = _setting(0.999, "Adam's second decay rate")
    eps: float = _setting(1e-8, "Adam's small constant")
    seed: int = _setting(0, "seed for the order of rows, dropout, new parameters and held-out rows")
    dtype: str = _setting("float32", "float32 or bfloat16 for matrix products; parameters stay float32")
    remat: bool = _setting(False, "recompute activations in the backward pass: less memory, more time")

    settings: Mapping[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"help": "settings of the objective, such as scale or temperature"}
    )
    dims: Sequence[int] = _setting((), "prefixes of the vectors to train too (Matryoshka)")
    weights: Sequence[float] = _setting((), "weights of the prefixes; by default 1")
    lora: int = _setting(0, "rank of LoRA, which trains low-rank products instead of all parameters; 0 for none")
    lora_projections: Sequence[str] = _setting(("query", "value"), "query, key, value, output, up, down or gate")
    lora_alpha: float = _setting(16.0, "LoRA's products are scaled by alpha / rank")
    teacher: str = _setting(
        "", "encoder to distill, for distil_mse and distil_cosine: a folder or a Hugging Face model ID"
    )
    teacher_pooling: str = _setting("auto", "pooling of the teacher")
    teacher_gamma: float = _setting(0.0, "gamma of the whitening to the student's dimensions; 0 is PCA")
    negatives: int = _setting(0, "hard negatives to mine for each first sentence of pairs")
    miner: str = _setting("sentence-transformers/all-MiniLM-L6-v2", "encoder that mines the negatives")
    depth: int = _setting(30, "nearest sentences to draw negatives from")

    held_out: float = _setting(0.1, "fraction of the rows to hold out and score; 0 for none")
    evaluate_every: int = _setting(0, "steps between evaluations; 0 for ten per run")
    save_every: int = _setting(0, "steps between additional checkpoints; 0 for none", shown_only=True)
    log_every: int = _setting(10, "steps between lines of the log", shown_only=True)
    keep: int = _setting(1, "latest checkpoints to keep, in addition to the best", shown_only=True)
    progress: bool | None = _setting(None, "show a progress bar; by default on a terminal", shown_only=True)

    def __post_init__(self) -> None:
        for name, known in (("decay", DECAYS), ("optimizer", OPTIMIZERS), ("dtype", DTYPES)):
            check_name(name, getattr(self, name), known)
        for name, low in _LOWEST.items():
            value = getattr(self, name)
            if not low <= value < math.inf:  # also false for NaN
                raise InputError(f"{name}={value!r}: must be a finite number of at least {low:g}.")
        if not self.steps and self.epochs <= 0:
            raise InputError(f"epochs={self.epochs!r}: must be above 0.")
        if max(self.warmup, self.held_out) >= 1:
            raise InputError(f"warmup={self.warmup!r}, held_out={self.held_out!r}: fractions must be below 1.")

    def resolved(self, per_epoch: int) -> TrainingOptions:
        """These options with the numbers of steps and of steps between evaluations that follow from an epoch's."""
        steps = self.steps or self.epochs * per_epoch
        every = self.evaluate_every or math.ceil(steps / 10)
        return dataclasses.replace(self, steps=steps, evaluate_every=every)

    def record(self) -> dict[str, Any]:
        """The values that determine the result, by name, as JSON."""
        shown = {field.name for field in dataclasses.fields(self) if field.metadata.get("shown_only")}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in shown}
