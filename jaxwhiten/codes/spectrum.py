"""A code that follows from mean and covariance alone: bits by the spectrum, levels by the normal distribution."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int

from jaxwhiten.codes.code import Code, Plan
from jaxwhiten.codes.levels import Packing, distortions, lloyd_max, pack
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import SPREAD_OUT, TUNED, Moments, Whitening, hardly_varies, spread
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Learned, check_integer, check_share, parameters

_TUNED_GAMMA, _UNTUNED_GAMMA, _NARROW_GAMMA = 0.5, 1.0, 0.25
_NEXT_TO_NOTHING = 1.005
# Points of equal probability of N(0, 1), to take means over it.
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 999) for i in range(999)])

S = TypeVar("S", bound="SpectrumCode")


def _planned(whitening: Whitening, axes: int, count: int, halves: bool | None) -> tuple[Plan, float]:
    """The code of `count` bytes of a whitening of all axes, of which the first `axes` may be used; and what it loses.

    The loss is the expected share of the variance.
    """
    scales = whitening.scales_[:axes]
    variances = whitening.eigenvalues_[:axes] * scales**2
    varying = min(axes, whitening.rank_)
    if count > varying:
        raise InputError(f"bytes is {count}; the vectors vary along {varying} axes, which fill at most as many bytes.")
    packing = _packed(variances[:varying], count, halves)
    left = variances.copy()
    left[:varying] *= distortions()[packing.bits]
    k = int(np.flatnonzero(packing.bits).max()) + 1
    packing = Packing(*(column[:k] for column in packing))
    spread = np.sqrt(variances[:k] / variances[:k].sum())  # of the columns, once rows have unit length
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
    """The whitening of all axes, how many of them a code may use, the γ that came with it, if any, and plans made."""

    whitening: Whitening
    axes: int
    gamma: float | None
    plans: dict[Any, tuple[Plan, float]]


@parameters
class SpectrumCode(Code):
    """Bytes of whitened vectors: each axis gets the bits that its variance earns, and levels for a normal distribution.

    Rows are whitened to the target variances λ^(1−γ), scaled to unit length, and every axis is cut at the Lloyd-Max
    levels of its variance. Bits go to the axes by reverse water-filling, in bytes of whole axes. All of it follows from
    the moments: nothing is trained, and moments of parts of a corpus merge to the code of the whole.

    Unlike in `Whitening`, the mean is always subtracted in whole: levels lie around it.

    Args:
      bytes: Of a vector's code; at least 1, at most as many as there are axes.
      gamma: Power of the scaling, 0 to 1. None: that of the whitening it is fitted from, else `usual_gamma`.
      halves: Whether each half of a byte holds whole axes, too, so that `faiss-fast` can search the codes. None: where
        that raises the loss by less than half a per cent.

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
        """Learns from moments, from a whitening, or from rows, forgetting earlier ones.

        Args:
          X: `Moments`; a fitted `Whitening`, whose γ, columns and shrinkage are taken over; or [n, d] rows.
          y: Ignored.
          mean: [d] mean of the vectors to be coded, or their `Moments`, where X is of another corpus: the axes are
            those of X, about this mean. None for the mean of X.
        """
        gamma = X.gamma if isinstance(X, Whitening) else None
        if not isinstance(X, Whitening):
            X = Whitening.from_moments(X if isinstance(X, Moments) else Moments().update(X))
        if mean is not None:
            X = X.with_mean(mean.mean if isinstance(mean, Moments) else mean)
        self._check_params(X.n_features_in_)
        whole = X.with_params(n_components=None, beta=1.0)
        state = _State(whole, X.n_components or X.n_features_in_, gamma, {})
        self._plan_of(state)  # refuses what the axes cannot hold
        self._learned = Learned(state, X.n_samples_seen_, X.n_features_in_, X.provenance)
        return self

    @staticmethod
    def usual_gamma(fitted: Moments | Whitening, tuned: bool | None = None) -> float:
        """The γ that vectors of these moments, or of those of a whitening, are coded with if none is given.

        1 for an encoder that was not tuned for similarity; for a tuned one 0.5, and 0.25 where the texts are narrow:
        where the IsoScore of the vectors is 0.2 or less. 0.25 for any where a quarter of the axes hardly varies. The
        evidence: docs/evidence/gamma.md.

        Args:
          fitted: What the code is fitted on.
          tuned: Whether the encoder is tuned, see `encoding.is_tuned`. None: told by the vectors, as one whose IsoScore
            is above 0.1 is; then narrow texts are not told, whose γ is 0.5.
        """
        if hardly_varies(fitted):
            return _NARROW_GAMMA
        isotropy = spread(fitted)
        if not (isotropy > SPREAD_OUT if tuned is None else tuned):
            return _UNTUNED_GAMMA
        return _NARROW_GAMMA if tuned and not isotropy > TUNED else _TUNED_GAMMA

    def _learn(self, X: np.ndarray, state: _State | None) -> _State:
        """Rows added to those seen; their decomposition waits until it is used."""
        whitening, axes, gamma, _ = state or (Whitening(), X.shape[1], None, {})
        return _State(copy.copy(whitening).partial_fit(X), axes, gamma, {})

    def _check_params(self, d: int) -> None:
        check_integer("bytes", self.bytes, least=1)
        if self.bytes > d:
            raise InputError(f"bytes is {self.bytes}; vectors of {d} dimensions take at most {d}, a byte each.")
        if self.gamma is not None:
            check_share("gamma", self.gamma)
        if self.halves not in (None, True, False):
            raise InputError(f"halves must be None, True or False, got {self.halves!r}.")

    @property
    def plan(self) -> Plan:
        return self._plan_of(self._fitted().state)[0]

    def _plan_of(self, state: _State) -> tuple[Plan, float]:
        gamma = state.gamma if self.gamma is None else self.gamma
        gamma = float(self.usual_gamma(state.whitening) if gamma is None else gamma)
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
        """Bits of each axis, by falling variance; the first k of them have any."""
        return self.plan.packing.bits

    @property
    def distortion_(self) -> float:
        """Expected share of the whitened vectors' variance that the code loses, if each axis is normal."""
        return self._plan_of(self._fitted().state)[1]

    def expected_loss(self, moments: Moments) -> float:
        """`distortion_` on raw vectors of these moments instead of those it was fitted on, if each axis is normal."""
        whole, axes = self._fitted().state[:2]
        means, variances = whole.along_axes(moments)
        scale = whole.with_params(gamma=self.gamma_).scales_[:axes]
        deviations = np.sqrt(np.maximum(whole.eigenvalues_[:axes], np.finfo(float).tiny)) * scale
        means, spread = means[:axes] * scale, np.sqrt(variances[:axes]) * scale
        lost = means**2 + spread**2
        for axis, bits in enumerate(self.bits_):
            x = (means[axis] + spread[axis] * _NORMAL) / deviations[axis]
            levels = lloyd_max(int(bits))
            error = x - levels.values[np.searchsorted(levels.thresholds, x)]
            lost[axis] = float(np.mean(error**2)) * deviations[axis] ** 2
        return float(lost.sum() / (means**2 + spread**2).sum())

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"gamma": self.gamma_, "distortion": self.distortion_}

    def _pack(self, state: _State) -> dict[str, np.ndarray]:
        whitening, gamma = state.whitening, -1.0 if state.gamma is None else state.gamma
        numbers = [gamma, whitening.shrinkage_, whitening.eigenvalue_floor, state.axes]
        return {**whitening._pack(whitening._fitted().state), "settings": np.array(numbers, np.float64)}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> _State:
        gamma, shrinkage, floor, axes = map(float, tensors["settings"])
        whitening = Whitening(shrinkage=shrinkage, eigenvalue_floor=floor)
        whitening._check_params(d)
        if not 1 <= axes <= d or gamma > 1:
            raise ValueError(f"{axes} axes of {d}, γ {gamma}")
        whitening._learned = Learned(whitening._unpack(tensors, d), int(tensors["n"].item()), d, {})
        state = _State(whitening, int(axes), None if gamma < 0 else gamma, {})
        self._plan_of(state)
        return state


def _packed(variances: np.ndarray, count: int, halves: bool | None) -> Packing:
    """Axes in bytes, or in halves of bytes; by default in halves where that loses next to nothing."""
    if 2 * count > len(variances):
        if halves:
            raise InputError(
                f"Halves of {count} bytes hold at least {2 * count} axes; the vectors vary along {len(variances)}."
            )
        return pack(variances, count)
    bits, half, shift = pack(variances, 2 * count, 4)
    found = {True: Packing(bits, half // 2, shift + 4 * (half % 2)), False: pack(variances, count)}
    if halves is None:
        lost = {name: float((variances * distortions()[packing.bits]).sum()) for name, packing in found.items()}
        halves = lost[True] <= _NEXT_TO_NOTHING * lost[False]
    return found[halves]
