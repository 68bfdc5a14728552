"""Linear maps that scale no direction: a random projection, and removal of the directions of largest variance."""

from __future__ import annotations

import numpy as np

from eval.methods.base import Method
from jaxwhiten.arrays import check_finite
from jaxwhiten.errors import check_integer
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import parameters


@parameters
class RandomProjection(Method):
    """Multiplies by a random matrix of k columns with entries N(0, 1/k), which keeps squared lengths on average.

    `fit` learns only the number of columns. The same seed gives the same matrix.

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

    def _learn(self, X: np.ndarray) -> np.ndarray:
        check_finite(X)
        d = X.shape[1]
        k = self.n_components or d
        return np.random.default_rng(self.seed).standard_normal((d, k)) / np.sqrt(k)

    def _map(self, state: np.ndarray, X: np.ndarray) -> np.ndarray:
        return Affine(np.zeros(len(state)), state)(X)


@parameters
class AllButTheTop(Method):
    """Subtracts the mean and removes the directions of largest variance: (x − μ)(I − U_D U_Dᵀ).

    The dimension stays d. As in common use, the projection of x − μ is removed; the paper's algorithm removes the
    projection of x, which differs by a constant vector.

    Args:
      n_directions: D, the number of directions removed; None for the paper's rule of thumb d / 100, at least one.

    References:
      Mu, Viswanath: All-but-the-Top: Simple and Effective Postprocessing for Word Representations (2018),
      algorithm 1.
    """

    name = "all-but-the-top"

    n_directions: int | None = None

    def _check_params(self, d: int) -> None:
        if self.n_directions is not None:
            check_integer("n_directions", self.n_directions, 0, d - 1)

    def _learn(self, X: np.ndarray) -> Whitening:
        return Whitening(gamma=0.0).fit(X)

    def _map(self, state: Whitening, X: np.ndarray) -> np.ndarray:
        d = state.n_features_in_
        self._check_params(d)
        D = min(max(1, d // 100), d - 1) if self.n_directions is None else self.n_directions
        top = state.components_[:, :D]
        return Affine(state.mean_, np.eye(d) - top @ top.T)(X)
