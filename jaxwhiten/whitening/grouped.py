"""Moments by group: of the vectors of Arrow tables, merged in any order, as bytes for another process.

Groups are texts, numbers or null: a language, a tenant. Where nobody asked for groups, all rows are of the group None.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from jaxwhiten.arrays import resolution
from jaxwhiten.coded import as_floats, vectors_of
from jaxwhiten.whitening.moments import Moments

Groups = dict[Any, Moments]


def sums(vectors: np.ndarray) -> Moments:
    """The moments of a block, in float64, so that parts merge to the moments of the corpus to the last digits."""
    floats = as_floats(vectors)
    moments = Moments().update(floats.astype(np.float64)) if len(vectors) else Moments()
    moments.eps = max(moments.eps, resolution(floats.dtype))
    return moments


def moments_of(batch: Any, column: str = "vector", by: str | None = None) -> Groups:
    """The moments of the vectors of an Arrow table, by the values of a column."""
    import pyarrow.compute as pc

    if by is None:
        return {None: sums(vectors_of(batch[column]))}
    keys = batch[by].dictionary_encode(null_encoding="encode")
    if hasattr(keys, "chunks"):
        keys = keys.combine_chunks()
    parts = (batch[column].filter(pc.equal(keys.indices, number)) for number in range(len(keys.dictionary)))
    return {key: sums(vectors_of(part)) for key, part in zip(keys.dictionary.to_pylist(), parts, strict=True)}


def merged(total: Groups, *parts: Groups) -> Groups:
    """The moments of all parts, added to `total`; the parts do not change, and groups without rows left out."""
    for part in parts:
        for key, moments in part.items():
            if moments.n:
                total.setdefault(key, Moments()).merge(moments)
    return total


def as_bytes(groups: Groups) -> bytes:
    """Moments as safetensors, each under its group in JSON."""
    from safetensors.numpy import save

    return save({json.dumps(group): moments.packed() for group, moments in groups.items()})


def from_bytes(data: bytes) -> Groups:
    from safetensors.numpy import load

    return {json.loads(group): Moments.unpacked(packed) for group, packed in load(data).items()}


def merged_bytes(*parts: bytes) -> bytes:
    return as_bytes(merged({}, *map(from_bytes, parts)))


def result(groups: Groups, by: str | None) -> Moments | Groups:
    """The moments, or with `by` those of each group."""
    if by is not None:
        return groups
    return groups.get(None, Moments())
