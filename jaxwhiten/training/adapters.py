"""Adapters: few new parameters learn a domain while the encoder's own stay as they are.

`lora` adds a product of two thin matrices to chosen projections, and is merged into them for scoring and export.
`linear` and `bottleneck` map the vectors of the frozen encoder, which are computed once, and become Dense layers behind
the pooling. All start as the unchanged model, and leave an ordinary folder.

References:
  Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (ICLR 2022), section 4.1, equation 3.
  Houlsby et al., Parameter-Efficient Transfer Learning for NLP (ICML 2019), section 2.1 (bottleneck).
  Schopf, Schneider and Matthes, Efficient Domain Adaptation of Sentence Embeddings using Adapters (RANLP 2023).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten import losses
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.head import Dense, Module, Target, VectorStep, array, step
from jaxwhiten.training.distillation import encode_columns
from jaxwhiten.training.plan import ADAPTERS, Plan, Planner, Setup, plan_sentences
from jaxwhiten.training.step import Batch, Params

SETTINGS: dict[str, Any] = {"projections": ("query", "value"), "rank": 8, "alpha": 16.0}
"""Settings beside `kind`, with their defaults; all are LoRA's, and the rank is the bottleneck's, too."""


def plan_lora(planner: Planner, objective: str, setup: Setup) -> Plan:
    """The objective's own plan, with LoRA in the place of the encoder's parameters, which are frozen.

    W becomes W + alpha / rank · A B, with A [inputs, rank] drawn from a normal distribution and B [rank, outputs] zero.

    Args:
      planner: Of the objective; any one will do.
      objective: Its name.
      setup: `adapter` holds `projections`, `rank` and `alpha`.

    Raises:
      InputError: A projection the encoder does not have, or a rank it cannot have.
    """
    plan, settings = planner(objective, setup), SETTINGS | dict(setup.adapter)
    base, chosen, rank = plan.params["encoder"], tuple(settings["projections"]), settings["rank"]
    kernels = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(base) if _name(path).endswith("/kernel")}
    known = {name.split("/")[-2] for name in kernels}
    for projection in chosen:
        if projection not in known:
            raise unknown_name("projection", projection, known)
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
            return leaf + settings["alpha"] / rank * product

        return jax.tree.map_with_path(add, base)

    def loss(params: Params, batch: Batch, key: jax.Array) -> Any:
        return plan.loss({**params, "encoder": merged(params["frozen"], params["encoder"])}, batch, key)

    return dataclasses.replace(
        plan,
        params={**plan.params, "encoder": adapter},
        loss=loss,
        rebuild=lambda adapter: plan.rebuild(merged(base, adapter)),
        frozen=base,
    )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value")


def _thin(key: jax.Array, width: int, rank: int) -> jax.Array:
    return jax.random.normal(key, (width, rank)) * width**-0.5


@step
class Bottleneck(VectorStep):
    """x + relu(x W₁ + b) W₂, Houlsby's adapter on sentence vectors.

    Attributes:
      down: W₁, float32 [d, rank].
      bias: b, float32 [rank].
      up: W₂, float32 [rank, d].
    """

    down: Any = array()
    bias: Any = array()
    up: Any = array()

    def __call__(self, x: Any) -> Any:
        inner = jax.nn.relu(jnp.matmul(x, self.down, precision="highest") + self.bias)
        return x + jnp.matmul(inner, self.up, precision="highest")

    def to_folder(self, target: Target) -> list[Module]:
        """Two Dense layers: as x = relu(x) − relu(−x), the first carries the residual on to the second."""
        eye, zeros = np.eye(target.width, dtype=np.float32), np.zeros(2 * target.width, np.float32)
        first = Dense(np.hstack([self.down, eye, -eye]).T, np.concatenate([self.bias, zeros]), None, "ReLU")
        second = Dense(np.vstack([self.up, eye, -eye]).T, None, None, "Identity")
        return [*first.to_folder(target), *second.to_folder(target)]


def plan_on_vectors(planner: Planner, objective: str, setup: Setup) -> Plan:
    """A plan that trains one step behind the pooling, `params["steps"]`, on vectors computed once.

    Args:
      planner: Of the objective.
      objective: One that needs no more than sentence vectors and labels.
      setup: `adapter` holds the `kind`, `"linear"` or `"bottleneck"`, and `rank`.

    Raises:
      InputError: An objective that changes the encoder or needs its dropout, or a rank below 1.
    """
    if planner is not plan_sentences or losses.objective_kind(objective).passes > 1:
        raise InputError(
            f"The objective {objective!r} needs the encoder itself, an adapter on vectors leaves it frozen: take one on"
            " pairs, such as 'mnr' or 'cosine', or the adapter 'lora'."
        )
    settings, width = SETTINGS | dict(setup.adapter), setup.model.config.hidden_size
    plan, rank = planner(objective, setup), settings["rank"]
    if rank < 1:
        raise InputError(f"An adapter of rank {rank}: it must be at least 1.")
    adapter: VectorStep = Dense(jnp.eye(width), jnp.zeros(width), None, "Identity")
    if settings["kind"] == "bottleneck":
        adapter = Bottleneck(_thin(jax.random.key(setup.seed), width, rank), jnp.zeros(rank), jnp.zeros((rank, width)))
    compare = losses.objective(objective, **setup.matryoshka, **setup.settings)

    def loss(params: Params, batch: Batch, key: jax.Array) -> Any:
        adapter, vectors = params["steps"][0], batch["vectors"].swapaxes(0, 1)
        vectors = adapter(vectors.reshape(-1, width)).reshape(*vectors.shape[:2], -1)
        return compare(list(vectors), batch.get("labels"), params["head"]), {}

    return dataclasses.replace(
        plan,
        params={"encoder": {}, "head": plan.params["head"], "steps": (adapter,)},
        loss=loss,
        rebuild=lambda _: setup.model,
        vectors=encode_columns(setup.encoder(), setup.columns),
    )


ADAPTERS |= {"lora": plan_lora, "linear": plan_on_vectors, "bottleneck": plan_on_vectors}
