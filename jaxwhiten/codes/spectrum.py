"""A code that follows from mean and covariance alone: a vector quantizer for a normal distribution."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from jaxwhiten.codes.code import Code, CodePlan, Constants, packed, unpacked
from jaxwhiten.codes.gaussian import Design, bound, design, nearest_on_cores, nearest_on_device
from jaxwhiten.errors import InputError, warn
from jaxwhiten.io import same, within
from jaxwhiten.options import bounded
from jaxwhiten.runtime import hardware
from jaxwhiten.space import Space, check_space
from jaxwhiten.terminal import counted
from jaxwhiten.types import AnyArray, Float32, Json, OnnxGraph, RowsLike, UInt8
from jaxwhiten.whitening import Moments, Whitening, WhiteningWarning
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import parameters
from jaxwhiten.whitening.whitening import alike, unseen_variances

# of a group: half a byte
_BITS = 4
_POINTS = 16
_SPREADS = 1e-15, 1e15  # of vectors about their mean: squares of a small part of it are numbers of float32

S = TypeVar("S", bound="SpectrumCode")


class _State(NamedTuple):
    """Mean, axes and variances of the vectors, and the quantizers made for them by number of groups."""

    axes: Whitening
    designs: dict[int, tuple[Design, CodePlan]]


def _variances(axes: Whitening, least: int) -> np.ndarray:
    """The positive variances along the axes, and the smallest of them along others up to `least`."""
    variances = axes.variances_ if axes.shrinkage is None else unseen_variances(axes)
    variances = variances[variances > 0]
    more = max(0, least - len(variances)) if len(variances) else 0
    return np.concatenate([variances, np.repeat(variances[-1:], more)])


def _spread(axes: Whitening, k: int) -> float:
    """The root of the sum of the variances along the first k axes."""
    return float(np.sqrt(_variances(axes, k)[:k].sum()))


@functools.lru_cache(maxsize=32)
def _design(shares: tuple[float, ...], groups: int, bits: int, seed: int) -> Design:
    return design(np.array(shares), groups, bits, seed)


def _plan(axes: Whitening, made: Design, spread: float) -> CodePlan:
    """The operations of a code with this quantizer, whose centroids are in units of the root of the variance."""
    k, (groups, _, width) = len(made.group), made.centroids.shape
    if not _SPREADS[0] <= spread <= _SPREADS[1]:
        raise InputError(
            f"The vectors are {spread:.0e} away from their mean; a code takes {_SPREADS[0]:.0e} to {_SPREADS[1]:.0e}."
            " Scale them, as jaxwhiten.normalize does."
        )
    columns = np.zeros(groups * width, np.int32)  # where a group has no more columns, its centroids are 0
    columns[made.used] = np.argsort(made.group, kind="stable")
    constants = {"centroids": made.centroids * np.float32(spread), "columns": columns}
    affine = Affine(axes.mean_, axes.components_[:, :k])
    length = float(np.sqrt(axes.mean_ @ axes.mean_ + spread**2 * (1 - made.lost)))
    return CodePlan(affine, constants, made.group // 2, made.group % 2 == 1, length)


@parameters
class SpectrumCode(Code):
    """A byte code of vectors: each half of a byte chooses a point of a vector quantizer for a normal distribution.

    Vectors are rotated to their principal axes about the mean. Reverse water-filling says how many bits each axis
    deserves; axes are dealt out to half bytes so that all carry the same number, and the 16 points of a half byte are
    made by k-means for the normal distribution of its axes. The code follows from the moments alone, so that merged
    moments of parts of a corpus give the code of the whole. It changes no similarity: decoded vectors lie in the space
    of the vectors that were coded, and have nearly their cosines.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> code = SpectrumCode(bytes=4).fit(rows)
    >>> code.encode(rows).shape, code.decode(code.encode(rows)).shape
    ((400, 4), (400, 8))

    Args:
      bytes: Bytes of a vector's code, from 1 to half the number of dimensions.

    References:
      Cover, Thomas 2006, "Elements of Information Theory", theorem 10.3.3, for the bits; Linde, Buzo, Gray 1980, "An
      algorithm for vector quantizer design", for the points.
    """

    name = "spectrum"
    _seed = 0  # of the codebooks: a constant, so that equal moments give equal codes

    bytes: int = bounded(48, 1)

    def fit(self: S, X: RowsLike, y: object = None, *, mean: AnyArray = None) -> S:
        """Learns from moments, from a whitening, or from rows, and forgets earlier ones.

        Args:
          X: `Moments` of the vectors to be coded; [n, d] rows of them; or a fitted `Whitening`, if its vectors, scaled
            to unit length, are to be coded.
          mean: [d] mean of the vectors to be coded, or their `Moments`, if X comes from another corpus: the code then
            has the axes of X about this mean. None takes the mean of X; a whitening has it inside.
        """
        whitened = isinstance(X, Whitening)
        if whitened and mean is not None:
            raise InputError("A whitening has its mean inside: pass whitening.with_mean(mean), and omit mean.")
        axes: Whitening
        if whitened:
            axes = X
        else:
            axes = Whitening.from_moments(X if isinstance(X, Moments) else Moments.of(X), gamma=0, shrinkage="oas")
        if isinstance(mean, Moments):
            others = Space.of(mean.provenance)
            check_space("the axes", axes.space, others, "use a mean of vectors of their encoder", role="query")
            mean = mean.mean
        if mean is not None:
            axes = axes.with_mean(mean)
        record = axes._record
        if whitened:
            axes = unit_length(axes)
            copied = ("corpus", "date", "version", "fit_seconds")
            record = {name: value for name, value in record.items() if name in copied}
            record["whitening"] = X.affine.hash()
        self._check_params(axes.n_features_in_)
        state = _State(axes, {})
        self._made(state)  # raises if the axes cannot fill the bytes
        self._state = state
        return self._fitted_on(axes.n_samples_seen_, axes.n_features_in_, record)

    def _add_rows(self, X: np.ndarray, more: bool) -> None:
        axes = copy.copy(self._state.axes if more else Whitening(gamma=0, shrinkage="oas"))
        self._state = _State(axes.partial_fit(X), {})

    def _check_params(self, d: int) -> None:
        super()._check_params(d)
        if 2 * self.bytes > d:
            raise InputError(f"bytes={self.bytes}: expected at most {d // 2}, half a byte per dimension.")

    @property
    def plan(self) -> CodePlan:
        return self._made(self._state)[1]

    @property
    def axes(self) -> Whitening:
        """Mean, principal axes and variances of the vectors of the fit, as an unscaled whitening."""
        return self._state.axes

    def _made(self, state: _State) -> tuple[Design, CodePlan]:
        """The quantizer and the plan under the current parameters."""
        groups = 2 * self.bytes
        n = state.axes.n_samples_seen_
        d = state.axes.n_features_in_
        if groups not in state.designs:
            variances = _variances(state.axes, groups)
            if not len(variances):
                raise InputError(f"Cannot fit a code: {alike(n)}")
            fitted = f"A code of {counted(self.bytes, 'bytes')} was fitted on"
            if groups > (varying := len(_variances(state.axes, 0))):
                advice = f"Use more texts, or at most {counted(max(1, varying // 2), 'bytes')}."
                warn(f"{fitted} vectors that vary along only {counted(varying, 'axes')}. {advice}", WhiteningWarning)
            elif 2 * groups < d and n < d:
                advice = f"It gets better with more: use about {d:,} texts, or {-(-d // 4):,} bytes."
                warn(f"{fitted} {n:,} vectors of {d:,} dimensions. {advice}", WhiteningWarning)
            made = _design(tuple((variances / variances.sum()).tolist()), groups, _BITS, self._seed)
            state.designs[groups] = made, _plan(state.axes, made, _spread(state.axes, len(made.group)))
        return state.designs[groups]

    @property
    def _shares(self) -> np.ndarray:
        """The variances of the axes as shares of their sum."""
        variances = _variances(self._state.axes, 2 * self.bytes)
        return variances / variances.sum()

    @property
    def distortion_(self) -> float:
        """The share of the vectors' variance that the code is expected to lose, if they are normal."""
        layout = self._made(self._state)[0]
        return float(1 - self._shares[: len(layout.group)].sum() * (1 - layout.lost))

    @property
    def bound_(self) -> float:
        """The least `distortion_` that any code of as many bytes can have: Shannon's bound for normal vectors."""
        return bound(self._shares, 8 * self.bytes)

    @classmethod
    def quantize(cls, x: AnyArray, constants: Constants) -> AnyArray:
        centroids = constants["centroids"]
        columns = constants["columns"]
        x = x[:, columns]
        if isinstance(x, np.ndarray):
            groups = nearest_on_cores(x, centroids)
        else:
            groups = nearest_on_device(x, centroids)
        return packed(groups, _BITS)

    @classmethod
    def quantize_onnx(cls, graph: OnnxGraph, x: str, constants: Constants) -> str:
        centroids = np.asarray(constants["centroids"])
        groups, _, width = centroids.shape
        columns = graph.constant(f"{x}.columns", np.asarray(constants["columns"], np.int64))
        parts = graph.op("Reshape", graph.op("Gather", x, columns, axis=1), graph.integers(-1, groups, 1, width))
        table = graph.constant(f"{x}.centroids", np.ascontiguousarray(centroids.transpose(0, 2, 1)))
        halves = graph.constant(f"{x}.halves", (centroids**2).sum(axis=2)[:, None] / 2)
        scores = graph.op("Sub", graph.op("MatMul", parts, table), halves)
        levels = graph.op("Cast", graph.op("ArgMax", scores, axis=-1, keepdims=0), to=1)
        places = np.kron(np.eye(groups // 2), [[1], [_POINTS]])
        levels = graph.op("Reshape", levels, graph.integers(-1, groups))
        return str(graph.op("MatMul", levels, graph.constant(f"{x}.places", places.astype(np.float32))))

    def _decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        centroids, columns = self.plan.constants.values()
        groups = unpacked(codes, _BITS)
        decoded = centroids[np.arange(len(centroids)), groups].reshape(len(codes), len(columns))
        used = self._made(self._state)[0].used
        return decoded[:, used[np.argsort(columns[used])]]

    def _facts(self) -> Json:
        return super()._facts() | {"distortion": self.distortion_, "bound": self.bound_}

    def tensors(self) -> dict[str, np.ndarray]:
        layout = self._made(self._state)[0]
        lost = np.array([layout.lost], np.float64)
        axes = self._state.axes
        parts = {"spread": np.array([_spread(axes, len(layout.group))]), "shrinkage": np.array([axes.shrinkage_])}
        return axes.tensors() | parts | {"group": layout.group, "centroids": layout.centroids, "lost": lost}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        group = tensors["group"]
        centroids = tensors["centroids"]
        lost = float(tensors["lost"].item())
        groups = 2 * self.bytes
        same("kind of the groups of the axes", (group.dtype.kind, group.ndim), ("i", 1))
        within("number of axes", len(group), groups, d)
        same("groups of the axes", sorted({*group.tolist()}), [*range(groups)])
        within("distortion", lost, 0.0, 1.0)
        same("kind of the points", str(centroids.dtype), "float32")
        width = int(np.bincount(group).max())
        same("shape of the points", centroids.shape, (groups, _POINTS, width))
        axes = Whitening(gamma=0, shrinkage="oas" if tensors["shrinkage"].item() else None)
        axes.restore(tensors, d)
        spread = float(tensors["spread"].item())
        within("spread", spread, *_SPREADS)
        layout = Design(group, centroids, lost)
        self._state = _State(axes, {groups: (layout, _plan(axes, layout, spread))})


def unit_length(whitening: Whitening) -> Whitening:
    """Mean, axes and variances of the vectors that a whitening gives, scaled to unit length, if they are normal."""
    affine = whitening.affine
    assert affine.matrix is not None
    with hardware.one_blas_thread():
        mean = (whitening.mean_ - affine.shift) @ affine.matrix
    scales = whitening.scales_
    k = len(scales)
    variances = unseen_variances(whitening)[:k] * scales**2
    # Equal variances, as with γ = 1, keep their order whatever their rounding.
    order = np.argsort(-np.round(np.log(np.maximum(variances, np.finfo(float).tiny)), 9), kind="stable")
    size = float(variances.sum() + mean @ mean) or 1.0  # without variance, of which `_made` says that
    n = whitening.n_samples_seen_
    result = Whitening(gamma=0)
    falling = np.minimum.accumulate(variances[order]) / size
    result._learn(n, mean / np.sqrt(size), np.eye(k)[:, order], falling, np.zeros(k))
    return result._fitted_on(n, k, {})
