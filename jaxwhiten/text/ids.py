"""Token ids of many sentences, as flat arrays."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Int


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Token ids of many sentences, concatenated without padding, and the number of tokens of each sentence."""

    flat: Int[np.ndarray, " tokens"]
    lengths: Int[np.ndarray, " n"]
    cut: int = 0  # sentences that were truncated

    def padded(
        self, rows: Int[np.ndarray, " rows"], height: int, length: int, pad_id: int
    ) -> Int[np.ndarray, "height length"]:
        """The chosen sentences as a [height, length] matrix, padded with `pad_id`."""
        filled = np.arange(length) < self.lengths[rows][:, None]
        source = self.starts[rows][:, None] + np.arange(length)
        matrix = np.full((height, length), pad_id, np.int32)
        matrix[: len(rows)][filled] = self.flat[source[filled]]
        return matrix

    @functools.cached_property
    def starts(self) -> Int[np.ndarray, " n"]:
        """The index in `flat` at which each sentence begins."""
        return np.cumsum(self.lengths) - self.lengths

    def document_frequencies(self, vocab_size: int) -> Int[np.ndarray, " vocab"]:
        """The number of sentences in which each token id occurs."""
        sentence = np.repeat(np.arange(len(self.lengths)), self.lengths)
        occurring = np.unique(sentence * vocab_size + self.flat) % vocab_size
        return np.bincount(occurring, minlength=vocab_size)
