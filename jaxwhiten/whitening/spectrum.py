"""A summary of vectors and their whitening from mean and eigenvalues alone, and suggestions for k, β and γ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np

from jaxwhiten.metrics import isoscore_from_covariance
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening

_ROWS_PER_DIRECTION = 10
_SHARE = 0.95  # least share of the variance that the suggested k holds
# Vectors of encoders that were trained for cosines have an IsoScore above this (0.21 even on docstrings, which are
# texts of one subject); vectors of encoders that were only pre-trained have 0.05 at most.
SPREAD_OUT = 0.1
# On the sentences that ship with the package, which are of many subjects, tuned encoders have an IsoScore of 0.30 or
# more; layers of these encoders that were not tuned have 0.15 at most.
TUNED = 0.2
_CONSTANT, _ENOUGH = 0.02, 4  # the third quartile of the variances over the first; rows per axis


class Isotropy(TypedDict):
    """How evenly vectors point into all directions, estimated from mean and covariance."""

    mean_cosine: float  # |μ|² / (|μ|² + tr Σ): the mean cosine of two different rows if all rows have the same length
    isoscore: float  # 1 if all directions have equal variance, 0 if one has all of it; NaN for one dimension


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


class Suggestion(NamedTuple):
    """Settings to start from; `reasons` explains each setting in one sentence."""

    n_components: int
    beta: float
    gamma: float
    shrinkage: str | None
    reasons: tuple[str, ...]


def spread(fitted: Moments | Whitening) -> float:
    """The IsoScore of raw vectors; `SPREAD_OUT` separates tuned encoders from those that were only pre-trained.

    The mean does not matter: a tuned encoder whose cosines are all high scores like one whose cosines are low. The
    settings of a whitening do not matter either. The bias of few rows is corrected, see `isoscore_from_covariance`. NaN
    if all rows are equal or have one dimension.
    """
    sigma, n = _covariance(fitted)
    return isoscore_from_covariance(sigma, n) if len(sigma) > 1 else math.nan


def _covariance(fitted: Moments | Whitening) -> tuple[np.ndarray, int]:
    """The covariance of raw vectors, for a whitening along its axes, and their number."""
    if isinstance(fitted, Moments):
        return fitted.covariance(), fitted.n
    return np.diag(fitted.with_params(shrinkage=None, n_components=None).eigenvalues_), fitted.n_samples_seen_


def hardly_varies(fitted: Moments | Whitening) -> bool:
    """Whether a quarter of the axes hold almost no variance, as for vectors of templated sentences.

    Scaling such axes up separates a query in other words from all documents. Always False for fewer than 4 rows per
    axis.
    """
    sigma, n = _covariance(fitted)
    values, d = np.linalg.eigvalsh(sigma)[::-1], len(sigma)
    return n >= _ENOUGH * d and bool(values[3 * d // 4] < _CONSTANT * values[d // 4])


def _isotropy(mean: np.ndarray, variances: np.ndarray) -> Isotropy:
    square, total = float(mean @ mean), float(variances.sum())
    return {
        "mean_cosine": square / (square + total) if square + total > 0 else math.nan,
        "isoscore": isoscore_from_covariance(np.diag(variances)) if len(variances) > 1 else math.nan,
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


def suggest(whitening: Whitening) -> Suggestion:
    """Settings to start from, by rules of thumb; `jaxwhiten.whitening.tuning.tune` finds better ones with a few labels.

    The settings of the fitted whitening do not matter.

    References:
      Su, Cao, Liu, Ou 2021 (BERT-whitening), section 3.3, for a k well below d. Su, https://kexue.fm/archives/9079, for
      β and γ below 1 on vectors of fine-tuned encoders.
    """
    facts = spectrum(whitening, ks=range(1, whitening.n_features_in_ + 1))
    n, d, rank = facts["n"], facts["dimension"], facts["rank"]
    shares = [row["share"] for row in facts["explained"]]
    supported = max(1, min(rank, n // _ROWS_PER_DIRECTION))
    enough = next((k for k in doubling(d) if shares[k - 1] >= _SHARE), d)
    k = min(enough, supported)
    more = f", the first {k // 2} explain {100 * shares[k // 2 - 1]:.1f}%" if k > 1 else ""
    if k < enough:
        few = f"{n} rows support no more, at {_ROWS_PER_DIRECTION} each"
        more = f"; the rank is {rank}" if supported == rank else f"; {few}"
    reasons = [f"k={k}: the first {k} of {d} directions explain {100 * shares[k - 1]:.1f}% of the variance{more}"]
    cosine = facts["before"]["mean_cosine"]
    if not cosine >= 0.01:
        reasons.append(f"β=1: the mean is {100 * cosine:.1f}% of the squared length, so β hardly matters")
    else:
        reasons.append(f"β=1: the mean alone gives two different rows a cosine of about {cosine:.2f}")
    if (isotropy := spread(whitening)) > SPREAD_OUT:
        gamma = 0.0
        reasons.append(
            "γ=0: the rows already point into many directions, as those of encoders trained for cosines do; scaling the"
            " small directions up tends to lower their scores, except at a small k"
        )
    else:
        gamma = 1.0
        ratio = f"{facts['condition']:.0f}" if facts["condition"] < 1e6 else f"{facts['condition']:.0e}"
        reasons.append(
            f"γ=1: few directions have most of the variance (IsoScore {isotropy:.3f}); variances differ by a factor of"
            f" {ratio}"
        )
    shrinkage = None
    if n < _ROWS_PER_DIRECTION * d:
        shrinkage = "oas"
        reasons.append(f"shrinkage=oas: {n} rows are fewer than {_ROWS_PER_DIRECTION} per dimension")
    return Suggestion(k, 1.0, gamma, shrinkage, tuple(reasons))
