"""A summary of vectors and their whitening from mean and eigenvalues alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxwhiten.whitening.gamma import participation_ratio
from jaxwhiten.whitening.whitening import Whitening


def _isotropy(mean: np.ndarray, variances: np.ndarray) -> dict[str, float]:
    """How evenly vectors point into all directions; the mean cosine is that of rows of one length."""
    square, total = float(mean @ mean), float(variances.sum())
    cosine = square / (square + total) if square + total > 0 else math.nan
    return {"mean_cosine": cosine, "participation_ratio": participation_ratio(variances)}


def spectrum(whitening: Whitening) -> dict[str, Any]:
    """Summarises a fitted whitening, without vectors.

    The condition is the largest eigenvalue over the smallest one above the floor. `explained` has the share of the
    variance that the first k directions hold, for powers of two and d. `before` is of raw vectors, `after` of whitened.
    """
    values = whitening.with_params(shrinkage=None, n_components=None).eigenvalues_
    d, rank, total = len(values), whitening.rank_, float(values.sum())
    ks = [*(2**i for i in range(3, d.bit_length()) if 2**i < d), d]
    shares = np.cumsum(values) / total if total > 0 else np.full(d, math.nan)
    scales = np.linalg.norm(whitening.kernel[0].astype(np.float64), axis=0)  # Λ^(−γ/2): the columns of U have length 1
    k = len(scales)
    mean = whitening.mean_ @ whitening.components_
    return {
        "n": whitening.n_samples_seen_,
        "dimension": d,
        "rank": rank,
        "condition": float(values[0] / values[rank - 1]) if rank else math.nan,
        "explained": [{"k": k, "share": float(shares[k - 1])} for k in ks],
        "before": _isotropy(mean, values),
        "after": _isotropy((1 - whitening.beta) * mean[:k] * scales, values[:k] * scales**2),
    }
