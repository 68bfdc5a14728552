"""A code computed from mean and covariance alone: bits follow the spectrum, levels the normal distribution."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float64, Int

from jaxwhiten.codes.code import Code, Plan
from jaxwhiten.codes.levels import Packing, distortions, lloyd_max, pack
from jaxwhiten.errors import InputError, check_integer, check_share
from jaxwhiten.whitening import Moments, Whitening, choose_gamma
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import parameters, stamp

_NEXT_TO_NOTHING = 1.005
# Points of equal probability of N(0, 1), for expectations under it.
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 999) for i in range(999)])

S = TypeVar("S", bound="SpectrumCode")


def _planned(whitening: Whitening, axes: int, count: int, halves: bool | None) -> tuple[Plan, float]:
    """The code of `count` bytes on the first `axes` axes of a whitening, and its expected share of lost variance."""
    scales = whitening.scales_[:axes]
    variances = whitening.eigenvalues_[:axes] * scales**2
    varying = min(axes, whitening.rank_)
    if count > varying:
        raise InputError(f"bytes={count}: expected at most {varying}, the number of axes along which the vectors vary.")
    packing = _packed(variances[:varying], count, halves)
    left = variances.copy()
    left[:varying] *= distortions()[packing.bits]
    k = int(np.flatnonzero(packing.bits).max()) + 1
    packing = Packing(*(column[:k] for column in packing))
    spread = np.sqrt(variances[:k] / variances[:k].sum())  # of the columns, for rows of unit length
    most = 2 ** int(packing.bits.max())
    thresholds, values = np.full((most - 1, k), np.inf, np.float32), np.zeros((most, k), np.float32)
    for axis, bits in enumerate(packing.bits):
        levels = lloyd_max(int(bits))
        thresholds[: 2**bits - 1, axis] = levels.thresholds * spread[axis]
        values[: 2**bits, axis] = levels.values.astype(np.float32) * np.float32(spread[axis])
    constants = {"thresholds": thresholds, "places": packing.places}
    affine = Affine(whitening.mean_, whitening.components_[:, :k] * scales[:k], unit_length=True)
    plan = Plan(affine, packing, constants, values, whitening.with_params(n_components=k))
    return plan, float(left.sum() / variances.sum())


class _State(NamedTuple):
    """The whitening of all axes, how many of them the code may use, the γ of the given whitening, and cached plans."""

    whitening: Whitening
    axes: int
    gamma: float | None
    plans: dict[Any, tuple[Plan, float]]


@parameters
class SpectrumCode(Code):
    """A byte code of whitened vectors: bits per axis follow its variance, levels fit a normal distribution.

    Rows are whitened to the target variances λ^(1−γ) and scaled to unit length; every axis is quantised by the
    Lloyd-Max levels of its variance. Reverse water-filling distributes the bits, and no axis is split between bytes.
    The code follows from the moments without training, so that merged moments of parts of a corpus give the code of the
    whole.

    Unlike in `Whitening`, the mean is always subtracted entirely, because the levels are centred at it.

    Args:
      bytes: Bytes of a vector's code, from 1 to the number of axes.
      gamma: Power of the scaling, 0 to 1. None takes γ of the whitening that the code is fitted from, else
        that of `jaxwhiten.whitening.choose_gamma`.
      halves: Whether each half of a byte, too, holds whole axes, so that `faiss-fast` can search the codes. None
        decides for halves if they raise the loss by less than half a per cent.

    References:
      Cover, Thomas 2006, "Elements of Information Theory", section 10.3.3, for the bits; Max 1960, "Quantizing for
      minimum distortion", for the levels. Su et al. 2021 (BERT-whitening) and Su, https://kexue.fm/archives/9079, for
      the whitening and γ.
    """

    name = "spectrum"

    bytes: int = 48
    gamma: float | None = None
    halves: bool | None = None

    def fit(self: S, X: Any, y: Any = None, *, mean: Any = None) -> S:
        """Learns from moments, from a whitening, or from rows, and forgets earlier ones.

        Args:
          X: `Moments`; a fitted `Whitening`, whose γ, columns and shrinkage are used; or [n, d] rows.
          mean: [d] mean of the vectors to be coded, or their `Moments`, if X comes from another corpus: the code then
            has the axes of X about this mean. None takes the mean of X.
        """
        gamma = X.gamma if isinstance(X, Whitening) else None
        if not isinstance(X, Whitening):
            X = Whitening.from_moments(X if isinstance(X, Moments) else Moments.of(X))
        if mean is not None:
            X = X.with_mean(mean.mean if isinstance(mean, Moments) else mean)
        if gamma is None and self.gamma is None:
            gamma = choose_gamma(X).gamma
        self._check_params(X.n_features_in_)
        whole = X.with_params(n_components=None, beta=1.0)
        state = _State(whole, X.n_components or X.n_features_in_, gamma, {})
        self._plan_of(state)  # raises if the axes cannot fill the bytes
        self._state = state
        return self._fitted_on(X.n_samples_seen_, X.n_features_in_, X.provenance)

    def partial_fit(self: S, X: Any, y: Any = None) -> S:
        """Adds rows to those of the fit; the decomposition is postponed to its first use."""
        started, fitted = time.perf_counter(), self.__sklearn_is_fitted__()
        whitening = (copy.copy(self._state.whitening) if fitted else Whitening()).partial_fit(X)
        d, n, record = whitening.n_features_in_, whitening.n_samples_seen_, self._record if fitted else {}
        self._check_params(d)
        axes, gamma = (self._state.axes, self._state.gamma) if fitted else (d, None)
        self._state = _State(whitening, axes, gamma, {})
        seconds = record.get("fit_seconds", 0.0) + time.perf_counter() - started
        return self._fitted_on(n, d, {**record, **stamp(seconds)})

    def _check_params(self, d: int) -> None:
        check_integer("bytes", self.bytes, least=1)
        if self.bytes > d:
            raise InputError(f"bytes={self.bytes}: expected at most {d}, one per dimension.")
        if self.gamma is not None:
            check_share("gamma", self.gamma)
        if self.halves not in (None, True, False):
            raise InputError(f"halves={self.halves!r}: expected None, True or False.")

    @property
    def plan(self) -> Plan:
        return self._plan_of(self._state)[0]

    def _plan_of(self, state: _State) -> tuple[Plan, float]:
        gamma = state.gamma if self.gamma is None else self.gamma
        gamma = float(choose_gamma(state.whitening).gamma if gamma is None else gamma)
        key = self.bytes, gamma, self.halves
        if key not in state.plans:
            whitening = state.whitening.with_params(gamma=gamma)
            state.plans[key] = _planned(whitening, state.axes, self.bytes, self.halves)
        return state.plans[key]

    @property
    def gamma_(self) -> float:
        """The power of the scaling in use."""
        return float(self.whitening.gamma)

    @property
    def bits_(self) -> Int[np.ndarray, " k"]:
        """Bits of each axis, by falling variance; only the k axes with bits are kept."""
        return self.plan.packing.bits

    @property
    def distortion_(self) -> float:
        """The share of the whitened vectors' variance that the code is expected to lose, if each axis is normal."""
        return self._plan_of(self._state)[1]

    def expected_loss(self, means: Float64[np.ndarray, " k"], variances: Float64[np.ndarray, " k"]) -> float:
        """The share of the variance along the axes with bits that the code is expected to lose, if each axis is normal.

        `means`, relative to the fitted mean, and `variances` are of raw vectors along the first axes of the fit.
        """
        k = min(len(self.bits_), len(means))
        bits, scales = self.bits_[:k], self.whitening.scales_[:k]
        x, spread = means[:k] * scales, np.sqrt(variances[:k]) * scales
        fitted, lost = np.sqrt(self.whitening.eigenvalues_[:k]) * scales, np.empty(k)
        for count in np.unique(bits):
            axes, levels = bits == count, lloyd_max(int(count))
            z = (x[axes, None] + spread[axes, None] * _NORMAL) / fitted[axes, None]
            errors = z - levels.values[np.searchsorted(levels.thresholds, z)]
            lost[axes] = (errors**2).mean(axis=1) * fitted[axes] ** 2
        return float(lost.sum() / (x**2 + spread**2).sum())

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"gamma": self.gamma_, "distortion": self.distortion_}

    def tensors(self) -> dict[str, np.ndarray]:
        whitening, axes, gamma, _ = self._state
        numbers = [-1.0 if gamma is None else gamma, whitening.shrinkage_, whitening.eigenvalue_floor, axes]
        return {**whitening.tensors(), "settings": np.array(numbers, np.float64)}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        gamma, shrinkage, floor, axes = map(float, tensors["settings"])
        whitening = Whitening(shrinkage=shrinkage, eigenvalue_floor=floor)
        if not 1 <= axes <= d or gamma > 1:
            raise ValueError(f"{axes} axes of {d}, γ {gamma}")
        whitening.restore(tensors, d)
        self._state = _State(whitening, int(axes), None if gamma < 0 else gamma, {})
        self._plan_of(self._state)


def _packed(variances: np.ndarray, count: int, halves: bool | None) -> Packing:
    """Packs axes into bytes, or into halves of bytes; `halves=None` takes halves if they lose almost nothing."""
    if 2 * count > len(variances):
        if halves:
            raise InputError(
                f"Halves of {count} bytes need at least {2 * count} axes; the vectors vary along {len(variances)}."
            )
        return pack(variances, count)
    bits, half, shift = pack(variances, 2 * count, 4)
    packings = {True: Packing(bits, half // 2, shift + 4 * (half % 2)), False: pack(variances, count)}
    if halves is None:
        lost = {name: float((variances * distortions()[packing.bits]).sum()) for name, packing in packings.items()}
        halves = lost[True] <= _NEXT_TO_NOTHING * lost[False]
    return packings[halves]
