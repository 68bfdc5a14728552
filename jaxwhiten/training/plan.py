"""What a run trains and by which loss: the one place where an objective adds a teacher, a decoder or a second encoder.

A planner turns an objective's loss and what the run has read into parameters, a loss of batches and labels. The loop,
its step and its checkpoints know no more than these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Scalar, Shaped

from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.losses import Loss, init_classifier
from jaxwhiten.training.sentences import Rebuild, TokenTable, sentence_loss, split_encoder
from jaxwhiten.training.step import LossFn, Params


@dataclasses.dataclass(frozen=True)
class Teacher:
    """The encoder, a folder or hub id, that a student learns from, and γ of the whitening to the student's width."""

    model: str = ""
    pooling: str = "auto"
    gamma: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adapter:
    """What is trained in place of the encoder."""

    kind: str = ""  # of `ADAPTERS`; "" trains the encoder itself
    projections: Sequence[str] = ("query", "value")  # of LoRA
    rank: int = 8  # of LoRA and bottleneck
    alpha: float = 16.0  # of LoRA


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a run has read before it is planned."""

    model: Any  # the encoder to train
    folder: Path  # of the encoder, with its tokenizer
    pooling: str  # of `jaxwhiten.POOLINGS`
    columns: Sequence[Sequence[str]]  # of sentences
    table: TokenTable  # the same, tokenised
    labels: Shaped[np.ndarray, " n"] | None = None
    classes: int = 0  # their number where the labels are classes
    seed: int = 0  # of new parameters
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the objective
    # Prefixes of the vectors that are trained as well, see `jaxwhiten.losses.matryoshka`.
    dims: Sequence[int] = ()
    weights: Sequence[float] | None = None
    teacher: Teacher = Teacher()
    adapter: Adapter = Adapter()

    def encoder(self) -> Encoder:
        """The encoder as it comes in, with its pooling."""
        return Encoder(self.model, self.folder, pooling=self.pooling, max_length=self.table.max_length)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained: `{"encoder": ..., "head": ...}`, what `rebuild` takes and whatever else the loss trains.

    Under `"steps"` there may be steps on vectors that follow the pooling in the model, too.
    """

    params: Params
    loss: LossFn
    rebuild: Rebuild  # from `params["encoder"]` to the encoder that is scored and exported
    labels: Shaped[np.ndarray, " n *m"] | None = None  # what each row of a batch carries as `labels`
    vectors: Float[np.ndarray, "n columns d"] | None = None  # what each row carries as `vectors`
    frozen: Params | None = None  # see `make_step`


def plan_sentences(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A loss of the pooled vectors, with a classifier where the labels are classes."""
    encoder, rebuild = split_encoder(setup.model, setup.pooling)
    head = {}
    if objective.label == "class":
        key, width = jax.random.key(setup.seed), setup.model.config.hidden_size
        head = init_classifier(key, width, setup.classes, **setup.settings)
    compiled = sentence_loss(rebuild, loss, pooling=setup.pooling, passes=objective.passes)
    return Plan({"encoder": encoder, "head": head}, compiled, rebuild, setup.labels if objective.label else None)


@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss, what it requires of the data, and how a run with it is planned.

    Its settings are the keyword-only parameters of `loss`, `(*columns, labels, **head, **settings) -> loss`, without
    labels where it needs none, and of `plan`, `(objective, loss, setup, **settings) -> Plan`.
    """

    name: str  # in configs
    loss: Callable[..., Scalar]
    columns: tuple[int, int | None]  # minimum and maximum number of sentences per row
    # "class", "score", or what no data holds but a teacher gives: "vector" ([b, columns, e]) or "margin" ([b]).
    label: str | None = None
    passes: int = 1  # how often each sentence is encoded
    plan: Callable[..., Plan] = plan_sentences

    def check(self, columns: Sequence[str], label: str | None) -> None:
        """InputError unless rows with these columns, labelled by `"class"`, `"score"` or None, can be trained on."""
        least, most = self.columns
        if len(columns) < least or (most is not None and len(columns) > most):
            wanted = f"{least}" if most == least else f"at least {least}"
            raise InputError(
                f"The objective {self.name!r} takes {wanted} sentences per row; the rows have {', '.join(columns)}."
            )
        if self.label in ("class", "score") and label != self.label:
            raise InputError(
                f"The objective {self.name!r} needs a {self.label} for every row; the rows have {label or 'none'}."
            )
