"""Plans of runs: trained parameters and loss. Only planners know teachers, decoders and second encoders.

A planner turns an objective's loss and a `Setup` into parameters, a loss on batches, and labels. The loop, its step and
its checkpoints know nothing else of an objective.
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
    """The parameters that are trained instead of the encoder."""

    kind: str = ""  # of `ADAPTERS`; "" trains the encoder itself
    projections: Sequence[str] = ("query", "value")  # of LoRA
    rank: int = 8  # of LoRA and bottleneck
    alpha: float = 16.0  # of LoRA


@dataclasses.dataclass(frozen=True)
class Setup:
    """The inputs of a planner: model, data and settings of a run."""

    model: Any  # the encoder to train
    folder: Path  # of the encoder, with its tokenizer
    pooling: str  # a name of `jaxwhiten.POOLINGS`
    columns: Sequence[Sequence[str]]  # of sentences
    table: TokenTable  # the tokenised columns
    labels: Shaped[np.ndarray, " n"] | None = None
    classes: int = 0  # the number of classes, if labels are classes
    seed: int = 0  # of new parameters
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the objective
    # Prefixes of the vectors that are trained too, see `jaxwhiten.losses.matryoshka`.
    dims: Sequence[int] = ()
    weights: Sequence[float] | None = None
    teacher: Teacher = Teacher()
    adapter: Adapter = Adapter()

    def encoder(self) -> Encoder:
        """The encoder before training, with its pooling."""
        return Encoder(self.model, self.folder, pooling=self.pooling, max_length=self.table.max_length)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of a planner: parameters `{"encoder": ..., "head": ...}` and others that the loss trains, and a loss.

    Parameters under `"steps"` are steps on vectors; they follow the pooling in the exported model.
    """

    params: Params
    loss: LossFn
    rebuild: Rebuild  # from `params["encoder"]` to the encoder that is scored and exported
    labels: Shaped[np.ndarray, " n *m"] | None = None  # become `labels` of a batch, row by row
    vectors: Float[np.ndarray, "n columns d"] | None = None  # become `vectors` of a batch
    frozen: Params | None = None  # see `make_step`


def plan_sentences(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A loss on the pooled vectors, with a classifier if the labels are classes."""
    encoder, rebuild = split_encoder(setup.model, setup.pooling)
    head = {}
    if objective.label == "class":
        key, width = jax.random.key(setup.seed), setup.model.config.hidden_size
        head = init_classifier(key, width, setup.classes, **setup.settings)
    compiled = sentence_loss(rebuild, loss, pooling=setup.pooling, passes=objective.passes)
    return Plan({"encoder": encoder, "head": head}, compiled, rebuild, setup.labels if objective.label else None)


@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss, its requirements on the data, and its planner.

    Its settings are the keyword-only parameters of `loss` and `plan`. `loss` is called as
    `(*columns, labels, **head, **settings)`, without labels if it needs none; `plan` as `(objective, loss, setup,
    **settings)`.
    """

    name: str  # in configs
    loss: Callable[..., Scalar]
    columns: tuple[int, int | None]  # minimum and maximum number of sentences per row
    # "class" or "score" come with the data; a teacher gives "vector" ([b, columns, e]) or "margin" ([b]).
    label: str | None = None
    passes: int = 1  # how often each sentence is encoded
    plan: Callable[..., Plan] = plan_sentences

    def check(self, columns: Sequence[str], label: str | None) -> None:
        """Raises InputError if it cannot train on rows with these columns and `"class"`, `"score"` or no labels."""
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
