"""Whether new vectors are still like those that a whitening or a code was fitted on, as far as moments tell it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.whitening import Moments, Whitening

VERDICTS = ("fine", "refit soon", "refit now")


class Measure(NamedTuple):
    """One measure of drift, of the new vectors and before, of those fitted on, and what it says alone."""

    name: str
    value: float
    before: float
    verdict: str


class Drift(NamedTuple):
    """How n new vectors differ from those fitted on."""

    n: int
    measures: tuple[Measure, ...]  # of the mean, the axes, what lies outside them, and the code's loss if there is one

    @property
    def verdict(self) -> str:
        """The worst of the measures' verdicts: "fine", "refit soon" or "refit now"."""
        return max((measure.verdict for measure in self.measures), key=VERDICTS.index)


def drift(fitted: Whitening | SpectrumCode, new: Moments) -> Drift:
    """Compares the moments of new vectors with those of a fit.

    Four measures. The shift of the mean: its square over the variance fitted on. The divergence of the axes: that of
    two normal distributions along each axis kept, new from old, the mean over the axes in nats. The share of the
    variance outside the axes kept. The loss of the code: the share of the variance that it is expected to lose. What
    few new vectors bring about by chance is taken off the first two. The limits are rules of thumb: a tenth more than
    before is soon, half as much again is now.

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
    rows = [  # the value, that of the fit, and from where on a refit is due soon and now
        ("mean shift", shift, 0.0, 0.05, 0.25),
        ("divergence of the axes", max(0.0, float(divergences.mean()) - chance), 0.0, 0.1, 0.5),
        ("variance outside the axes", outside, before, before + 0.05, before + 0.15),
    ]
    if isinstance(fitted, SpectrumCode):
        loss = fitted.distortion_
        rows.append(("loss of the code", fitted.expected_loss(new), loss, 1.1 * loss, 1.5 * loss))
    measures = (Measure(name, x, known, VERDICTS[(x >= soon) + (x >= now)]) for name, x, known, soon, now in rows)
    return Drift(new.n, tuple(measures))
