"""Where tokens are: positions, learned or in attention (rotary, relative, local), and rows without padding.

All tokens of a batch in one row, or several sentences in each of many rows.

References:
  Zhai et al. 2022, "ByteTransformer: A High-Performance Transformer Boosted for Variable-Length Inputs" (its zero
  padding algorithm).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxwhiten.models.config import RotaryScaling
from jaxwhiten.types import Array, Bool, Float, Int


def embedding_rows(
    ids: Int[Array, "rows length"], positions: Int[Array, "rows length"] | None, offset: int
) -> Int[Array, "rows length"]:
    """Rows of the position embedding of encoders that count from the padding id, `offset` - 1, as RoBERTa does.

    A padding id has the row of its own number, and is not counted; it may stand in a text. `positions` are those of
    tokens in their sentences, if rows hold several; None for one sentence per row.
    """
    counted = (ids != offset - 1).astype(jnp.int32)
    count = jnp.cumsum(counted, axis=1)
    if positions is not None:
        before = jnp.pad(count, ((0, 0), (1, 0)))  # at each token, the tokens counted before it in the row
        first = jnp.arange(ids.shape[1]) - positions
        count = count - jnp.take_along_axis(before, jnp.maximum(first, 0), axis=1)
    return offset - 1 + counted * count


class Rotary(NamedTuple):
    """Cosines and sines of each token's rotation angles, and the factor of its query; None for factor 1."""

    cos: Float[Array, "*rows length half"]
    sin: Float[Array, "*rows length half"]
    growth: Float[Array, "*rows length"] | None = None

    def rotate(self, x: Float[Array, "batch length heads head"]) -> Float[Array, "batch length heads head"]:
        """Rotates queries or keys by the angles of their positions, in float32."""
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        cos = self.cos[..., None, :]
        sin = self.sin[..., None, :]
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)

    def at(self, position: Int[Array, "rows length"]) -> Rotary:
        """The entries for tokens at the given positions."""
        growth = None if self.growth is None else jnp.take(self.growth, position, mode="clip")
        cos, sin = (jnp.take(angles, position, axis=0, mode="clip") for angles in self[:2])
        return Rotary(cos, sin, growth)


def rotary(length: int, head_size: int, theta: float, scaling: RotaryScaling | None = None) -> Rotary | None:
    """Angles of the rotary position embedding with base `theta`, in float32 as in published models; None for base 0.

    The first and second half of a head are the coordinates of the rotated pairs.

    >>> rotary(length=8, head_size=4, theta=10000.0).cos.shape
    (8, 2)

    References:
      Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2.
    """
    if not theta:
        return None
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    frequencies = (1.0 / np.float32(theta) ** exponents).astype(np.float32)
    position = np.arange(length, dtype=np.float32)
    attention, growth = 1.0, None
    if scaling is not None:
        attention = scaling.attention
        frequencies = frequencies * _stretch(head_size, theta, scaling)
        if scaling.growth:
            growth = jnp.asarray(1 + scaling.growth * np.log1p(position // max(scaling.original, 1)), jnp.float32)
    angles = position[:, None] * frequencies
    cos, sin = (jnp.asarray(attention * turn(angles)) for turn in (np.cos, np.sin))
    return Rotary(cos, sin, growth)


def _stretch(head_size: int, theta: float, scaling: RotaryScaling) -> Float[np.ndarray, " half"]:
    """The factor of each frequency: 1 / factor, or for YaRN a value from 1 / factor to 1 that depends on its turns."""
    if not scaling.original:
        return np.full(head_size // 2, 1 / scaling.factor, np.float32)

    def turning(turns: float) -> float:
        """The coordinate that makes this many turns within the inputs of the pretraining."""
        return head_size * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(turning(scaling.fast)), 0)
    last = min(math.ceil(turning(scaling.slow)), head_size - 1)
    slow = np.clip((np.arange(head_size // 2, dtype=np.float32) - first) / (last - first or 0.001), 0, 1)
    return (slow / scaling.factor + (1 - slow)).astype(np.float32)


def pair_distances(length: int) -> Int[np.ndarray, "length length"]:
    """How many positions each key, along the second axis, is after each query."""
    position = np.arange(length)
    return position[None, :] - position[:, None]


def relative_buckets(relative: Int[np.ndarray, "*pairs"], buckets: int, max_distance: int) -> Int[np.ndarray, "*pairs"]:
    """Buckets of relative positions: exact for short distances, logarithmic beyond a quarter of the buckets.

    Half of the buckets are for keys after the query. All keys from `max_distance` on share the last bucket.

    References:
      Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
      section 2.1.
    """
    half = buckets // 2
    exact = half // 2
    distance = np.abs(relative)
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(math.log(max_distance / exact)) * np.float32(half - exact)
    far = np.minimum(exact + steps.astype(np.int64), half - 1)
    return np.where(distance < exact, distance, far) + half * (relative > 0)


def visible(length: int, window: int | None, causal: bool) -> Bool[np.ndarray, "length length"] | None:
    """A mask of the keys within `window` positions of a query and, if `causal`, not after it; None if it sees all."""
    if window is None and not causal:
        return None
    after = pair_distances(length)
    return (np.abs(after) <= (length if window is None else window)) & (after <= (0 if causal else length))


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
