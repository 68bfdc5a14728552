"""Contrastive tension: two encoders agree on a sentence and disagree on others.

References:
  Carlsson et al., Semantic Re-tuning with Contrastive Tension (ICLR 2021).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Scalar

from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.losses import Loss
from jaxwhiten.training import Batch, Objective, Params, Plan, Setup, noisy_vectors, split_encoder


def contrastive_tension(first: Float[Array, "b d"], second: Float[Array, "b d"], *, negatives: int = 7) -> Scalar:
    """Binary cross-entropy of dot products of two encoders, with target 1 for the same sentence and 0 for others.

    Sentence i of the first encoder is paired with i + 1, i + 2, ..., i + `negatives` of the second, in a batch of
    random order; `negatives` is at least 1 and less than b.

    References:
      Carlsson et al., Semantic Re-tuning with Contrastive Tension (ICLR 2021), section 3, equation 1.
    """
    rows = len(first)
    if not 1 <= negatives < rows:
        raise InputError(f"negatives is {negatives}; a batch of {rows} sentences has 1 to {rows - 1} for each.")
    scores = jnp.matmul(first, second.T, precision="highest")
    offset = (jnp.arange(rows)[None, :] - jnp.arange(rows)[:, None]) % rows
    losses = jax.nn.softplus(jnp.where(offset == 0, -scores, scores))
    return jnp.sum(jnp.where(offset <= negatives, losses, 0.0)) / (rows * (negatives + 1))


def plan_ct(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """`contrastive_tension` of two encoders that start equal but share nothing; the first is kept."""
    encoder, rebuild = split_encoder(setup.model, setup.start.view.head.name)
    steps = setup.start.view.head.steps

    def of_both(params: Params, batch: Batch, key: jax.Array) -> Any:
        ids = batch["input_ids"][:, 0]
        lengths = batch["lengths"][:, 0]
        parts = zip((params["encoder"], params["head"]), jax.random.split(key), strict=True)
        vectors = [noisy_vectors(rebuild(part), ids, lengths, steps, nnx.Rngs(dropout=k)) for part, k in parts]
        return loss(vectors, None, {}), {}

    return Plan({"encoder": encoder, "head": encoder}, of_both, rebuild, start=setup.start, fixed=steps)


CT = Objective("ct", contrastive_tension, (1, 1), plan=plan_ct, in_batch=True, bounds={"negatives": Bounds(1)})
