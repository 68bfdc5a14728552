"""A summary of vectors and their whitening from mean and eigenvalues alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from jaxwhiten.whitening.gamma import participation_ratio
from jaxwhiten.whitening.whitening import Whitening


class Isotropy(TypedDict):
    """How evenly vectors point into all directions, estimated from mean and covariance."""

    mean_cosine: float  # |μ|² / (|μ|² + tr Σ): the mean cosine of two different rows if all rows have the same length
    participation_ratio: float  # of the variances: at most the dimension, 1 if one direction has all of it


class Share(TypedDict):
    """The share of the variance that the first k directions hold."""

    k: int
    share: float


class Spectrum(TypedDict):
    """A summary of vectors and of one whitening of them."""

    n: int
    dimension: int
    rank: int
    condition: float  # the largest eigenvalue over the smallest one above the floor
    explained: list[Share]
    before: Isotropy  # of the raw vectors
    after: Isotropy  # of the whitened vectors


def _isotropy(mean: np.ndarray, variances: np.ndarray) -> Isotropy:
    square, total = float(mean @ mean), float(variances.sum())
    return {
        "mean_cosine": square / (square + total) if square + total > 0 else math.nan,
        "participation_ratio": participation_ratio(variances),
    }


def doubling(dimension: int, least: int = 8) -> list[int]:
    """The powers of two from `least` up to the dimension, and the dimension itself."""
    powers = [2**i for i in range(int(dimension).bit_length()) if least <= 2**i < dimension]
    return [*powers, dimension]


def spectrum(whitening: Whitening, ks: Sequence[int] | None = None) -> Spectrum:
    """Summarises a fitted whitening, without vectors.

    `ks` are the numbers of directions whose share of the variance is given, by default powers of two and d.
    """
    values = whitening.with_params(shrinkage=None, n_components=None).eigenvalues_
    d, rank, total = len(values), whitening.rank_, float(values.sum())
    ks = doubling(d) if ks is None else ks
    shares = np.cumsum(values) / total if total > 0 else np.full(d, math.nan)
    scales = np.linalg.norm(whitening.kernel[0].astype(np.float64), axis=0)  # Λ^(−γ/2): the columns of U have length 1
    k = len(scales)
    mean = whitening.mean_ @ whitening.components_
    return {
        "n": whitening.n_samples_seen_,
        "dimension": d,
        "rank": rank,
        "condition": float(values[0] / values[rank - 1]) if rank else math.nan,
        "explained": [{"k": int(k), "share": float(shares[k - 1])} for k in ks],
        "before": _isotropy(mean, values),
        "after": _isotropy((1 - whitening.beta) * mean[:k] * scales, values[:k] * scales**2),
    }
