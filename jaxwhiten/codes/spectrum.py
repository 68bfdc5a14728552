"""A code that follows from mean and covariance alone: bits by the spectrum, levels by the normal distribution."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int, UInt8

from jaxwhiten.codes.code import Code, Constants
from jaxwhiten.codes.levels import Packing, distortions, lloyd_max, pack
from jaxwhiten.errors import InputError
from jaxwhiten.whitening import SPREAD_OUT, Moments, Whitening, spread
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Learned, check_integer, check_share, parameters

_TUNED_GAMMA, _UNTUNED_GAMMA = 0.5, 1.0
_NEXT_TO_NOTHING = 1.005
# Points of equal probability of N(0, 1), to take means over it.
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 999) for i in range(999)])

S = TypeVar("S", bound="SpectrumCode")


class _State:
    """The whitening of all axes, how many of them a code may use, and the γ that came with it, if any."""

    def __init__(self, whitening: Whitening, axes: int, gamma: float | None) -> None:
        self.whitening, self.axes, self.gamma = whitening, axes, gamma
        self._plans: dict[Any, _Plan] = {}

    def plan(self, count: int, gamma: float | None, halves: bool | None) -> _Plan:
        """The code of `count` bytes; kept, since nothing here changes."""
        gamma = self.gamma if gamma is None else gamma
        if gamma is None:
            gamma = SpectrumCode.usual_gamma(self.whitening)
        gamma = float(gamma)
        key = count, gamma, halves
        if key not in self._plans:
            self._plans[key] = _plan(self.whitening.with_params(gamma=gamma), self.axes, count, halves)
        return self._plans[key]


class _Plan(NamedTuple):
    """A code of so many bytes: its whitening and map, and where each column goes."""

    whitening: Whitening
    affine: Affine
    bits: np.ndarray
    byte: np.ndarray
    shift: np.ndarray
    spread: np.ndarray  # standard deviations of the columns, once rows have unit length
    constants: dict[str, np.ndarray]
    distortion: float


@parameters
class SpectrumCode(Code):
    """Bytes of whitened vectors: each axis gets the bits that its variance earns, and levels for a normal distribution.

    Rows are whitened to the target variances λ^(1−γ), scaled to unit length, and every axis is cut at the Lloyd-Max
    levels of its variance. Bits go to the axes by reverse water-filling, in bytes of whole axes. All of it follows from
    the moments: nothing is trained, and moments of parts of a corpus merge to the code of the whole.

    Unlike in `Whitening`, the mean is always subtracted in whole: levels lie around it.

    Args:
      bytes: Of a vector's code; at least 1, at most as many as there are axes.
      gamma: Power of the scaling, 0 to 1. None: that of the whitening it is fitted from; otherwise 0.5 where the
        IsoScore is above 0.1, which is that of an encoder tuned for similarity, and else 1, see `whitening.spread`.
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

        Returns:
          This object.

        Raises:
          NotFittedError: A whitening that was not fitted.
          NonFiniteError: A row holds NaN or an infinity; the message names it, nothing is changed.
          InputError: Empty moments, more bytes than axes, a mean of another width, or a parameter that cannot be.
        """
        gamma = X.gamma if isinstance(X, Whitening) else None
        if not isinstance(X, Whitening):
            X = Whitening.from_moments(X if isinstance(X, Moments) else Moments().update(X))
        if mean is not None:
            X = X.with_mean(mean.mean if isinstance(mean, Moments) else mean)
        self._check_params(X.n_features_in_)
        whole = X.with_params(n_components=None, beta=1.0)
        state = _State(whole, X.n_components or X.n_features_in_, gamma)
        state.plan(self.bytes, self.gamma, self.halves)  # refuses what the axes cannot hold
        self._learned = Learned(state, X.n_samples_seen_, X.n_features_in_, X.provenance)
        return self

    @staticmethod
    def usual_gamma(fitted: Moments | Whitening) -> float:
        """The γ that vectors of these moments, or of those of a whitening, are coded with if none is given."""
        return _TUNED_GAMMA if spread(fitted) > SPREAD_OUT else _UNTUNED_GAMMA

    def _learn(self, X: np.ndarray, state: _State | None) -> _State:
        """Rows added to those seen; their decomposition waits until it is used."""
        whitening = Whitening() if state is None else copy.copy(state.whitening)
        axes, gamma = (X.shape[1], None) if state is None else (state.axes, state.gamma)
        return _State(whitening.partial_fit(X), axes, gamma)

    def _check_params(self, d: int) -> None:
        check_integer("bytes", self.bytes, least=1)
        if self.bytes > d:
            raise InputError(f"bytes is {self.bytes}; vectors of {d} dimensions take at most {d}, a byte each.")
        if self.gamma is not None:
            check_share("gamma", self.gamma)
        if self.halves not in (None, True, False):
            raise InputError(f"halves must be None, True or False, got {self.halves!r}.")

    @property
    def _plan(self) -> _Plan:
        return self._fitted().state.plan(self.bytes, self.gamma, self.halves)

    @property
    def nbytes(self) -> int:
        return self.bytes

    @property
    def gamma_(self) -> float:
        """The power of the scaling in use."""
        return float(self._plan.whitening.gamma)

    @property
    def bits_(self) -> Int[np.ndarray, " k"]:
        """Bits of each axis, by falling variance; the first k of them have any."""
        return self._plan.bits

    @property
    def distortion_(self) -> float:
        """Expected share of the whitened vectors' variance that the code loses, if each axis is normal."""
        return self._plan.distortion

    def expected_loss(self, moments: Moments) -> float:
        """`distortion_` on vectors of these moments instead of those it was fitted on, if each axis is normal.

        Args:
          moments: Of raw vectors.

        Raises:
          InputError: Moments of another width, or empty.
        """
        whole = self._fitted().state
        axes, plan = whole.axes, self._plan
        means, variances = plan.whitening.along_axes(moments)
        scale = whole.whitening.with_params(gamma=plan.whitening.gamma).scales_[:axes]
        deviations = np.sqrt(np.maximum(whole.whitening.eigenvalues_[:axes], np.finfo(float).tiny)) * scale
        means, spread = means[:axes] * scale, np.sqrt(variances[:axes]) * scale
        lost = means**2 + spread**2
        for axis, bits in enumerate(plan.bits):
            x = (means[axis] + spread[axis] * _NORMAL) / deviations[axis]
            levels = lloyd_max(int(bits))
            error = x - levels.values[np.searchsorted(levels.thresholds, x)]
            lost[axis] = float(np.mean(error**2)) * deviations[axis] ** 2
        return float(lost.sum() / (means**2 + spread**2).sum())

    @property
    def whitening(self) -> Whitening:
        """The whitening in front of the code, with the columns that have bits: what a query is mapped by."""
        return self._plan.whitening

    @property
    def affine(self) -> Affine:
        return self._plan.affine

    @property
    def byte_of_column(self) -> Int[np.ndarray, " k"]:
        return np.where(self._plan.bits > 0, self._plan.byte, -1)

    @property
    def in_high_half(self) -> Bool[np.ndarray, " k"]:
        plan = self._plan
        if (plan.shift % 4 + plan.bits > 4).any():
            return super().in_high_half
        return plan.shift >= 4

    @property
    def one_bit(self) -> bool:
        return bool((self._plan.bits <= 1).all())

    @property
    def constants(self) -> Constants:
        return self._plan.constants

    @staticmethod
    def quantise(x: Any, constants: Constants) -> Any:
        thresholds, places = constants["thresholds"], constants["places"]
        if isinstance(x, np.ndarray):
            levels = np.zeros(x.shape, np.float32)
            for row in thresholds:
                few = int(np.flatnonzero(row < np.inf)[-1]) + 1  # columns of many bits come first
                levels[:, :few] += x[:, :few] > row[:few]
            return (levels @ places).astype(np.uint8)
        below = x[:, None, :] > jnp.asarray(thresholds)[None]
        # Whole numbers up to 255 times powers of two: exact in every precision a device multiplies in.
        return jnp.matmul(below.sum(axis=1, dtype=jnp.float32), jnp.asarray(places)).astype(jnp.uint8)

    @staticmethod
    def quantise_onnx(graph: Any, x: str, constants: Constants) -> str:
        thresholds = graph.constant(f"{x}.thresholds", constants["thresholds"])
        above = graph.op("Cast", graph.op("Greater", graph.op("Unsqueeze", x, graph.integers(1)), thresholds), to=1)
        levels = graph.op("ReduceSum", above, graph.integers(1), keepdims=0)
        return graph.op("MatMul", levels, graph.constant(f"{x}.places", constants["places"]))

    def _decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        plan = self._plan
        level = (codes[:, plan.byte] >> plan.shift.astype(np.uint8)) & (2**plan.bits - 1).astype(np.uint8)
        out = np.zeros((len(codes), len(plan.bits)), np.float32)
        for bits in np.unique(plan.bits):
            columns = np.flatnonzero(plan.bits == bits)
            values = lloyd_max(int(bits)).values.astype(np.float32)
            out[:, columns] = values[level[:, columns]] * plan.spread[columns].astype(np.float32)
        return out

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"gamma": self.gamma_, "distortion": self.distortion_}

    def _pack(self, state: _State) -> dict[str, np.ndarray]:
        whitening = state.whitening
        numbers = [
            -1.0 if state.gamma is None else state.gamma,
            whitening.shrinkage_,
            whitening.eigenvalue_floor,
            state.axes,
        ]
        return {**whitening._pack(whitening._fitted().state), "settings": np.array(numbers, np.float64)}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> _State:
        gamma, shrinkage, floor, axes = map(float, tensors["settings"])
        whitening = Whitening(shrinkage=shrinkage, eigenvalue_floor=floor)
        whitening._check_params(d)
        if not 1 <= axes <= d or gamma > 1:
            raise ValueError(f"{axes} axes of {d}, γ {gamma}")
        whitening._learned = Learned(whitening._unpack(tensors, d), int(tensors["n"].item()), d, {})
        state = _State(whitening, int(axes), None if gamma < 0 else gamma)
        state.plan(self.bytes, self.gamma, self.halves)
        return state


