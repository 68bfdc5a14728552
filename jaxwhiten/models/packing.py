"""Packing: tokens without their padding, so that token-wise layers skip the padding.

References:
  Zhai et al. 2022, "ByteTransformer: A High-Performance Transformer Boosted for Variable-Length Inputs" (its zero
  padding algorithm).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Packing(NamedTuple):
    """Index maps between padded rows and one packed row without padding.

    Attributes:
      place: Packed index of each padded position; arbitrary for padding.
      source: Padded position of each packed token, counted over all rows.
    """

    place: Int[Array, "batch length"]
    source: Int[Array, " tokens"]

    @classmethod
    def of(cls, mask: Int[Array, "batch length"], tokens: int) -> Packing:
        """The packing of rows padded on the right into one of `tokens`; excess tokens of the last rows are dropped."""
        rows, length = mask.shape
        lengths = jnp.sum(mask, axis=1)
        ends = jnp.cumsum(lengths)
        starts, here = ends - lengths, jnp.arange(tokens)
        row = jnp.minimum(jnp.searchsorted(ends, here, side="right"), rows - 1)
        source = row * length + jnp.minimum(here - starts[row], length - 1)
        return cls(jnp.minimum(starts[:, None] + jnp.arange(length), tokens - 1), source)

    def pack(self, x: Float[Array, "batch length d"]) -> Float[Array, "tokens d"]:
        """Removes the padding."""
        return jnp.take(x.reshape(-1, x.shape[-1]), self.source, axis=0, mode="clip")

    def pad(self, x: Float[Array, "tokens d"]) -> Float[Array, "batch length d"]:
        """Restores the padded rows; padding holds arbitrary tokens."""
        return jnp.take(x, self.place, axis=0, mode="clip")
