"""LoRA: low-rank products learn a domain while the encoder's parameters stay unchanged.

They start as the unchanged model and are merged into the projections for scoring and export.

References:
  Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (ICLR 2022), section 4.1, equation 3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxwhiten.errors import InputError, check_name
from jaxwhiten.losses import Loss
from jaxwhiten.training.plan import Objective, Plan, Setup
from jaxwhiten.training.step import Batch, Params


def plan_lora(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """The objective's own plan, with LoRA as the trained parameters and the encoder's parameters frozen.

    W becomes W + alpha / rank · A B, with A [inputs, rank] drawn from a normal distribution and B [rank, outputs] zero.
    """
    plan = objective.plan(objective, loss, setup)
    base, chosen, rank = plan.params["encoder"], setup.options.lora_projections, setup.options.lora
    kernels = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(base) if _name(path).endswith("/kernel")}
    known = {name.split("/")[-2] for name in kernels}
    for projection in chosen:
        check_name("projection", projection, known)
    kernels = {name: leaf for name, leaf in kernels.items() if name.split("/")[-2] in chosen}
    if not kernels or not 1 <= rank <= min(min(leaf.shape) for leaf in kernels.values()):
        raise InputError(f"LoRA needs projections and a rank from 1 to their width: got {chosen}, rank {rank}.")
    keys = jax.random.split(jax.random.key(setup.options.seed), len(kernels))
    adapter = {
        name: {
            "down": jax.random.normal(key, (len(leaf), rank)) * len(leaf) ** -0.5,
            "up": jnp.zeros((rank, leaf.shape[1])),
        }
        for key, (name, leaf) in zip(keys, kernels.items(), strict=True)
    }

    def merged(base: Params, adapter: Params) -> Params:
        def add(path: Any, leaf: Any) -> Any:
            if (name := _name(path)) not in adapter:
                return leaf
            product = jnp.matmul(adapter[name]["down"], adapter[name]["up"], precision="highest")
            return leaf + setup.options.lora_alpha / rank * product

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
