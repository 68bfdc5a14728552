"""The geometry of a set of vectors: how evenly they fill the space, and how this affects nearest neighbours.

Measures are computed in float64, except the two over all pairs of rows, which run on the device in blocks.
"""

from __future__ import annotations

import functools
import math
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Float64, Int, Shaped

from jaxwhiten.arrays import as_floats, block_rows, blocks, check_finite, normalize, pad_rows
from jaxwhiten.errors import InputError
from jaxwhiten.scoring import best

_BLOCK_ROWS = 8192
_SIMILARITY_BYTES = 32 << 20  # size of one block of similarities


class Geometry(TypedDict):
    """Measures of one set of vectors; NaN for an undefined measure."""

    n: int  # rows measured
    isoscore: float
    average_cosine: float
    effective_rank: float
    uniformity: float
    hubness: float


def geometry(x: Shaped[np.ndarray, "n d"], *, max_rows: int = 10_000, k: int = 10, seed: int = 0) -> Geometry:
    """All measures of one set of vectors.

    Args:
      x: One vector per row, at least two.
      max_rows: Larger sets are sampled without replacement, since `uniformity` and `hubness` look at every
        pair of rows.
      k: Number of neighbours for `hubness`, which is NaN if x has at most k rows.
      seed: Seed of the sample.
    """
    x = as_floats(x)
    _check(x, "The geometry of vectors")
    if max_rows < 2:
        raise InputError(f"max_rows must be at least 2, got {max_rows}.")
    if len(x) > max_rows:
        x = x[np.sort(np.random.default_rng(seed).choice(len(x), max_rows, replace=False))]
    sigma = _covariance(x)
    return {
        "n": len(x),
        "isoscore": isoscore_from_covariance(sigma) if len(sigma) > 1 else math.nan,
        "average_cosine": average_cosine(x),
        "effective_rank": effective_rank_from_covariance(sigma),
        "uniformity": uniformity(x),
        "hubness": hubness(x, k) if len(x) > k else math.nan,
    }


def isoscore_from_covariance(sigma: Float64[np.ndarray, "d d"]) -> float:
    """IsoScore of a covariance matrix; its scale does not matter.

    The paper scales the d variances along the principal axes to length √d, defines the isotropy defect as their
    distance from (1, …, 1), and rescales it. This simplifies to ((Σλ)² / Σλ² − 1) / (d − 1). Both sums are traces, Σλ =
    tr Σ and Σλ² = ‖Σ‖², so that no eigenvalues are computed.

    Args:
      sigma: Covariance of at least two dimensions, such as `Moments.covariance()`.

    Returns:
      The score in [0, 1]; NaN for a zero matrix.

    References:
      Rudman, Gillman, Rayne, Eickhoff: IsoScore: Measuring the Uniformity of Embedding Space Utilization (2022),
      section 4.
    """
    d = len(sigma)
    if d < 2:
        raise InputError("IsoScore compares the variances of directions: it needs at least two dimensions.")
    # Scaling first avoids overflow and underflow of squares.
    trace = float(np.trace(sigma))
    if not trace > 0:
        return math.nan
    scaled = sigma / trace
    return (1 / max(float(np.einsum("ij,ij->", scaled, scaled)), 1 / d) - 1) / (d - 1)


def effective_rank_from_covariance(sigma: Float64[np.ndarray, "d d"]) -> float:
    """The number of dimensions that vectors use: exp of the entropy of the centred matrix's singular values.

    A number from 1 to min(n − 1, d) for n vectors; NaN if all are equal.

    References:
      Roy, Vetterli: The effective rank: a measure of effective dimensionality (2007), definition 1.
    """
    values = np.linalg.eigvalsh(sigma)
    # Rounding in null directions would count by its square root: 1e-16 of the variance as 1e-8.
    singular = np.sqrt(np.where(values > len(values) * np.finfo(np.float64).eps * values[-1], values, 0.0))
    total = singular.sum()
    if not total > 0:
        return math.nan
    p = singular[singular > 0] / total
    return float(np.exp(-(p @ np.log(p))))


def alignment(x: Shaped[np.ndarray, "n d"], y: Shaped[np.ndarray, "n d"]) -> float:
    """The mean of ‖x − y‖² over positive pairs on the unit sphere; smaller is better.

    References:
      Wang, Isola: Understanding Contrastive Representation Learning through Alignment and Uniformity on the
      Hypersphere (2020), section 4.1.
    """
    if not len(x):
        raise InputError("The alignment needs at least one pair.")
    difference = normalize(x).astype(np.float64) - normalize(y)
    return float(np.einsum("ij,ij->i", difference, difference).mean())


def uniformity(x: Shaped[np.ndarray, "n d"]) -> float:
    """The logarithm of the mean of exp(−2 ‖x − y‖²) over all pairs of rows, on the unit sphere; smaller is better.

    A number from −8 to 0, exact, computed in blocks. Zero rows stay zero.

    References:
      Wang, Isola (2020), section 4.2; see `alignment`.
    """
    _check(x, "The uniformity")
    n = len(x)
    unit, rows = _padded(normalize(x).astype(np.float32))
    sums = (_potentials(unit, start, n, rows) for start in range(0, n, rows))
    total = sum(float(np.asarray(block, np.float64).sum()) for block in sums)
    return math.log(total / (n * (n - 1)))


