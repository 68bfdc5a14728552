"""What variances tell of vectors: how many directions they use, the γ that follows from it, and a summary.

The rule for γ, the exponent of the scaling, holds wherever the caller gives none; a plain `Whitening` has γ = 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxwhiten.errors import warn
from jaxwhiten.types import Float64, Json
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning

TUNED_GAMMA = 0.25
UNTUNED_GAMMA = 1.0
# the least participation ratio of a fine-tuned encoder, but a fourth of few dimensions
_SPREAD = 50.0
_NARROW = 4
# part of that ratio below which vectors alone give doubt, if there are this many
_DOUBTFUL = 0.4
_ROWS = 100


class Choice(NamedTuple):
    """A γ, and the reason for it."""

    gamma: float
    why: str

    def __str__(self) -> str:
        return f"γ={self.gamma:g}: {self.why}"


def participation_ratio(fitted: Moments | Whitening | Float64[np.ndarray, " d"]) -> float:
    """tr(Σ)² / tr(Σ²) of raw vectors or of variances: as many equal variances are spread as widely; NaN without any.

    >>> round(participation_ratio(np.array([1.0, 1.0, 0.0, 0.0])), 6)
    2.0
    """
    if isinstance(fitted, Moments):
        sigma = fitted.M2
        total = fitted.M2.trace()
    else:
        sigma = fitted if isinstance(fitted, np.ndarray) else fitted.variances_
        total = sigma.sum()
    if total > 0:
        return float(1 / ((sigma / total) ** 2).sum())
    return math.nan


def is_spread(ratio: float, dimension: int) -> bool:
    """Whether an encoder counts as fine-tuned for similarity, by the participation ratio of varied sentences.

    >>> is_spread(114.0, 384), is_spread(10.0, 256)
    (True, False)
    """
    return ratio >= min(_SPREAD, dimension / _NARROW)


def choose_gamma(fitted: Moments | Whitening, tuned: bool | None = None) -> Choice:
    """The default γ for vectors: 0.25 if their encoder is fine-tuned for similarity, else 1.

    Vectors of an unknown encoder count as those of a fine-tuned one, with a warning if they spread over few directions.
    For the evidence see docs/evidence/whitening.md.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8))
    >>> choose_gamma(Moments().update(rows), tuned=False).gamma
    1.0

    Args:
      fitted: The moments or the whitening of the vectors, whose provenance records the answer of their encoder.
      tuned: Overrides the record.
    """
    recorded = fitted.provenance.get("tuned")
    basis = "judged by its vectors" if "participation_ratio" in fitted.provenance else "as recorded"
    if tuned is not None:
        recorded = tuned
        basis = "as specified"
    gamma = UNTUNED_GAMMA if recorded is False else TUNED_GAMMA
    if recorded is not None:
        return Choice(gamma, f"the encoder is {'' if recorded else 'not '}fine-tuned for similarity ({basis})")
    if isinstance(fitted, Moments):
        n = fitted.n
        mean = fitted.mean
    else:
        n = fitted.n_samples_seen_
        mean = fitted.mean_
    spread = participation_ratio(fitted)
    if n >= _ROWS and not is_spread(spread / _DOUBTFUL, len(mean)):
        warn(
            f"γ={gamma:g}, because these vectors do not record their encoder. Their participation ratio, {spread:.0f},"
            " is that of an encoder not fine-tuned for similarity: if it is not, set tuned to False (--untuned).",
            WhiteningWarning,
        )
    return Choice(gamma, "as for an encoder fine-tuned for similarity: these vectors do not record their encoder")


def _isotropy(mean: np.ndarray, variances: np.ndarray) -> dict[str, float]:
    """How evenly vectors point into all directions; the mean cosine is that of rows of one length."""
    square = float(mean @ mean)
    total = float(variances.sum())
    cosine = square / (square + total) if square + total > 0 else math.nan
    return {"mean_cosine": cosine, "participation_ratio": participation_ratio(variances)}


def spectrum(whitening: Whitening) -> Json:
    """Summarizes a fitted whitening, without vectors.

    The condition is the largest eigenvalue over the smallest one above the floor. `explained` has the share of the
    variance that the first k directions hold, for powers of two and d. `before` is of raw vectors, `after` of whitened.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8))
    >>> spectrum(Whitening().fit(rows))["rank"]
    8
    """
    values = whitening.with_params(shrinkage=None, n_components=None).eigenvalues_
    d = len(values)
    rank = whitening.rank_
    total = float(values.sum())
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
