"""All-but-the-top, ZCA and Cholesky whitening: made of the eigenvectors of the covariance.

PCA, whitening with β and γ, and shrunk whitening are settings of `Whitening`. ZCA, Cholesky and PCA whitening differ
by a rotation only, so that with all dimensions kept every cosine is the same under the three.
"""

from __future__ import annotations

import numbers

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.decomposition import Decomposition
from jaxwhiten.whitening.estimator import check_share, is_number, parameters
from jaxwhiten.whitening.spectral import SpectralMethod
from jaxwhiten.whitening.whitening import warn_of_few_rows


@parameters
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

    n_directions: int | None = None

    def _check_params(self, d: int) -> None:
        D = self.n_directions
        if D is not None and not (is_number(D, numbers.Integral) and 0 <= D < d):
            raise InputError(f"n_directions must be None or an integer from 0 to {d - 1}, got {D!r}.")

    def _map(self, decomposition: Decomposition) -> Affine:
        d = len(decomposition.mean)
        D = min(max(1, d // 100), d - 1) if self.n_directions is None else self.n_directions
        top = decomposition.vectors[:, :D]
        return Affine(decomposition.mean, np.eye(d) - top @ top.T)


@parameters
class _Sphering(SpectralMethod):
    """A whitening with all dimensions, floored as `Whitening` is."""

    eigenvalue_floor: float = 1e-6

    def _check_params(self, d: int) -> None:
        check_share("eigenvalue_floor", self.eigenvalue_floor)

    def _check_fit(self, decomposition: Decomposition) -> None:
        warn_of_few_rows(decomposition, len(decomposition.mean), "Whitening with ")

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

    def _map(self, decomposition: Decomposition) -> Affine:
        return Affine(decomposition.mean, self._scaled(decomposition) @ decomposition.vectors.T)


class CholeskyWhitening(_Sphering):
    """Whitening by a triangular matrix: (x − μ) L with L lower triangular, its diagonal positive, and L Lᵀ = Σ⁻¹.

    L is the triangular factor of U Λ^(−1/2) rather than of an inverse, so that floored eigenvalues need no care.

    Args:
      eigenvalue_floor: Relative floor of the eigenvalues, as in `Whitening`.

    References:
      Kessy, Lewin, Strimmer (2018), section 3; see `ZCAWhitening`.
    """

    name = "cholesky"

    def _map(self, decomposition: Decomposition) -> Affine:
        upper: np.ndarray = np.linalg.qr(self._scaled(decomposition).T).R
        signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
        return Affine(decomposition.mean, upper.T * signs)
