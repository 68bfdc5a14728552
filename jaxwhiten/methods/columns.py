"""Methods that treat every column separately: identity, mean-centring, z-score. O(nd) time, O(d) memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import block_rows, blocks, check_finite, first_nonfinite_row, work_dtype
from jaxwhiten.errors import InputError
from jaxwhiten.whitening.estimator import VectorMethod, check_share, parameters


class ColumnMoments(NamedTuple):
    """Count, mean and sum of squared deviations of each column, in float64."""

    n: int
    mean: np.ndarray
    M2: np.ndarray

    def merge(self, other: ColumnMoments) -> ColumnMoments:
        """The moments of both sets of rows."""
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        return ColumnMoments(n, mean, self.M2 + other.M2 + delta**2 * (self.n * other.n / n))


def column_moments(X: np.ndarray) -> ColumnMoments:
    """Moments of rows, taken block by block about each block's mean, and merged.

    References:
      Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """
    result = ColumnMoments(0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    for part in blocks(len(X), block_rows(X.shape[1], 8)):
        block = X[part].astype(np.float64)
        mean = block.mean(axis=0)
        block -= mean
        result = result.merge(ColumnMoments(len(block), mean, np.einsum("ij,ij->j", block, block)))
    return result


class _ColumnMethod(VectorMethod):
    def _learn(self, X: np.ndarray, state: ColumnMoments | None) -> ColumnMoments:
        check_finite(X)
        moments = column_moments(X)
        return moments if state is None else state.merge(moments)

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> ColumnMoments:
        state = ColumnMoments(int(tensors["n"].item()), tensors["mean"], tensors["M2"])
        if state.mean.shape != (d,) or state.M2.shape != (d,) or state.n < 1 or (state.M2 < 0).any():
            raise ValueError(f"moments of shapes {state.mean.shape} and {state.M2.shape}, {state.n} rows")
        return state

    def _scale(self, state: ColumnMoments) -> np.ndarray | None:
        """The factor of each column, or None."""
        return None

    def _apply(self, state: ColumnMoments, X: np.ndarray) -> np.ndarray:
        dtype = work_dtype(X.dtype)
        scale = self._scale(state)
        with np.errstate(invalid="ignore", over="ignore"):
            out = X - state.mean.astype(dtype)
            out = out.astype(dtype, copy=False)
            if scale is not None:
                out *= scale.astype(dtype)
        row = first_nonfinite_row(out)
        if row is not None:
            check_finite(X)
            raise InputError(f"Row {row} of the input leaves the range of {dtype}: scale the input down.")
        return out


class Centring(_ColumnMethod):
    """Subtracts the mean: x − μ."""

    name = "centre"


@parameters
class ZScore(_ColumnMethod):
    """Subtracts the mean and divides each column by its standard deviation (divisor n): (x − μ) / σ.

    A variance below `variance_floor` times the largest is replaced by that floor, so that columns without variance stay
    small. `Whitening` does the same for directions.

    Args:
      variance_floor: Relative floor, 0 to 1.
    """

    name = "zscore"

    variance_floor: float = 1e-6

    def _check_params(self, d: int) -> None:
        check_share("variance_floor", self.variance_floor)

    def _scale(self, state: ColumnMoments) -> np.ndarray:
        variance = state.M2 / state.n
        floor = max(self.variance_floor, np.finfo(np.float64).eps) * variance.max()
        return np.maximum(variance, floor) ** -0.5 if floor > 0 else np.ones_like(variance)


class Identity(VectorMethod):
    """Returns vectors unchanged: the baseline of every other method."""

    name = "none"

    def _learn(self, X: np.ndarray, state: Any) -> tuple[()]:
        check_finite(X)
        return ()

    def _apply(self, state: Any, X: np.ndarray) -> np.ndarray:
        check_finite(X)
        return X.astype(work_dtype(X.dtype))

    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        return {}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> tuple[()]:
        return ()
