"""Whether new vectors still resemble the vectors that a whitening or a code was fitted on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxwhiten.arrays import check_finite
from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.shapes import Float64
from jaxwhiten.typing import AnyArray
from jaxwhiten.whitening import Whitening

VERDICTS = ("fine", "refit soon", "refit now")
LEAST = 50  # new rows
_GROUPS = 20  # of new rows, for the jackknife
_QUANTILE = 2.09  # 97.5 % of Student's t with 19 degrees of freedom
_ROUNDING = 1e-12  # of a variance, relative to the mean square
_NAMES = ("mean shift", "divergence of the axes", "variance outside the axes", "code distortion")


class Measure(NamedTuple):
    """One measure of drift for the new vectors, what fresh vectors of the fit's kind would have, and its verdict."""

    name: str
    value: float
    low: float  # ends of the 95 % interval
    high: float
    before: float
    verdict: str


class Drift(NamedTuple):
    """How n new vectors differ from the vectors of the fit.

    >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
    >>> drift(Whitening().fit(rows[:1000]), rows[1000:]).n
    1000
    """

    n: int
    measures: tuple[Measure, ...]  # mean shift, divergence, variance outside the axes, and the loss of a code

    @property
    def verdict(self) -> str:
        """The worst of the measures' verdicts: "fine", "refit soon" or "refit now"."""
        return max((measure.verdict for measure in self.measures), key=VERDICTS.index)


def drift(fitted: Whitening | SpectrumCode, new: AnyArray) -> Drift:
    """Compares new vectors with a fit.

    There are four measures. Mean shift: the squared shift of the mean over the variance. Divergence of the axes: the
    mean over the kept axes of the Kullback-Leibler divergence, in nats, of the new normal distribution from the old
    one. Variance outside the axes: its share of the variance. Loss of the code: the share of the variance along its
    axes that it is expected to lose.

    Any fit describes its own rows better than others. New vectors are therefore compared with the variances to expect
    of further rows (`Whitening.unseen_variances_`), and the noise of both samples is subtracted. A limit counts as
    passed if the lower end of the 95 % interval passes it: a jackknife over groups of the new vectors, widened for the
    rows of the fit. The limits are rules of thumb; for the loss, 10 % above its expectation is "refit soon" and 50 % is
    "refit now".

    >>> rows = np.random.default_rng(0).normal(size=(2000, 8)) * np.arange(8, 0, -1)
    >>> fitted = Whitening().fit(rows[:1000])
    >>> drift(fitted, rows[1000:]).verdict, drift(fitted, rows[1000:] + 9).verdict
    ('fine', 'refit now')

    Args:
      new: At least `LEAST` raw vectors [n, d] in any container, drawn independently; or blocks of them, which are
        read once.

    Raises:
      InputError: There are too few new vectors, or they or the rows of the fit are all equal.
      NonFiniteError: A new vector holds NaN or an infinity.
      MismatchError: The new vectors are of another space than those of the fit, and both are known.

    References:
      Cover, Thomas 2006, "Elements of Information Theory", chapter 8 (divergence of normal distributions).
      Efron, Tibshirani 1993, "An Introduction to the Bootstrap", chapter 11 (jackknife).
    """
    whitening = fitted.axes if isinstance(fitted, SpectrumCode) else fitted
    unseen = whitening.unseen_variances_
    n = whitening.n_samples_seen_
    k = min(whitening.n_components or len(unseen), whitening.rank_)

    some = slice(min(k, n // 2))  # axes of so small a variance that n rows do not determine it are left out

    def measured(m: float, means: np.ndarray, variances: np.ndarray) -> list[float]:
        """The measures of m rows with these means and variances along the axes."""
        squares = means**2 - unseen / n - variances / m  # of the shift alone
        ratios = (1 + 1 / m) * np.maximum(variances[some], np.finfo(float).tiny) / unseen[some]
        divergences = (ratios - 1 - np.log(ratios) + squares[some] / unseen[some] - 1 / m) / 2
        measures = [squares.sum() / unseen.sum(), np.mean(divergences), 1 - variances[:k].sum() / variances.sum()]
        return measures + (
            [fitted.expected_loss(means[some], variances[some])] if isinstance(fitted, SpectrumCode) else []
        )

    groups = _sums(fitted, whitening, new)
    m = int(groups[0, :, 0].sum())
    if k < 1 or n < 2:
        raise InputError("All vectors of the fit are identical, so new vectors cannot be compared with them.")
    if m < LEAST:
        raise InputError(f"{m} new vectors are too few to judge drift: provide at least {LEAST}.")
    every = groups.sum(axis=1, keepdims=True)
    counts, sums, squares = np.concatenate([every, every - groups], axis=1)  # of all rows, and without each group
    means = sums / counts
    with np.errstate(all="ignore"):
        variances = squares / counts - means**2
        variances[variances < _ROUNDING * squares / counts] = 0
        values, *others = np.array(list(map(measured, counts[:, 0], means, variances)))
        before = [0.0, 0.0, *map(float, measured(np.inf, 0 * unseen, (1 + 1 / n) * unseen)[2:])]
    errors = _QUANTILE * np.std(others, axis=0) * np.sqrt((_GROUPS - 1) * (1 + m / n))
    if not np.isfinite([values, errors, before]).all():
        raise InputError("Nearly all new vectors are identical, so their variances cannot be estimated.")
    limits = [(0.05, 0.25), (0.1, 0.5), (before[2] + 0.05, before[2] + 0.15)]
    unsure = 0.2 * len(unseen) / n  # the variances of unseen rows are themselves estimates
    limits += [((1.1 + unsure) * x, (1.5 + unsure) * x) for x in before[3:]]
    measures = [
        Measure(name, x, x - error, x + error, past, VERDICTS[(x - error > soon) + (x - error > now)])
        for name, x, error, past, (soon, now) in zip(
            _NAMES, values.tolist(), errors.tolist(), before, limits, strict=False
        )
    ]
    return Drift(m, tuple(measures))


def _sums(fitted: Whitening | SpectrumCode, whitening: Whitening, new: AnyArray) -> Float64[np.ndarray, "3 groups d"]:
    """Counts, sums and sums of squares along the axes; row i belongs to group i modulo their number."""
    sums = np.zeros((3, _GROUPS, whitening.n_features_in_))
    m = 0
    in_blocks = not hasattr(new, "__len__") or not len(new) or np.ndim(next(iter(new))) == 2
    for block in new if in_blocks else [new]:
        x = fitted.rows(block, "drift")
        check_finite(x, m)
        z = (x.astype(np.float64) - whitening.mean_) @ whitening.components_
        for group in range(_GROUPS):
            part = z[(group - m) % _GROUPS :: _GROUPS]
            sums[:, group] += np.stack([np.full(z.shape[1], len(part)), part.sum(axis=0), (part**2).sum(axis=0)])
        m += len(z)
    return sums
