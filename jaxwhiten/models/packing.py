"""Rows without padding: all tokens of a batch in one row, or several sentences in each of many rows.

References:
  Zhai et al. 2022, "ByteTransformer: A High-Performance Transformer Boosted for Variable-Length Inputs" (its zero
  padding algorithm).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxwhiten.types import Array, Bool, Float, Int


class Packing(NamedTuple):
    """Index maps between padded rows and one packed row without padding."""

    place: Int[Array, "batch length"]  # packed index of each padded position; arbitrary for padding
    source: Int[Array, " tokens"]  # padded position of each packed token, counted over all rows

    @classmethod
    def of(cls, mask: Int[Array, "batch length"], tokens: int) -> Packing:
        """The packing of rows padded on the right into one of `tokens`; excess tokens of the last rows are dropped."""
        rows, length = mask.shape
        lengths = jnp.sum(mask, axis=1)
        ends = jnp.cumsum(lengths)
        starts = ends - lengths
        here = jnp.arange(tokens)
        row = jnp.minimum(jnp.searchsorted(ends, here, side="right"), rows - 1)
        source = row * length + jnp.minimum(here - starts[row], length - 1)
        return cls(jnp.minimum(starts[:, None] + jnp.arange(length), tokens - 1), source)

    def pack(self, x: Float[Array, "batch length d"]) -> Float[Array, "tokens d"]:
        """Removes the padding."""
        return jnp.take(x.reshape(-1, x.shape[-1]), self.source, axis=0, mode="clip")

    def pad(self, x: Float[Array, "tokens d"]) -> Float[Array, "batch length d"]:
        """Restores the padded rows; padding holds arbitrary tokens."""
        return jnp.take(x, self.place, axis=0, mode="clip")


class Segments(NamedTuple):
    """Several sentences in a row, one after the other; the rest of the row is empty."""

    number: Int[Array, "rows length"]  # each token's sentence in its row; the number of sentences for empty positions
    position: Int[Array, "rows length"]  # of each token in its sentence
    first: Int[Array, "rows sentences"]  # index in its row of a sentence's first token; arbitrary for missing sentences

    @classmethod
    def of(cls, lengths: Int[Array, "rows sentences"], length: int) -> Segments:
        """The segments of rows of `length`. A length of 0 means no sentence, and no sentence may follow it."""
        ends = jnp.cumsum(lengths, axis=1)
        here = jnp.arange(length)
        first = ends - lengths
        number = jnp.sum(here >= ends[:, :, None], axis=1)
        start = jnp.max(jnp.where(first[:, :, None] <= here, first[:, :, None], 0), axis=1)
        return cls(number, here - start, jnp.minimum(first, length - 1))

    def members(self) -> Bool[Array, "rows sentences length"]:
        """A mask of the tokens of each sentence."""
        return self.number[:, None, :] == jnp.arange(self.first.shape[1])[:, None]

    def together(self) -> Bool[Array, "rows 1 length length"]:
        """A mask of the pairs of tokens that belong to the same sentence."""
        return (self.number[:, :, None] == self.number[:, None, :])[:, None]

    def firsts(self, x: Float[Array, "rows length d"]) -> Float[Array, "rows sentences d"]:
        """The first token of each sentence."""
        return jnp.take_along_axis(x, self.first[:, :, None], axis=1)
