"""Rows of tokens without their padding: what is computed token by token need not be computed on padding.

References:
  Zhai et al. 2022, "ByteTransformer: A High-Performance Transformer Boosted for Variable-Length Inputs" (its zero
  padding algorithm).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Packing(NamedTuple):
    """Where the tokens of padded rows lie in one row without padding, in which all but attention works on them.

    Attributes:
      place: For each padded position, where its token lies; for padding, any place.
      source: For each token, its padded position, counted over all rows.
    """

    place: Int[Array, "batch length"]
    source: Int[Array, " tokens"]

    @classmethod
    def of(cls, mask: Int[Array, "batch length"], tokens: int) -> Packing:
        """The packing of these rows.

        Args:
          mask: 1 for tokens, 0 for padding, which is on the right.
          tokens: Places there are; tokens of the last rows that find none are lost.
        """
        rows, length = mask.shape
        lengths = jnp.sum(mask, axis=1)
        ends = jnp.cumsum(lengths)
        starts, here = ends - lengths, jnp.arange(tokens)
        row = jnp.minimum(jnp.searchsorted(ends, here, side="right"), rows - 1)
        source = row * length + jnp.minimum(here - starts[row], length - 1)
        return cls(jnp.minimum(starts[:, None] + jnp.arange(length), tokens - 1), source)

    def pack(self, x: Float[Array, "batch length d"]) -> Float[Array, "tokens d"]:
        """The tokens without padding."""
        return jnp.take(x.reshape(-1, x.shape[-1]), self.source, axis=0, mode="clip")

    def pad(self, x: Float[Array, "tokens d"]) -> Float[Array, "batch length d"]:
        """The tokens in their rows; padding holds another token."""
        return jnp.take(x, self.place, axis=0, mode="clip")
