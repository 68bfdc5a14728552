"""Adapters: few new parameters learn a domain while the encoder's parameters stay unchanged.

`lora` is merged into the projections for scoring and export. `linear` and `bottleneck` map the vectors of the frozen
encoder and become Dense layers after the pooling. All start as the unchanged model and export an ordinary folder.

References:
  Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (ICLR 2022), section 4.1, equation 3.
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
from jaxwhiten.head import Dense, Module, Normalize, Target, VectorStep, array, step
from jaxwhiten.losses import Loss
from jaxwhiten.training.distillation import encode_columns
from jaxwhiten.training.plan import Objective, Plan, Setup, plan_sentences
from jaxwhiten.training.step import Batch, Params


def plan_lora(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """The objective's own plan, with LoRA as the trained parameters and the encoder's parameters frozen.

    W becomes W + alpha / rank · A B, with A [inputs, rank] drawn from a normal distribution and B [rank, outputs] zero.
    """
    plan = objective.plan(objective, loss, setup)
    base, chosen, rank = plan.params["encoder"], setup.adapter.projections, setup.adapter.rank
    kernels = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(base) if _name(path).endswith("/kernel")}
    known = {name.split("/")[-2] for name in kernels}
    for projection in chosen:
        check_name("projection", projection, known)
    kernels = {name: leaf for name, leaf in kernels.items() if name.split("/")[-2] in chosen}
    if not kernels or not 1 <= rank <= min(min(leaf.shape) for leaf in kernels.values()):
        raise InputError(f"LoRA needs projections and a rank from 1 to their width: got {chosen}, rank {rank}.")
    keys = jax.random.split(jax.random.key(setup.seed), len(kernels))
    adapter = {
        name: {"down": _thin(key, leaf.shape[0], rank), "up": jnp.zeros((rank, leaf.shape[1]))}
        for key, (name, leaf) in zip(keys, kernels.items(), strict=True)
    }

    def merged(base: Params, adapter: Params) -> Params:
        def add(path: Any, leaf: Any) -> Any:
            if (name := _name(path)) not in adapter:
                return leaf
            product = jnp.matmul(adapter[name]["down"], adapter[name]["up"], precision="highest")
            return leaf + setup.adapter.alpha / rank * product

        return jax.tree.map_with_path(add, base)

    def adapted(params: Params, batch: Batch, key: jax.Array) -> Any:
        return plan.loss({**params, "encoder": merged(params["frozen"], params["encoder"])}, batch, key)

    return dataclasses.replace(
        plan,
        params={**plan.params, "encoder": adapter},
        loss=adapted,
        rebuild=lambda adapter: plan.rebuild(merged(base, adapter)),
        frozen=base,
    )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")


def _thin(key: jax.Array, width: int, rank: int) -> jax.Array:
    return jax.random.normal(key, (width, rank)) * width**-0.5


@step
class Bottleneck(VectorStep):
    """x + relu(x W₁ + b) W₂, Houlsby's adapter on sentence vectors: W₁ [d, rank], b [rank], W₂ [rank, d], float32."""

    down: Any = array()
    bias: Any = array()
    up: Any = array()

    def __call__(self, x: Any) -> Any:
        inner = jax.nn.relu(jnp.matmul(x, self.down, precision="highest") + self.bias)
        return x + jnp.matmul(inner, self.up, precision="highest")

    def to_folder(self, target: Target) -> list[Module]:
        """Two Dense layers. Since x = relu(x) − relu(−x), the first one can pass the residual on to the second."""
        eye, zeros = np.eye(target.width, dtype=np.float32), np.zeros(2 * target.width, np.float32)
        first = Dense(np.hstack([self.down, eye, -eye]).T, np.concatenate([self.bias, zeros]), None, "ReLU")
        second = Dense(np.vstack([self.up, eye, -eye]).T, None, None, "Identity")
        return [*first.to_folder(target), *second.to_folder(target)]


def plan_on_vectors(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan that trains one step after the pooling, `params["steps"]`, on vectors computed once."""
    if objective.plan is not plan_sentences or objective.passes > 1:
        raise InputError(
            f"The objective {objective.name!r} needs the encoder itself, an adapter on vectors leaves it frozen: take"
            " one on pairs, such as 'mnr' or 'cosine', or the adapter 'lora'."
        )
    # The adapter precedes unit length at the end of the head, which it would undo.
    whole, rank = setup.start.head.steps, setup.adapter.rank
    last = whole[-1:] if isinstance(whole[-1], Normalize) else ()
    plan, frozen = plan_sentences(objective, loss, setup), whole[: len(whole) - len(last)]
    encoder = setup.start.trained(setup.model, frozen)
    width = encoder.dimension
    if rank < 1:
        raise InputError(f"An adapter of rank {rank}: it must be at least 1.")
    adapter: VectorStep = Dense(jnp.eye(width), jnp.zeros(width), None, "Identity")
    if setup.adapter.kind == "bottleneck":
        adapter = Bottleneck(_thin(jax.random.key(setup.seed), width, rank), jnp.zeros(rank), jnp.zeros((rank, width)))

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
        vectors=encode_columns(encoder, setup.columns, setup.prompts or (None,)),
        fixed=frozen,
    )
