"""Similarities of vectors, named as in sentence-transformers; distances are negated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxwhiten.arrays import comparable, normalize
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.metrics import cosine_pairs
from jaxwhiten.types import Float, Float32, RowsLike

Rows = Float[np.ndarray, "n d"]

_ALL: dict[str, Callable[[Rows, Rows], np.ndarray]] = {
    "cosine": lambda a, b: normalize(a) @ normalize(b).T,
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: -_distances(a, b, "euclidean"),
    "manhattan": lambda a, b: -_distances(a, b, "cityblock"),
}
_PAIRWISE: dict[str, Callable[[Rows, Rows], np.ndarray]] = {
    "cosine": cosine_pairs,
    "dot": lambda a, b: np.einsum("nd,nd->n", a, b),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}
SIMILARITIES = tuple(_ALL)


def check_similarity(name: str) -> str:
    """Returns the name of a similarity; InputError if it is unknown."""
    check_name("similarity", name, SIMILARITIES)
    return name


def similarity(a: RowsLike, b: RowsLike, name: str = "cosine") -> Float32[np.ndarray, "n m"]:
    """Similarities of all rows of `a` with all rows of `b`, in any container; a single vector is one row.

    Codes see `comparable`.
    """
    return _ALL[check_similarity(name)](*_rows(a, b)).astype(np.float32)


def similarity_pairwise(a: RowsLike, b: RowsLike, name: str = "cosine") -> Float32[np.ndarray, " n"]:
    """Similarities of each row of `a` with the same row of `b`."""
    first, second = _rows(a, b)
    if len(first) != len(second):
        raise InputError(f"Expected as many vectors on both sides, got {len(first)} and {len(second)}.")
    return _PAIRWISE[check_similarity(name)](first, second).astype(np.float32)


def _distances(a: np.ndarray, b: np.ndarray, metric: str) -> np.ndarray:
    from scipy.spatial.distance import cdist  # imported here: it takes 0.25 s, and only distances need it

    return cdist(a, b, metric)


def _rows(a: RowsLike, b: RowsLike) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.atleast_2d(np.asarray(x, np.float32)) for x in comparable(a, b))
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InputError(f"Arrays of shapes {np.shape(a)} and {np.shape(b)} do not have the same number of columns.")
    return first, second
