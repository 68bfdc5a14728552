"""The eigendecomposition of a covariance: computed once in float64 on the host, shared by all whitenings of one fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxwhiten.errors import InputError, spelled
from jaxwhiten.whitening.moments import Moments, weights_problem


def _double_device() -> jax.Device | None:
    """The device for float64 work: the host CPU, so that results do not depend on the accelerator; else the default."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class Decomposition:
    """Σ = U Λ Uᵀ and the other sums of a fit. Shared by estimators, never changed."""

    n: int
    mean: np.ndarray
    vectors: np.ndarray
    values: np.ndarray
    cubic: np.ndarray
    quartic: float
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, moments: Moments) -> Decomposition:
        """Decomposes in float64: eigenvalues descending, the largest entry of each eigenvector positive."""
        with jax.enable_x64(True):
            values, vectors = jnp.linalg.eigh(jax.device_put(moments.covariance(), _double_device()))
            values, vectors = np.asarray(values), np.asarray(vectors)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))]
        vectors = vectors * np.where(largest < 0, -1.0, 1.0)
        vectors = np.ascontiguousarray(vectors)
        sums = moments.cubic.copy(), moments.quartic, moments.weights
        return cls(moments.n, moments.mean.copy(), vectors, values, *sums)

    def moments(self) -> Moments:
        """The moments this was made from."""
        result = Moments(self.n, self.mean.copy(), self.vectors, self.cubic.copy(), self.quartic, weights=self.weights)
        M2 = (self.vectors * (self.values * result.weight)) @ self.vectors.T
        result.M2 = (M2 + M2.T) / 2
        return result

    @property
    def effective_n(self) -> float:
        """As that of the moments."""
        return self.weights[0] ** 2 / self.weights[1] if self.weights else float(self.n)

    def ledoit_wolf(self) -> float:
        """The shrinkage coefficient of Ledoit and Wolf, exact: Σ ‖x−μ‖⁴ is part of the moments.

        Raises:
          InputError: Rows of unequal weights, of which Σ w² yᵀy would be needed, too.
        """
        if not np.isclose(self.effective_n, self.n, rtol=1e-9):
            raise InputError(
                f"The Ledoit-Wolf coefficient is not known for rows of unequal weights: give {spelled('shrinkage')} a"
                " number from 0 to 1, or leave it out."
            )
        d, squares = len(self.values), float(self.values @ self.values)
        distance = squares - float(self.values.sum()) ** 2 / d
        error = (self.quartic / (self.weights[0] if self.weights else self.n) - squares) / self.n
        return min(max(error / distance, 0.0), 1.0) if distance > 0 and error > 0 else 0.0

    def effective_dimensions(self) -> np.ndarray:
        """For every k, the first k directions and the others by their variance: Σ_j min(1, λ_j / λ_k).

        It is d where all variances are alike, and near k where those left out are small.
        """
        rest = self.values.sum() - np.cumsum(self.values)
        kept = np.arange(1, len(self.values) + 1)
        return kept + np.divide(rest, self.values, out=np.zeros_like(rest), where=self.values > 0)

    def shrunk(self, shrinkage: float) -> np.ndarray:
        """Eigenvalues of (1 − a) Σ + a (trace Σ / d) I; its eigenvectors are those of Σ."""
        return (1 - shrinkage) * self.values + shrinkage * self.values.mean()

    def floor(self, values: np.ndarray, relative: float) -> float:
        """`relative` times the largest value, but no lower than what float64 resolves."""
        return max(relative, len(values) * np.finfo(np.float64).eps) * float(values[0])

    def rank(self, relative: float) -> int:
        """Eigenvalues above the floor, at most n − 1."""
        return min(int((self.values > self.floor(self.values, relative)).sum()), self.n - 1)

    def scales(self, gamma: float, shrinkage: float, relative: float) -> np.ndarray:
        """Λ^(−γ/2) of the shrunk eigenvalues, those below the floor raised to it; ones if all are zero."""
        values = self.shrunk(shrinkage)
        floor = self.floor(values, relative)
        return np.maximum(values, floor) ** (-gamma / 2) if floor > 0 else np.ones_like(values)

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything, by name, as it is written to a file."""
        named = {"mean": self.mean, "components": self.vectors, "eigenvalues": self.values, "cubic": self.cubic}
        named |= {"weights": np.array(self.weights)} if self.weights else {}
        return named | {"n": np.array([self.n], np.int64), "quartic": np.array([self.quartic])}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Decomposition:
        """The reverse of `tensors`; KeyError or ValueError if something is missing or not a number."""
        mean, vectors, values, cubic = (tensors[name] for name in ("mean", "components", "eigenvalues", "cubic"))
        sums = cubic, float(tensors["quartic"].item()), tuple(map(float, tensors.get("weights", ())))
        return cls(int(tensors["n"].item()), mean, vectors, values, *sums)

    def problem(self) -> str | None:
        """What makes these numbers impossible, or None."""
        d = len(self.mean) if self.mean.ndim == 1 else 0
        arrays = (self.mean, self.vectors, self.values, self.cubic)
        if any(a.dtype != np.float64 for a in arrays):
            return "tensors are not float64"
        if d == 0 or self.vectors.shape != (d, d) or self.values.shape != (d,) or self.cubic.shape != (d,):
            return f"shapes do not fit: mean {self.mean.shape}, components {self.vectors.shape}"
        if self.n < 1 or not all(np.isfinite(a).all() for a in arrays) or not 0 <= self.quartic < np.inf:
            return "a number is NaN, infinite or out of range"
        if self.values[-1] < 0 or (np.diff(self.values) > 0).any():
            return "eigenvalues are negative or not descending"
        if np.abs(np.einsum("ij,ij->j", self.vectors, self.vectors) - 1).max() > 1e-6:
            return "the components are not of unit length"
        return weights_problem(self.weights)
