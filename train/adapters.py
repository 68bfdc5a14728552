"""Adapters on vectors: a matrix or a bottleneck after the head of a frozen encoder.

They start as the identity and are exported as Dense layers.

References:
  Houlsby et al., Parameter-Efficient Transfer Learning for NLP (ICML 2019), section 2.1 (bottleneck).
  Schopf, Schneider and Matthes, Efficient Domain Adaptation of Sentence Embeddings using Adapters (RANLP 2023).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten.errors import InputError, check_name
from jaxwhiten.head import Dense, Head, Normalize, Step, StepModule, Target, VectorStep, array, step
from jaxwhiten.losses import Loss
from jaxwhiten.training import Batch, Objective, Params, Plan, Setup, encode_columns, plan_sentences

KINDS = ("linear", "bottleneck")


def on_vectors(objective: Objective, kind: str, rank: int = 8) -> Objective:
    """The objective with an adapter of this kind as the trained parameters, on vectors that are computed once."""
    check_name("kind of adapter", kind, KINDS)
    if objective.plan is not plan_sentences or objective.passes > 1:
        raise InputError(
            f"The objective {objective.name!r} trains the encoder itself, which an adapter on vectors leaves frozen:"
            " use an objective on pairs, such as 'mnr' or 'cosine', or LoRA."
        )
    if rank < 1:
        raise InputError(f"The rank of the adapter is {rank}; expected at least 1.")
    return dataclasses.replace(objective, plan=functools.partial(_plan, kind=kind, rank=rank))


@step
class Bottleneck(VectorStep):
    """x + relu(x W₁ + b) W₂, Houlsby's adapter on sentence vectors: W₁ [d, rank], b [rank], W₂ [rank, d], float32."""

    down: Any = array()
    bias: Any = array()
    up: Any = array()

    def __call__(self, x: Any) -> Any:
        inner = jax.nn.relu(jnp.matmul(x, self.down, precision="highest") + self.bias)
        return x + jnp.matmul(inner, self.up, precision="highest")

    def to_folder(self, target: Target) -> list[StepModule]:
        """Two Dense layers. Since x = relu(x) − relu(−x), the first one can pass the residual on to the second."""
        eye = np.eye(target.width, dtype=np.float32)
        zeros = np.zeros(2 * target.width, np.float32)
        first = Dense(np.hstack([self.down, eye, -eye]).T, np.concatenate([self.bias, zeros]), None, "ReLU")
        second = Dense(np.vstack([self.up, eye, -eye]).T, None, None, "Identity")
        return [*first.to_folder(target), *second.to_folder(target)]


def _plan(objective: Objective, loss: Loss, setup: Setup, *, kind: str, rank: int) -> Plan:
    """A plan that trains one step after the pooling, `params["steps"]`, on vectors computed once."""
    # The adapter precedes unit length at the end of the head, which it would undo.
    steps = setup.start.view.head.steps
    last: tuple[Step, ...] = ()
    if isinstance(steps[-1], Normalize):
        last = steps[-1:]
    plan = plan_sentences(objective, loss, setup)
    frozen = steps[: len(steps) - len(last)]
    view = setup.start.with_module(setup.model).view
    encoder = setup.start.with_view(view.with_head(Head.of(frozen, view.head.form)))
    width = encoder.dimension
    adapter: VectorStep = Dense(jnp.eye(width), jnp.zeros(width), None, "Identity")
    if kind == "bottleneck":
        kernel = jax.random.normal(jax.random.key(setup.options.seed), (width, rank)) * width**-0.5
        adapter = Bottleneck(kernel, jnp.zeros(rank), jnp.zeros((rank, width)))

    def of_adapted(params: Params, batch: Batch, key: jax.Array) -> Any:
        vectors = batch["vectors"].swapaxes(0, 1)
        flat = functools.reduce(lambda x, step: step(x), params["steps"], vectors.reshape(-1, width))
        vectors = flat.reshape(*vectors.shape[:2], -1)
        return loss(list(vectors), batch.get("labels"), params["head"]), {}

    return dataclasses.replace(
        plan,
        params={"encoder": {}, "head": plan.params["head"], "steps": (adapter, *last)},
        loss=of_adapted,
        rebuild=lambda _: setup.model,
        vectors=encode_columns(encoder, setup.columns, setup.prompts),
        fixed=frozen,
    )
