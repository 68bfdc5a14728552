"""Methods that treat every column separately: identity, mean-centring, z-score."""

from __future__ import annotations

from typing import Any

import numpy as np

from eval.methods.base import Method
from jaxwhiten.arrays import check_finite, first_nonfinite_row, work_dtype
from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.whitening import Moments
from jaxwhiten.whitening.estimator import parameters


class _ColumnMethod(Method):
    def _learn(self, X: np.ndarray) -> Moments:
        check_finite(X)
        return Moments().update(X)

    def _pack(self, state: Moments) -> dict[str, np.ndarray]:
        return state.tensors()

    def _scale(self, state: Moments) -> np.ndarray | None:
        """The factor of each column, or None."""
        return None

    def _map(self, state: Moments, X: np.ndarray) -> np.ndarray:
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
            raise InputError(f"Row {row} of the input overflows {dtype}: scale the input down.")
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
        Bounds(0.0, 1.0).check("variance_floor", self.variance_floor)

    def _scale(self, state: Moments) -> np.ndarray:
        variance = np.diagonal(state.M2) / state.n
        floor = max(self.variance_floor, np.finfo(np.float64).eps) * variance.max()
        if floor > 0:
            return np.maximum(variance, floor) ** -0.5
        return np.ones_like(variance)


class Identity(Method):
    """Returns vectors unchanged: the baseline of every other method."""

    name = "none"

    def _learn(self, X: np.ndarray) -> tuple[()]:
        check_finite(X)
        return ()

    def _map(self, state: Any, X: np.ndarray) -> np.ndarray:
        check_finite(X)
        return X.astype(work_dtype(X.dtype))

    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        return {}
