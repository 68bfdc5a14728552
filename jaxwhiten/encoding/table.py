"""Static encoders, encoded: one sparse product gathers the rows of all tokens of a block and sums them by sentence."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from jaxwhiten.arrays import normalize, pad_rows, row_bucket
from jaxwhiten.encoding.stream import BLOCK, BatchRunner, Done, ReadyHead, ReadyHeads
from jaxwhiten.head import Mean, Normalize, Step
from jaxwhiten.models import StaticEncoder
from jaxwhiten.text import TokenIds


@jax.jit
def _applied(steps: tuple[Step, ...], x: jax.Array) -> jax.Array:
    found: Any = x
    for step in steps:
        found = step(found)
    return found


class TableRunner(BatchRunner):
    """Runs blocks of sentences through a static encoder on the host; no device is faster than it than its tokenizer.

    Heads that do not begin with the mean of the tokens go through the compiled forward.
    """

    @functools.cached_property
    def _table(self) -> np.ndarray:
        model = self._forward.model()
        assert isinstance(model, StaticEncoder)
        return np.asarray(model.embedding[...], np.float32)

    def run(
        self, tokens: TokenIds, heads: ReadyHeads, max_rows: int | None = None, done: Done | None = None
    ) -> dict[str, np.ndarray]:
        pooled = {name: head for name, head in heads.items() if isinstance(head.steps[0], Mean)}
        others = {name: head for name, head in heads.items() if name not in pooled}
        out = super().run(tokens, others, max_rows, None if pooled else done) if others else {}
        if pooled:
            means = mean_matrix(tokens, len(self._table)) @ self._table
            out |= {name: _after_pooling(head, means) for name, head in pooled.items()}
            if done is not None:
                done(len(means))
        return {name: out[name] for name in heads}


def _after_pooling(head: ReadyHead, means: Float32[np.ndarray, "n d"]) -> np.ndarray:
    """The head's steps after the mean; a block is padded to one of few sizes, so that few programs are compiled."""
    steps = head.steps[1:]
    if not steps or not len(means):
        return means if not steps else np.empty((0, head.width), head.head.dtype)
    if len(steps) == 1 and isinstance(steps[0], Normalize):
        return normalize(means)
    padded = pad_rows(means, row_bucket(len(means), BLOCK))
    return np.asarray(_applied(steps, jnp.asarray(padded)))[: len(means)]


def mean_matrix(tokens: TokenIds, vocab: int) -> Any:
    """The sparse float32 [n, vocab] matrix whose product with a table gives the mean of every sentence's rows."""
    from scipy.sparse import csr_array

    shares = np.repeat((1 / np.maximum(tokens.lengths, 1)).astype(np.float32), tokens.lengths)
    ends = np.append(tokens.starts, len(tokens.flat))
    return csr_array((shares, tokens.flat, ends), shape=(len(tokens.lengths), vocab))