def k_occurrence(x: Shaped[np.ndarray, "n d"], k: int = 10) -> Int[np.ndarray, " n"]:
    """How many other rows have each row among their k nearest by cosine; ties go to the row with the lower index."""
    _check(x, "The k-occurrence")
    n = len(x)
    if not 1 <= k < n:
        raise InputError(f"k must lie between 1 and {n - 1}, the neighbours each of {n} rows has; got {k}.")
    unit = normalize(x).astype(np.float32)
    counts = np.zeros(n, np.int64)
    for part in blocks(n, 1024):
        cosines = unit[part] @ unit.T
        cosines[np.arange(len(cosines)), np.arange(n)[part]] = -np.inf
        counts += np.bincount(best(cosines, k).ravel(), minlength=n)
    return counts


def hubness(x: Shaped[np.ndarray, "n d"], k: int = 10) -> float:
    """The skewness of the k-occurrence: 0 if it is spread symmetrically, large if a few rows, the hubs, dominate.

    References:
      Radovanović, Nanopoulos, Ivanović: Hubs in Space: Popular Nearest Neighbors in High-Dimensional Data (2010),
      section 3.
    """
    counts = k_occurrence(x, k)
    centred = counts - counts.mean()
    deviation = math.sqrt(float((centred**2).mean()))
    if deviation > 0:
        return float((centred**3).mean()) / deviation**3
    return 0.0


def average_cosine(x: Shaped[np.ndarray, "n d"]) -> float:
    """The mean cosine of two different rows: near 0 for evenly spread vectors, near 1 for a narrow cone.

    Exact and linear in n: the sum of all cosines is the squared length of the sum of the unit vectors. Zero vectors
    have cosine 0 with everything.

    References:
      Ethayarajh 2019, "How contextual are contextualized word representations?", section 3.2.
    """
    n = len(x)
    if n < 2:
        raise InputError(f"The average cosine needs at least two vectors, got {n}.")
    unit = normalize(as_floats(x).astype(np.float64))
    total = unit.sum(axis=0)
    return float((total @ total - np.count_nonzero(unit.any(axis=1))) / (n * (n - 1)))


def partner_ranks(
    x: Shaped[np.ndarray, "n d"], left: Int[np.ndarray, " m"], right: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " q"]:
    """The rank of the nearest partner of every row that has one, among all other rows by cosine.

    Ranks count from 1. A row that ties with the partner ranks before it.

    Args:
      x: Vectors of different sentences; each is searched for among all others.
      left, right: Rows of the pairs that people call similar; a row paired with itself is ignored.

    References:
      Wang et al. 2022, "Just Rank: Rethinking Evaluation with Word and Sentence Similarities", section 4 (EvalRank).
    """
    query = np.concatenate([left, right])
    partner = np.concatenate([right, left])
    apart = query != partner
    query = query[apart]
    partner = partner[apart]
    unit = normalize(x)
    ranks = np.full(len(x), len(x))
    for start in range(0, len(query), 1024):
        rows = query[start : start + 1024]
        similarity = unit[rows] @ unit.T
        every = np.arange(len(rows))
        nearest = similarity[every, partner[start : start + 1024]]
        similarity[every, rows] = -np.inf
        np.minimum.at(ranks, rows, (similarity >= nearest[:, None]).sum(axis=1))
    return ranks[np.unique(query)]


def _check(x: np.ndarray, name: str) -> None:
    if len(x) < 2:
        raise InputError(f"{name} needs at least two rows, got {len(x)}.")
    check_finite(x)


def _covariance(x: np.ndarray) -> np.ndarray:
    """The covariance in float64 for rows of any dtype, because small eigenvalues count here."""
    centre = x.mean(axis=0, dtype=np.float64)
    total = np.zeros((x.shape[1], x.shape[1]))
    for part in blocks(len(x), _BLOCK_ROWS):
        y = x[part] - centre
        total += y.T @ y
    return total / len(x)


def _padded(unit: np.ndarray) -> tuple[jax.Array, int]:
    """The rows on the device, padded to a multiple of the block size, and the block size."""
    n = len(unit)
    rows = min(block_rows(n, 4, _SIMILARITY_BYTES), max(8, 1 << (n.bit_length() - 1)))
    return jax.device_put(pad_rows(unit, n + -n % rows)), rows


def _similarities(
    unit: Float32[jax.Array, "m d"], start: jax.Array, n: jax.Array, rows: int
) -> tuple[jax.Array, jax.Array]:
    """Inner products of `rows` rows with all rows, and a mask of pairs of two different rows of the first n."""
    block = lax.dynamic_slice_in_dim(unit, start, rows)
    row = start + jnp.arange(rows)[:, None]
    column = jnp.arange(len(unit))[None, :]
    products = jnp.matmul(block, unit.T, precision=lax.Precision.HIGHEST)
    return products, (row != column) & (row < n) & (column < n)


@functools.partial(jax.jit, static_argnames="rows")
def _potentials(unit: jax.Array, start: jax.Array, n: jax.Array, rows: int) -> jax.Array:
    products, valid = _similarities(unit, start, n, rows)
    squares = jnp.einsum("ij,ij->i", unit, unit, precision=lax.Precision.HIGHEST)  # 1, or 0 for zero rows
    distances = lax.dynamic_slice_in_dim(squares, start, rows)[:, None] + squares[None, :] - 2 * products
    return jnp.where(valid, jnp.exp(-2 * jnp.maximum(distances, 0.0)), 0.0).sum(axis=1)
