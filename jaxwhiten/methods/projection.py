"""Gaussian random projection: fewer dimensions without looking at the data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxwhiten.arrays import check_finite
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import VectorMethod, check_integer, parameters


@parameters
class RandomProjection(VectorMethod):
    """Multiplies by a random matrix of k columns, entries N(0, 1/k): squared lengths stay the same on average.

    `fit` learns only the number of columns. The same seed gives the same matrix; a saved file holds the matrix.

    Args:
      n_components: k, the columns of the result; None for as many as the input has.
      seed: Seed of the matrix.

    References:
      Johnson, Lindenstrauss (1984); Dasgupta, Gupta: An elementary proof of a theorem of Johnson and Lindenstrauss
      (2003).
    """

    name = "random-projection"

    n_components: int | None = None
    seed: int = 0

    def _check_params(self, d: int) -> None:
        if self.n_components is not None:
            check_integer("n_components", self.n_components, least=1)
        check_integer("seed", self.seed, least=0)

    def _learn(self, X: np.ndarray, state: np.ndarray | None) -> np.ndarray:
        check_finite(X)
        if state is not None:
            return state
        d = X.shape[1]
        k = self.n_components or d
        return np.random.default_rng(self.seed).standard_normal((d, k)) / np.sqrt(k)

    def _apply(self, state: np.ndarray, X: np.ndarray) -> np.ndarray:
        return Affine(np.zeros(len(state)), state)(X)

    def _pack(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"matrix": state}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> np.ndarray:
        matrix = tensors["matrix"]
        if matrix.dtype != np.float64 or matrix.ndim != 2 or len(matrix) != d:
            raise ValueError(f"a {matrix.dtype} matrix of shape {matrix.shape}")
        return matrix
