"""What a run trains and by which loss: the one place where an objective adds a teacher, a decoder or a second encoder.

`make_plan` turns an objective's name and what the run has read into parameters, loss and labels; the loop, its step and
its checkpoints know no more than these. An objective on sentence vectors alone is planned by `plan_sentences`; one that
needs more registers its own function in `PLANNERS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Shaped

from jaxwhiten import losses
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import unknown_name
from jaxwhiten.training.sentences import Rebuild, TokenTable, sentence_loss, split_encoder
from jaxwhiten.training.step import LossFn, Params


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a run has read before it is planned.

    Attributes:
      model: The encoder to train.
      folder: Its folder, with the tokenizer.
      pooling: A name of `jaxwhiten.POOLINGS`.
      max_length: Maximum number of tokens per sentence.
      columns: The sentences, one list per column.
      table: The same, tokenised.
      labels: One label per row, or None.
      classes: Number of classes where the labels are classes.
      seed: Seed of new parameters.
      settings: Settings of the objective.
      matryoshka: `matryoshka_dims` and `matryoshka_weights` of `jaxwhiten.losses.objective`.
      teacher: `model`, a folder or hub id, and how its vectors are made, see `jaxwhiten.training.distillation`.
      adapter: `kind`, a name of `ADAPTERS` or "" for none, and its settings, see `jaxwhiten.training.adapters`.
    """

    model: Any
    folder: Path
    pooling: str
    max_length: int
    columns: Sequence[Sequence[str]]
    table: TokenTable
    labels: Shaped[np.ndarray, " n"] | None = None
    classes: int = 0
    seed: int = 0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    matryoshka: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    teacher: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    adapter: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def encoder(self) -> Encoder:
        """The encoder as it comes in, with its pooling."""
        return Encoder(self.model, self.folder, pooling=self.pooling, max_length=self.max_length)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained.

    Attributes:
      params: `{"encoder": ..., "head": ...}`: what `rebuild` takes, and whatever else the loss trains; under `"steps"`
        steps on vectors that follow the pooling in the model, too.
      loss: For `make_step`.
      rebuild: From `params["encoder"]` to the encoder that is scored and exported.
      labels: What each row of a batch carries as `labels`, [n] or [n, ...], or None.
      vectors: What each row carries as `vectors`, or None.
      frozen: What the loss finds as `params["frozen"]` and does not train, see `make_step`.
    """

    params: Params
    loss: LossFn
    rebuild: Rebuild
    labels: Shaped[np.ndarray, " n *m"] | None = None
    vectors: Float[np.ndarray, "n columns d"] | None = None
    frozen: Params | None = None


def plan_sentences(objective: str, setup: Setup, loss: losses.Loss | None = None) -> Plan:
    """An objective of `jaxwhiten.losses` on the pooled vectors, with its head; or another `loss` in its place."""
    kind, width = losses.objective_kind(objective), setup.model.config.hidden_size
    encoder, rebuild = split_encoder(setup.model, setup.pooling)
    head = losses.init_head(objective, jax.random.key(setup.seed), width, setup.classes, **setup.settings)
    loss = loss or losses.objective(objective, **setup.matryoshka, **setup.settings)
    compiled = sentence_loss(rebuild, loss, pooling=setup.pooling, passes=kind.passes)
    return Plan({"encoder": encoder, "head": head}, compiled, rebuild, setup.labels if kind.labelled else None)


Planner = Callable[[str, Setup], Plan]
PLANNERS: dict[str, Planner] = {}
"""Objectives that need more than sentence vectors and labels, by name."""

ADAPTERS: dict[str, Callable[[Planner, str, Setup], Plan]] = {}
"""Kinds of adapters: from the objective's planner, its name and the setup to a plan that trains the adapter alone."""


def make_plan(objective: str, setup: Setup) -> Plan:
    """Plans a run.

    Args:
      objective: A name of `jaxwhiten.losses.OBJECTIVES`.
      setup: What the run has read.

    Raises:
      InputError: An unknown objective, adapter or setting.
    """
    planner, adapter = PLANNERS.get(objective, plan_sentences), setup.adapter.get("kind", "")
    if not adapter:
        return planner(objective, setup)
    if adapter not in ADAPTERS:
        raise unknown_name("kind of adapter", adapter, ADAPTERS)
    return ADAPTERS[adapter](planner, objective, setup)