def _packed(variances: np.ndarray, count: int, halves: bool | None) -> Packing:
    """Axes in bytes, or in halves of bytes; by default in halves where that loses next to nothing."""
    if halves is not False and 2 * count <= len(variances):
        bits, half, shift = pack(variances, 2 * count, 4)
        in_halves = Packing(bits, half // 2, shift + 4 * (half % 2))
        if halves:
            return in_halves
    elif halves:
        raise InputError(
            f"Halves of {count} bytes hold at least {2 * count} axes; the vectors vary along {len(variances)}."
        )
    else:
        return pack(variances, count)
    whole = pack(variances, count)
    losses = [float((variances * distortions()[packing.bits]).sum()) for packing in (in_halves, whole)]
    return in_halves if losses[0] <= _NEXT_TO_NOTHING * losses[1] else whole


def _plan(whitening: Whitening, axes: int, count: int, halves: bool | None) -> _Plan:
    """The code of `count` bytes of a whitening, of which the first axes may be used."""
    scales = whitening.scales_[:axes]
    variances = whitening.eigenvalues_[:axes] * scales**2
    varying = min(axes, whitening.rank_)
    if count > varying:
        raise InputError(f"bytes is {count}; the vectors vary along {varying} axes, which fill at most as many bytes.")
    bits, byte, shift = _packed(variances[:varying], count, halves)
    left = variances.copy()
    left[:varying] *= distortions()[bits]
    k = int(np.flatnonzero(bits).max()) + 1
    bits, byte, shift = bits[:k], byte[:k], shift[:k]
    spread = np.sqrt(variances[:k] / variances[:k].sum())
    thresholds = np.full((2 ** int(bits.max()) - 1, k), np.inf, np.float32)
    for axis, bits_of in enumerate(bits):
        found = lloyd_max(int(bits_of)).thresholds * spread[axis]
        thresholds[: len(found), axis] = found
    places = np.zeros((k, count), np.float32)
    places[np.arange(k), byte] = np.where(bits > 0, 2.0**shift, 0.0)
    return _Plan(
        whitening.with_params(n_components=k),
        Affine(whitening.mean_, whitening.components_[:, :k] * scales[:k], unit_length=True),
        bits,
        byte,
        shift,
        spread,
        {"thresholds": thresholds, "places": places},
        float(left.sum() / variances.sum()),
    )
