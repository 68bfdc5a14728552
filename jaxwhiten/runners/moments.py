"""Moments of blocks of vectors, as bytes for another process."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxwhiten.arrays import as_floats, resolution, vectors_of
from jaxwhiten.whitening import Moments


def sums(vectors: np.ndarray) -> Moments:
    """The moments of a block, in float64, so that parts merge to the moments of the corpus to the last digits."""
    floats = as_floats(vectors)
    moments = Moments().update(floats.astype(np.float64)) if len(vectors) else Moments()
    moments.eps = max(moments.eps, resolution(floats.dtype))
    return moments


def of_column(batch: Any, column: str) -> Moments:
    """The moments of the vectors in a column of an Arrow table, without null."""
    return sums(vectors_of(batch[column]))


def as_bytes(moments: Moments) -> bytes:
    return moments.packed().tobytes()


def from_bytes(data: bytes) -> Moments:
    return Moments.unpacked(np.frombuffer(data))
