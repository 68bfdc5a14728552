"""Methods made of the eigenvectors of the covariance: all-but-the-top, ZCA and Cholesky whitening.

PCA, whitening with β and γ, and shrunk whitening are settings of `Whitening`. ZCA, Cholesky and PCA whitening differ
by a rotation only, so that with all dimensions kept every cosine is the same under the three.
"""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.methods.base import VectorMethod
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.decomposition import Decomposition
from jaxwhiten.whitening.estimator import is_number
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.whitening import WhiteningWarning


class SpectralMethod(VectorMethod):
    """A linear map that follows from mean and covariance.

    After `partial_fit` the eigendecomposition waits until it is needed, so that many small blocks are cheap.
    """

    @abstractmethod
    def _matrix(self, decomposition: Decomposition) -> np.ndarray:
        """A of the map (x − μ) A."""

    def _learn(self, X: np.ndarray, state: _Spectrum | None) -> _Spectrum:
        if state is not None:
            return _Spectrum(state.moments.update(X))
        spectrum = _Spectrum(Moments().update(X))
        spectrum.decomposition()  # so that the seconds of a fit hold all of its work
        return spectrum

    def _apply(self, state: _Spectrum, X: np.ndarray) -> np.ndarray:
        key = tuple(self.get_params().items())
        if state.affine is None or state.affine[0] != key:
            self._check_params(X.shape[1])
            matrix = self._matrix(state.decomposition())
            state.affine = (key, Affine(state.moments.mean, matrix, np.zeros(matrix.shape[1])))
        return state.affine[1](X)

    def _pack(self, state: _Spectrum) -> dict[str, np.ndarray]:
        return state.decomposition().tensors()

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> _Spectrum:
        decomposition = Decomposition.from_tensors(tensors)
        problem = decomposition.problem()
        if problem or len(decomposition.mean) != d:
            raise ValueError(problem or f"a mean of {len(decomposition.mean)} columns, not {d}")
        return _Spectrum(decomposition.moments(), decomposition)


class _Spectrum:
    """Moments, and what was computed from them when it was asked for."""

    def __init__(self, moments: Moments, decomposition: Decomposition | None = None) -> None:
        self.moments = moments
        self.affine: tuple[Any, Affine] | None = None
        self._decomposition = decomposition

    def decomposition(self) -> Decomposition:
        if self._decomposition is None:
            self._decomposition = Decomposition.of(self.moments)
        return self._decomposition


class AllButTheTop(SpectralMethod):
    """Subtracts the mean and removes the directions of largest variance: (x − μ)(I − U_D U_Dᵀ).

    The dimension stays d. As in common use, what is removed is the projection of x − μ; the paper's algorithm writes
    the projection of x, which differs by a constant vector.

    Args:
      n_directions: D, the directions removed; None for the paper's rule of thumb d / 100, at least one.

    References:
      Mu, Viswanath: All-but-the-Top: Simple and Effective Postprocessing for Word Representations (2018),
      algorithm 1.
    """

    name = "all-but-the-top"

    def __init__(self, n_directions: int | None = None) -> None:
        self.n_directions = n_directions

    def _check_params(self, d: int) -> None:
        D = self.n_directions
        if D is not None and not (is_number(D, numbers.Integral) and 0 <= D < d):
            raise InputError(f"n_directions must be None or an integer from 0 to {d - 1}, got {D!r}.")

    def _matrix(self, decomposition: Decomposition) -> np.ndarray:
        d = len(decomposition.mean)
        D = min(max(1, d // 100), d - 1) if self.n_directions is None else self.n_directions
        top = decomposition.vectors[:, :D]
        return np.eye(d) - top @ top.T


class _Sphering(SpectralMethod):
    """A whitening with all dimensions, floored as `Whitening` is."""

    def __init__(self, eigenvalue_floor: float = 1e-6) -> None:
        self.eigenvalue_floor = eigenvalue_floor

    def _check_params(self, d: int) -> None:
        if not (is_number(self.eigenvalue_floor) and 0 <= self.eigenvalue_floor <= 1):
            raise InputError(f"eigenvalue_floor must be a number from 0 to 1, got {self.eigenvalue_floor!r}.")

    def _learn(self, X: np.ndarray, state: _Spectrum | None) -> _Spectrum:
        learned = super()._learn(X, state)
        n, d = learned.moments.n, X.shape[1]
        if state is None and n < 10 * d:
            warnings.warn(
                f"Whitening {d} columns was fitted on {n} rows, fewer than 10 a column: the small eigenvalues are "
                "unreliable. Give more rows, or take Whitening with fewer components or shrinkage='ledoit-wolf'.",
                WhiteningWarning,
                stacklevel=4,
            )
        return learned

    def _scaled(self, decomposition: Decomposition) -> np.ndarray:
        """U Λ^(−1/2)."""
        return decomposition.vectors * decomposition.scales(1.0, 0.0, self.eigenvalue_floor)


class ZCAWhitening(_Sphering):
    """Whitening that moves the rows least: (x − μ) U Λ^(−1/2) Uᵀ, with Σ^(−1/2) as its symmetric matrix.

    Args:
      eigenvalue_floor: Relative floor of the eigenvalues, as in `Whitening`.

    References:
      Kessy, Lewin, Strimmer: Optimal Whitening and Decorrelation (2018), section 3.
    """

    name = "zca"

    def _matrix(self, decomposition: Decomposition) -> np.ndarray:
        return self._scaled(decomposition) @ decomposition.vectors.T


class CholeskyWhitening(_Sphering):
    """Whitening by a triangular matrix: (x − μ) L with L lower triangular, its diagonal positive, and L Lᵀ = Σ⁻¹.

    L is the triangular factor of U Λ^(−1/2) rather than of an inverse, so that floored eigenvalues need no care.

    Args:
      eigenvalue_floor: Relative floor of the eigenvalues, as in `Whitening`.

    References:
      Kessy, Lewin, Strimmer (2018), section 3; see `ZCAWhitening`.
    """

    name = "cholesky"

    def _matrix(self, decomposition: Decomposition) -> np.ndarray:
        upper: np.ndarray = np.linalg.qr(self._scaled(decomposition).T).R
        signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        return upper.T * signs
