"""A code that follows from mean and covariance alone: a vector quantizer for a normal distribution."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxwhiten.codes.code import Code, Constants, Plan
from jaxwhiten.codes.gaussian import Design, bound, design, nearest_on_cores, nearest_on_device
from jaxwhiten.errors import InputError, check_integer, check_share
from jaxwhiten.shapes import Float32, Float64, UInt8
from jaxwhiten.space import Known, Origin, check_origin
from jaxwhiten.whitening import Moments, Whitening, choose_gamma
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import parameters

_SAMPLES = 512  # of a normal distribution, for expectations under it

S = TypeVar("S", bound="SpectrumCode")


class _State(NamedTuple):
    """The whitening of all axes, how many of them the code may use, the γ of the given whitening, and made designs."""

    whitening: Whitening
    axes: int
    gamma: float | None
    designs: dict[tuple[int, float, bool], tuple[Design, Plan]]


def _variances(whitening: Whitening, axes: int, groups: int, what: str) -> np.ndarray:
    """The variances of the first axes, as shares of their sum; InputError if there are fewer than groups."""
    varying = min(axes, whitening.rank_)
    if groups > varying:
        raise InputError(f"{what}: expected at most {varying}, the number of axes along which the vectors vary.")
    variances = whitening.eigenvalues_[:varying] * whitening.scales_[:varying] ** 2
    return variances / variances.sum()


@functools.lru_cache(maxsize=32)
def _design(variances: tuple[float, ...], groups: int, bits: int, seed: int) -> Design:
    return design(np.array(variances), groups, bits, seed)


def _plan(whitening: Whitening, made: Design, halves: bool) -> Plan:
    """The operations of a code with this quantiser, for rows of unit length along its k axes."""
    k, (groups, _, width) = len(made.group), made.centroids.shape
    columns = np.zeros(groups * width, np.int32)  # where a group has no more columns, its centroids are 0
    columns[made.used] = np.argsort(made.group, kind="stable")
    constants = {"centroids": made.centroids, "columns": columns}
    affine = Affine(whitening.mean_, whitening.components_[:, :k] * whitening.scales_[:k], unit_length=True)
    byte, high = (made.group // 2, made.group % 2 == 1) if halves else (made.group, None)
    return Plan(affine, constants, byte, high, whitening.with_params(n_components=k), float(np.sqrt(1 - made.lost)))


@parameters
class SpectrumCode(Code):
    """A byte code of whitened vectors: each byte chooses a point of a vector quantizer for a normal distribution.

    Rows are whitened to the target variances λ^(1−γ) and scaled to unit length. Reverse water-filling says how many
    bits each axis deserves; axes are dealt out to bytes so that all bytes carry the same number, and the 256 points of
    a byte are made by k-means for N(0, diag(λ^(1−γ))) of its axes. The code follows from the moments alone, so that
    merged moments of parts of a corpus give the code of the whole.

    Unlike in `Whitening`, the mean is always subtracted entirely, because the points are centered at it.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> SpectrumCode(bytes=4).fit(rows).encode(rows).shape
    (400, 4)

    Args:
      bytes: Bytes of a vector's code, from 1 to the number of axes.
      gamma: Power of the scaling, 0 to 1. None takes γ of the whitening that the code is fitted from, else
        that of `jaxwhiten.whitening.choose_gamma`.
      halves: Whether each half of a byte chooses among 16 points of its own, so that `faiss-fast` can search the codes.

    References:
      Cover, Thomas 2006, "Elements of Information Theory", theorem 10.3.3, for the bits; Linde, Buzo, Gray 1980, "An
      algorithm for vector quantizer design", for the points. Su et al. 2021 (BERT-whitening) and Su,
      https://kexue.fm/archives/9079, for the whitening and γ.
    """

    name = "spectrum"
    _seed = 0  # of the codebooks: a constant, so that equal moments give equal codes

    bytes: int = 48
    gamma: float | None = None
    halves: bool = False

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
        if isinstance(mean, Moments):
            check_origin("the axes", X.origin, Known.of(mean.provenance), "use a mean of vectors of their encoder")
        if mean is not None:
            X = X.with_mean(mean.mean if isinstance(mean, Moments) else mean)
        if gamma is None and self.gamma is None:
            gamma = choose_gamma(X).gamma
        self._check_params(X.n_features_in_)
        whole = X.with_params(n_components=None, beta=1.0)
        state = _State(whole, X.n_components or X.n_features_in_, gamma, {})
        self._made(state)  # raises if the axes cannot fill the bytes
        self._state = state
        return self._fitted_on(X.n_samples_seen_, X.n_features_in_, X._told(), X._origin)

    def _add_rows(self, X: np.ndarray, more: bool, origin: Origin | None) -> None:
        whitening, axes, gamma, _ = self._state if more else (Whitening(), X.shape[1], None, {})
        whitening = copy.copy(whitening).partial_fit(X)
        whitening._origin = origin  # which decides γ
        self._state = _State(whitening, axes, gamma, {})

    def _check_params(self, d: int) -> None:
        check_integer("bytes", self.bytes, least=1)
        if self.bytes > d:
            raise InputError(f"bytes={self.bytes}: expected at most {d}, one per dimension.")
        if self.gamma is not None:
            check_share("gamma", self.gamma)
        if self.halves not in (True, False):
            raise InputError(f"halves={self.halves!r}: expected True or False.")

    @property
    def plan(self) -> Plan:
        return self._made(self._state)[1]

    def _made(self, state: _State, made: Design | None = None) -> tuple[Design, Plan]:
        """The quantiser, as it was read from a file or made now, and the plan under the current parameters."""
        gamma = state.gamma if self.gamma is None else self.gamma
        gamma = float(choose_gamma(state.whitening).gamma if gamma is None else gamma)
        key = self.bytes, gamma, self.halves
        if key not in state.designs:
            whitening = state.whitening.with_params(gamma=gamma)
            groups, bits = (2 * self.bytes, 4) if self.halves else (self.bytes, 8)
            what = f"bytes={self.bytes}{', two halves each' * self.halves}"
            variances = _variances(whitening, state.axes, groups, what)
            made = _design(tuple(variances.tolist()), groups, bits, self._seed) if made is None else made
            state.designs[key] = made, _plan(whitening, made, self.halves)
        return state.designs[key]

    @property
    def gamma_(self) -> float:
        """The power of the scaling in use."""
        return float(self.whitening.gamma)

    @property
    def _shares(self) -> np.ndarray:
        """The variances of the axes after the whitening, as shares of their sum."""
        return _variances(self._state.whitening.with_params(gamma=self.gamma_), self._state.axes, 1, "")

    @property
    def distortion_(self) -> float:
        """The share of the whitened vectors' variance that the code is expected to lose, if they are normal."""
        made = self._made(self._state)[0]
        return float(1 - self._shares[: len(made.group)].sum() * (1 - made.lost))

    @property
    def bound_(self) -> float:
        """The least `distortion_` that any code of as many bytes can have: Shannon's bound for normal vectors."""
        return bound(self._shares, 8 * self.bytes)

    @classmethod
    def quantise(cls, x: Any, constants: Constants) -> Any:
        centroids, columns = constants["centroids"], constants["columns"]
        x = x[:, columns]
        codes = nearest_on_cores(x, centroids) if isinstance(x, np.ndarray) else nearest_on_device(x, centroids)
        return codes if centroids.shape[1] == 256 else codes[:, ::2] | codes[:, 1::2] << 4

    @classmethod
    def quantise_onnx(cls, graph: Any, x: str, constants: Constants) -> str:
        centroids = np.asarray(constants["centroids"])
        groups, points, width = centroids.shape
        columns = graph.constant(f"{x}.columns", np.asarray(constants["columns"], np.int64))
        parts = graph.op("Reshape", graph.op("Gather", x, columns, axis=1), graph.integers(-1, groups, 1, width))
        table = graph.constant(f"{x}.centroids", np.ascontiguousarray(centroids.transpose(0, 2, 1)))
        halves = graph.constant(f"{x}.halves", (centroids**2).sum(axis=2)[:, None] / 2)
        scores = graph.op("Sub", graph.op("MatMul", parts, table), halves)
        levels = graph.op("Cast", graph.op("ArgMax", scores, axis=-1, keepdims=0), to=1)
        places = np.kron(np.eye(groups), [[1]]) if points == 256 else np.kron(np.eye(groups // 2), [[1], [16]])
        levels = graph.op("Reshape", levels, graph.integers(-1, groups))
        return str(graph.op("MatMul", levels, graph.constant(f"{x}.places", places.astype(np.float32))))

    def _decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        centroids, columns = self.plan.constants.values()
        if self.halves:
            codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), len(centroids))
        found = centroids[np.arange(len(centroids)), codes].reshape(len(codes), len(columns))
        used = self._made(self._state)[0].used
        return found[:, used[np.argsort(columns[used])]]

    def expected_loss(self, means: Float64[np.ndarray, " k"], variances: Float64[np.ndarray, " k"]) -> float:
        """The share of the variance along the code's axes that it is expected to lose, if vectors are normal.

        `means`, relative to the fitted mean, and `variances` are of raw vectors along the first axes of the fit.
        """
        k = len(self.plan.byte)
        scales, x = self.whitening.scales_[:k], np.zeros((_SAMPLES, k))
        normal = np.random.default_rng(0).standard_normal((_SAMPLES, k))
        some = slice(min(k, len(means)))
        x[:, some] = (means[some] + np.sqrt(variances[some]) * normal[:, some]) * scales[some]
        x /= np.sqrt((self.whitening.eigenvalues_[:k] * scales**2).sum())
        z = self._decode(self.quantise(x.astype(np.float32), self.plan.constants))
        return float((((x - z) ** 2)[:, some]).sum() / (x**2).sum())

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"gamma": self.gamma_, "distortion": self.distortion_, "bound": self.bound_}

    def tensors(self) -> dict[str, np.ndarray]:
        whitening, axes, gamma, _ = self._state
        made = self._made(self._state)[0]
        numbers = [-1.0 if gamma is None else gamma, whitening.shrinkage_, whitening.eigenvalue_floor, axes, made.lost]
        own = {"settings": np.array(numbers, np.float64), "group": made.group, "centroids": made.centroids}
        return {**whitening.tensors(), **own}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        if "centroids" not in tensors:
            raise ValueError("it was written by a version with other codes")
        gamma, shrinkage, floor, axes, lost = map(float, tensors["settings"])
        group, centroids = tensors["group"], tensors["centroids"]
        groups, points = (2 * self.bytes, 16) if self.halves else (self.bytes, 256)
        whitening = Whitening(shrinkage=shrinkage, eigenvalue_floor=floor)
        if not 1 <= axes <= d or gamma > 1 or not 0 <= lost <= 1:
            raise ValueError(f"{axes} axes of {d}, γ {gamma}, distortion {lost}")
        if (
            group.dtype.kind != "i"
            or group.ndim != 1
            or not groups <= len(group) <= axes
            or set(group) != {*range(groups)}
        ):
            raise ValueError("the bytes of the axes")
        if centroids.dtype != np.float32 or centroids.shape != (groups, points, np.bincount(group).max()):
            raise ValueError(f"points {centroids.dtype} of shape {centroids.shape}")
        whitening.restore(tensors, d)
        self._state = _State(whitening, int(axes), None if gamma < 0 else gamma, {})
        self._made(self._state, Design(group, centroids, lost))
