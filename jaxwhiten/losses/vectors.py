"""Cosines with finite gradients."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxwhiten.arrays import normalize_on_device


def cosine(u: Float[Array, "*b d"], v: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Row-wise cosine similarity; 0 where either row is zero."""
    return jnp.sum(normalize_on_device(u) * normalize_on_device(v), axis=-1)
