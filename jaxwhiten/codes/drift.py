"""Whether new vectors still resemble the vectors that a whitening or a code was fitted on, judged by moments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.whitening import Moments, Whitening

VERDICTS = ("fine", "refit soon", "refit now")


class Measure(NamedTuple):
    """One measure of drift: its value for the new vectors, its value for the fit, and its verdict."""

    name: str
    value: float
    before: float
    verdict: str


class Drift(NamedTuple):
    """How n new vectors differ from the vectors of the fit."""

    n: int
    measures: tuple[Measure, ...]  # mean shift, divergence, variance outside the axes, and the loss of a code

    @property
    def verdict(self) -> str:
        """The worst of the measures' verdicts: "fine", "refit soon" or "refit now"."""
        return max((measure.verdict for measure in self.measures), key=VERDICTS.index)


def drift(fitted: Whitening | SpectrumCode, new: Moments) -> Drift:
    """Compares the moments of new vectors with a fit.

    There are four measures. Mean shift: the squared shift of the mean over the fitted variance. Divergence of the axes:
    the mean over the kept axes of the Kullback-Leibler divergence, in nats, of the new normal distribution from the
    fitted one. Variance outside the axes: its share of the variance. Loss of the code: the share of the variance that
    it is expected to lose. The first two are corrected for chance with few vectors. The limits are rules of thumb; for
    the loss, 10 % above the fitted value is "refit soon" and 50 % is "refit now".

    References:
      Cover, Thomas 2006, "Elements of Information Theory", chapter 8 (divergence of normal distributions).
    """
    whitening = fitted.whitening if isinstance(fitted, SpectrumCode) else fitted
    means, variances = whitening.along_axes(new)
    old, k = whitening.eigenvalues_, min(whitening.n_components or len(means), whitening.rank_)
    chance = 1 / new.n
    shift = max(0.0, float(means @ means) / float(old.sum()) - chance)
    ratios = np.maximum(variances[:k], np.finfo(float).tiny) / old[:k]
    divergences = (ratios - 1 - np.log(ratios) + means[:k] ** 2 / old[:k]) / 2
    outside, before = (1 - float(values[:k].sum() / values.sum()) for values in (variances, old))
    rows = [  # the value, its value at the fit, and the limits of "refit soon" and "refit now"
        ("mean shift", shift, 0.0, 0.05, 0.25),
        ("divergence of the axes", max(0.0, float(divergences.mean()) - chance), 0.0, 0.1, 0.5),
        ("variance outside the axes", outside, before, before + 0.05, before + 0.15),
    ]
    if isinstance(fitted, SpectrumCode):
        loss = fitted.distortion_
        rows.append(("loss of the code", fitted.expected_loss(new), loss, 1.1 * loss, 1.5 * loss))
    measures = (Measure(name, x, known, VERDICTS[(x >= soon) + (x >= now)]) for name, x, known, soon, now in rows)
    return Drift(new.n, tuple(measures))
