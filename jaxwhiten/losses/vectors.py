"""Cosines with finite gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def normalize_rows(x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """Scales rows to unit length; zero rows stay zero, with finite gradients."""
    squares = jnp.sum(x * x, axis=-1, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, x * jax.lax.rsqrt(jnp.where(positive, squares, 1.0)), 0.0)


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Row-wise cosine similarity; 0 where either row is zero."""
    return jnp.sum(normalize_rows(u) * normalize_rows(v), axis=-1)
