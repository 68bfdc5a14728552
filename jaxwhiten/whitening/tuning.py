"""Choosing k, β and γ with a few scored pairs: one product with the eigenvectors serves the whole grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Real

from jaxwhiten.arrays import as_matrix, blocks, first_nonfinite_row
from jaxwhiten.errors import InputError, NonFiniteError, check_integer
from jaxwhiten.metrics.scores import cosine_pairs, spearman
from jaxwhiten.whitening.spectrum import doubling
from jaxwhiten.whitening.whitening import Whitening

if TYPE_CHECKING:
    from jaxwhiten.metrics.bootstrap import Interval

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
_BLOCK_ROWS = 8192
_NOTHING = 0.005  # points; smaller differences are rounding
_ROUNDING = 1e-9  # of a cosine
_ENOUGH = 50  # pairs; the scores of fewer are mostly chance


class ScoredPairs(NamedTuple):
    """Raw vectors of sentence pairs, and the similarity that people gave each pair."""

    first: Float[np.ndarray, "n d"]
    second: Float[np.ndarray, "n d"]
    gold: Real[np.ndarray, " n"]


class Setting(NamedTuple):
    """One setting and its score, Spearman × 100; `held_out` is None without held-out pairs."""

    n_components: int
    beta: float
    gamma: float
    score: float
    held_out: float | None = None


class Baseline(NamedTuple):
    """The score of the raw vectors."""

    score: float
    held_out: float | None = None


class Tuning(NamedTuple):
    """The result of `tune`."""

    best: Setting  # the highest `score`, at the smallest k of a tie
    own: Setting  # the setting of the given whitening
    baseline: Baseline
    rows: tuple[Setting, ...]  # the whole grid
    # 95 % bootstrap intervals for raw vectors, `own` and `best`, on the held-out pairs if there are any.
    intervals: tuple[Interval, ...]
    gains: tuple[Interval, ...]  # of the score minus the raw vectors' score
    warnings: tuple[str, ...]  # one sentence for each way in which whitening does not help


def tune(
    whitening: Whitening,
    pairs: ScoredPairs,
    *,
    held_out: ScoredPairs | None = None,
    ks: Sequence[int] | None = None,
    betas: Sequence[int | float] = GRID,
    gammas: Sequence[int | float] = GRID,
) -> Tuning:
    """Scores every k, β and γ of a grid on scored pairs.

    Rows are multiplied with the eigenvectors once. For each β and γ they are shifted and scaled; running sums along the
    directions give the cosines of all k.

    Args:
      whitening: Fitted. Its shrinkage and floor are kept; its k, β and γ are scored as one more setting.
      pairs: The best setting is chosen on these pairs.
      held_out: Other pairs, which are scored but do not take part in the choice.
      ks: Numbers of directions; by default powers of two and d.
      betas, gammas: Shares of the mean to subtract, and powers of the scaling, 0 to 1.

    Raises:
      InputError: A score is undefined, because all cosines are equal, or the held-out pairs are the tuned ones.

    References:
      Su, https://kexue.fm/archives/9079, for β and γ.
    """
    d = whitening.n_features_in_
    ks = sorted(set(doubling(d) if ks is None else ks))
    if not (ks and betas and gammas):
        raise InputError("The grid is empty: pass at least one k, one β and one γ.")
    for k in ks:
        check_integer("k", k, 1, d)
    sides = [_rotated("pairs", whitening, pairs)]
    if held_out is not None:
        sides.append(_rotated("held-out pairs", whitening, held_out))
        if all(map(np.array_equal, pairs, held_out)):
            raise InputError("The held-out pairs are the pairs to tune on: provide other pairs.")
    rows = [
        setting
        for beta in dict.fromkeys(map(float, betas))
        for gamma in dict.fromkeys(map(float, gammas))
        for setting in _settings(whitening, sides, ks, beta, gamma)
    ]
    (own,) = _settings(whitening, sides, [whitening.n_components or d], float(whitening.beta), float(whitening.gamma))
    raw = [cosine_pairs(side.first, side.second) for side in sides]
    baseline = Baseline(*[100 * spearman(row, side.gold) for row, side in zip(raw, sides, strict=True)])
    best = max(rows, key=lambda row: (np.nan_to_num(row.score, nan=-np.inf), -row.n_components))
    cosines = [_cosines(whitening, sides[-1], [row.n_components], row.beta, row.gamma)[0] for row in (own, best)]
    if np.isnan(best.score) or min(map(np.ptp, [*raw, *cosines])) < _ROUNDING:
        raise InputError("A score is undefined, because all cosines are equal: use other pairs or another encoder.")
    from jaxwhiten.metrics.bootstrap import percentile_interval, spearman_resamples  # imports JAX

    drawn = spearman_resamples(np.stack([raw[-1], *cosines]), sides[-1].gold, [""] * len(sides[-1].gold))["all"]
    intervals, gains = (tuple(map(percentile_interval, scores)) for scores in (drawn, drawn - drawn[0]))
    warnings = _warnings(best, own, baseline, gains[-1], min(len(side.gold) for side in sides))
    return Tuning(best, own, baseline, tuple(rows), intervals, gains, warnings)


def _rotated(what: str, whitening: Whitening, pairs: ScoredPairs) -> ScoredPairs:
    """The coordinates of the pairs along the eigenvectors."""
    d, n = whitening.n_features_in_, len(pairs.gold)
    sides = [as_matrix(side, "tune", columns=d) for side in (pairs.first, pairs.second)]
    for side in sides:
        if len(side) != n:
            raise InputError(f"The {what} have {n} gold scores, but {len(side)} vectors on one side.")
        if (row := first_nonfinite_row(side)) is not None:
            raise NonFiniteError(f"Row {row} of the {what} contains NaN or infinity.")
    if n < 2 or len(np.unique(pairs.gold)) < 2:
        raise InputError(f"The {what} need at least two different gold scores to be correlated with.")
    first, second = (np.asarray(side, np.float64) @ whitening.components_ for side in sides)
    return ScoredPairs(first, second, np.asarray(pairs.gold))


def _settings(
    whitening: Whitening, sides: Sequence[ScoredPairs], ks: Sequence[int], beta: float, gamma: float
) -> list[Setting]:
    """The scores of all k at one β and γ."""
    scores = [[100 * spearman(row, side.gold) for row in _cosines(whitening, side, ks, beta, gamma)] for side in sides]
    return [Setting(int(k), beta, gamma, *row) for k, *row in zip(ks, *scores, strict=True)]


def _cosines(
    whitening: Whitening, side: ScoredPairs, ks: Sequence[int], beta: float, gamma: float
) -> Float64[np.ndarray, "ks n"]:
    """The cosines over the first k directions at one β and γ, for every k of an ascending list."""
    whole, most, starts = whitening.with_params(n_components=None, beta=beta, gamma=gamma), ks[-1], [0, *ks[:-1]]
    shift, scales = (beta * whole.mean_ @ whole.components_)[:most], whole.scales_[:most]
    out = np.empty((len(ks), len(side.gold)))
    for rows in blocks(len(side.gold), _BLOCK_ROWS):
        a, b = ((x[rows, :most] - shift) * scales for x in (side.first, side.second))
        dot, aa, bb = (np.cumsum(np.add.reduceat(p, starts, axis=1), axis=1) for p in (a * b, a * a, b * b))
        lengths = np.sqrt(aa) * np.sqrt(bb)
        out[:, rows] = np.divide(dot, lengths, out=np.zeros_like(dot), where=lengths > 0).T
    return out


def _warnings(best: Setting, own: Setting, baseline: Baseline, gain: tuple[float, float], n: int) -> tuple[str, ...]:
    """One sentence for each way in which whitening does not help, or in which n pairs cannot show it."""
    sentences = [f"{n} pairs are few: the scores of fewer than {_ENOUGH} are mostly chance."] if n < _ENOUGH else []
    if best.score < baseline.score + _NOTHING:
        sentences.append(f"No setting of the grid beats the raw vectors ({baseline.score:.2f}): do not whiten.")
    elif not gain[0] > 0:
        where = "score" if best.held_out is None else "held-out score"
        sentences.append(
            f"The best setting changes the {where} by {gain[0]:+.2f} to {gain[1]:+.2f}, no significant gain over the"
            " raw vectors: do not whiten, or use more pairs."
        )
    if own.score < baseline.score - _NOTHING:
        sentences.append(
            f"The current whitening (k={own.n_components}, β={own.beta:g}, γ={own.gamma:g}) lowers the score from"
            f" {baseline.score:.2f} to {own.score:.2f}."
        )
    return tuple(sentences)
