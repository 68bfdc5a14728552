"""Encoding with static encoders: one sparse product gathers the rows of all tokens of a block and averages them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten.arrays import normalize, pad_rows, row_bucket
from jaxwhiten.engines.batching import BatchResult
from jaxwhiten.engines.forward import JAXEngine
from jaxwhiten.head import Heads, Mean, Normalize, Step
from jaxwhiten.head.head import before_code
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.text import TokenIds
from jaxwhiten.types import AnyArray, Float32, RowsLike

_LARGEST = 16_384  # maximum rows in a program for the steps after the mean


class TableEngine(JAXEngine):
    """A table of token vectors, averaged on the host: the tokenizer takes more time than the mean on any device.

    Heads that do not begin with the mean of the tokens use the compiled forward pass.
    """

    @functools.cached_property
    def table(self) -> Float32[np.ndarray, "vocab d"]:
        return np.asarray(self.model().embedding[...], np.float32)

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, BatchResult]:
        averaged = {name: steps[1:] for name, steps in heads.items() if isinstance(steps[0], Mean)}
        if not averaged:
            return {}
        means = mean_matrix(tokens, len(self.table)) @ self.table
        return {name: _after_pooling(steps, means) for name, steps in averaged.items()}


def _after_pooling(steps: tuple[Step, ...], means: Float32[np.ndarray, "n d"]) -> BatchResult:
    """Applies the head's steps after the mean; blocks are padded to few sizes, so that few programs are compiled."""
    finite = np.isfinite(means).all(axis=1, keepdims=True)
    if not steps:
        return BatchResult(means, finite)
    if len(steps) == 1 and isinstance(steps[0], Normalize) and finite.all():
        return BatchResult(normalize(means), finite)
    check_process()
    padded = jnp.asarray(pad_rows(means, row_bucket(len(means), _LARGEST)))
    return BatchResult(*(part[: len(means)] for part in jax.device_get(_applied(*before_code(steps), padded))))


@jax.jit
def _applied(steps: tuple[Step, ...], code: Step | None, x: RowsLike) -> BatchResult:
    for step in steps:
        x = step(x)
    return BatchResult(x if code is None else code(x), jnp.isfinite(x).all(axis=1, keepdims=True))


def mean_matrix(tokens: TokenIds, vocab: int) -> AnyArray:
    """The sparse float32 [n, vocab] matrix whose product with a table is the mean of every sentence's rows."""
    from scipy.sparse import csr_array

    shares = np.repeat((1 / np.maximum(tokens.lengths, 1)).astype(np.float32), tokens.lengths)
    ends = np.append(tokens.starts, len(tokens.flat))
    return csr_array((shares, tokens.flat, ends), shape=(len(tokens.lengths), vocab))
