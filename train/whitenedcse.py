"""WhitenedCSE: whitening inside the loss, with the statistics of the batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.losses import Loss, simcse
from jaxwhiten.training import Batch, Objective, Params, Plan, Setup, plan_sentences


@jax.custom_vjp
def inverse_sqrt(covariance: Float[Array, "*b g g"]) -> Float[Array, "*b g g"]:
    """Σ^(−1/2) of symmetric, positive definite matrices; gradients stay finite if eigenvalues coincide.

    The gradient of a symmetric G is V ((Vᵀ G V) ∘ K) Vᵀ, where K holds the divided differences of λ^(−1/2),
    −1 / (√λᵢ √λⱼ (√λᵢ + √λⱼ)). The gradient of `jnp.linalg.eigh` divides by λᵢ − λⱼ instead.

    References:
      Bhatia, Matrix Analysis (1997), theorem V.3.3 (Daleckii and Krein).
    """
    return _inverse_sqrt(covariance)[0]


def _inverse_sqrt(covariance: Array) -> tuple[Array, tuple[Array, Array]]:
    # One matrix at a time: on a CPU, batched decompositions of several steps in flight wait for each other's threads.
    if covariance.ndim == 3:
        values, vectors = jax.lax.map(jnp.linalg.eigh, covariance)
    else:
        values, vectors = jnp.linalg.eigh(covariance)
    roots = jnp.sqrt(jnp.maximum(values, jnp.finfo(values.dtype).tiny))
    return jnp.matmul(vectors / roots[..., None, :], vectors.mT, precision="highest"), (roots, vectors)


def _inverse_sqrt_backward(residuals: tuple[Array, Array], change: Array) -> tuple[Array]:
    roots, vectors = residuals
    rows = roots[..., :, None]
    columns = roots[..., None, :]
    turned = jnp.einsum("...ji,...jk,...kl->...il", vectors, (change + change.mT) / 2, vectors, precision="highest")
    turned = -turned / (rows * columns * (rows + columns))
    return (jnp.einsum("...ij,...jk,...lk->...il", vectors, turned, vectors, precision="highest"),)


inverse_sqrt.defvjp(_inverse_sqrt, _inverse_sqrt_backward)


def group_whiten(x: Float[Array, "n d"], group_size: int, epsilon: float = 1e-4) -> Float[Array, "n d"]:
    """Whitens each group of consecutive columns by the batch's mean and covariance, changing the input least (ZCA).

    Each group becomes (x − μ) Σ^(−1/2), whose covariance is the identity up to `epsilon`: this share of the group's
    mean variance is added to every variance. `group_size` divides d and is less than n.

    References:
      Zhuo et al., WhitenedCSE (ACL 2023), section 3.2.
    """
    rows, width = x.shape
    if group_size < 1 or width % group_size or group_size >= rows:
        raise InputError(f"group_size {group_size} must divide the width {width} and be less than the {rows} rows.")
    groups = (x - jnp.mean(x, axis=0)).reshape(rows, -1, group_size).swapaxes(0, 1)
    covariance = jnp.matmul(groups.mT, groups, precision="highest") / rows
    mean_variance = jnp.trace(covariance, axis1=1, axis2=2)[:, None, None] / group_size
    ridge = epsilon * jnp.maximum(mean_variance, jnp.finfo(x.dtype).eps)
    whitened = jnp.matmul(groups, inverse_sqrt(covariance + ridge * jnp.eye(group_size)), precision="highest")
    return whitened.swapaxes(0, 1).reshape(rows, width)


def whitenedcse(
    first: Float[Array, "b d"],
    second: Float[Array, "b d"],
    key: Array | None = None,
    *,
    temperature: float = 0.05,
    group_size: int = 64,
    shuffles: int = 3,
) -> Scalar:
    """SimCSE after shuffled group whitening: every shuffle of the columns gives another positive.

    Columns are shuffled, whitened in groups and shuffled back. The first pass under one shuffle and the second pass
    under each shuffle are a positive pair; the losses of all pairs are averaged. Without a `key` columns are not
    shuffled.

    References:
      Zhuo et al., WhitenedCSE (ACL 2023), sections 3.2 and 3.3.
    """

    def shuffled(x: Array, number: int) -> Array:
        if key is None:
            return group_whiten(x, group_size)
        order = jax.random.permutation(jax.random.fold_in(key, number), x.shape[1])
        return group_whiten(x[:, order], group_size)[:, jnp.argsort(order)]

    anchor = shuffled(first, 0)
    return jnp.mean(jnp.stack([simcse(anchor, shuffled(second, n), temperature=temperature) for n in range(shuffles)]))


def plan_shuffled(objective: Objective, loss: Loss, setup: Setup) -> Plan:
    """A plan for `whitenedcse` that shuffles columns differently in every step."""
    plan = plan_sentences(objective, loss, setup)

    def shuffled(params: Params, batch: Batch, key: jax.Array) -> Any:
        dropout, shuffles = jax.random.split(key)
        return plan.loss(params | {"head": {"key": shuffles}}, batch, dropout)

    return dataclasses.replace(plan, loss=shuffled)


WHITENEDCSE = Objective(
    "whitenedcse",
    whitenedcse,
    (1, 1),
    passes=2,
    plan=plan_shuffled,
    in_batch=True,
    bounds={"temperature": Bounds(1e-4, 1e4), "group_size": Bounds(1), "shuffles": Bounds(1, 1000)},
)
