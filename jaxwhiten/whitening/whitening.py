"""Whitening of sentence vectors: x̃ = (x − βμ) U Λ^(−γ/2), cut to the first k columns.

Rows are summed as `Moments`. Their covariance Σ = U Λ Uᵀ, with divisor n, is decomposed once in float64 on the host.
Another k, β, γ or shrinkage only rescales the columns of U.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.lazy import jax, jnp
from jaxwhiten.parameters import DEFAULTS, SHRINKAGES
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Learned, Method, check_integer, check_share, parameters, stamp
from jaxwhiten.whitening.moments import Moments

# Measured on vectors of a tuned and an un-tuned encoder, fitted on 300 to 6,000 rows: with this many rows, the
# variances of fresh rows along the kept columns are within a third of the fitted ones. The second limit is for flat
# spectra.
_ROWS_PER_COLUMN, _ROWS_PER_EFFECTIVE = 10, 5
# The first thread that needs a decomposition computes it; the others wait.
_LOCK = threading.Lock()


class WhiteningWarning(UserWarning):
    """A whitening was fitted on too little data, or on data that it cannot scale well."""


def _warn(message: str) -> None:
    """Warns at the line that called this package. `fit` warns itself; after `partial_fit` the first use warns."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jaxwhiten."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, WhiteningWarning, stacklevel=level)


def _double_device() -> jax.Device | None:
    """The host CPU for float64 work, so that results do not depend on the accelerator; None is the default device."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class Decomposition:
    """μ and Σ = U Λ Uᵀ of a fit. It is never changed; estimators of one fit share the arrays."""

    mean: Float64[np.ndarray, " d"]
    vectors: Float64[np.ndarray, "d d"]  # eigenvectors as columns
    values: Float64[np.ndarray, " d"]  # descending
    noise: Float64[np.ndarray, " d"] | float = 0.0  # the variance that rounding may leave along each eigenvector
    # The map and, under True, its inverse, each with the parameters it was made for.
    maps: dict[bool, tuple[Any, Affine]] = dataclasses.field(default_factory=dict, init=False)

    def __getstate__(self) -> dict[str, Any]:  # copies and scikit-learn's workers make their own device constants
        return self.__dict__ | {"maps": {}}

    @classmethod
    def of(cls, moments: Moments) -> Decomposition:
        """Decomposes in float64: eigenvalues descending, the largest entry of each eigenvector positive.

        A variance below (eps · mean)² is rounding of rows of that precision, and becomes zero.
        """
        sigma, noise = moments.covariance(), np.square(moments.eps * moments.mean)
        constant = np.diagonal(sigma) < noise
        sigma[constant], sigma[:, constant] = 0.0, 0.0
        with jax.enable_x64(True):
            values, vectors = jnp.linalg.eigh(jax.device_put(sigma, _double_device()))
            values, vectors = np.asarray(values), np.asarray(vectors)
        noise = noise @ np.square(vectors)
        values = np.where(values < noise, 0.0, np.maximum(values, 0.0))
        order = np.argsort(values, kind="stable")[::-1]
        values, vectors, noise = values[order], vectors[:, order], noise[order]
        largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))]
        vectors = vectors * np.where(largest < 0, -1.0, 1.0)
        return cls(moments.mean.copy(), np.ascontiguousarray(vectors), values, noise)

    def moments(self, n: int) -> Moments:
        """The moments of the n rows from which this was made."""
        M2 = (self.vectors * (self.values * n)) @ self.vectors.T
        return Moments(n, self.mean.copy(), (M2 + M2.T) / 2)

    def oas(self, n: int) -> float:
        """The shrinkage coefficient of the Oracle Approximating Shrinkage estimator, from the covariance and n."""
        d, squares, square = len(self.values), float(self.values @ self.values), float(self.values.sum()) ** 2
        distance = (n + 1 - 2 / d) * (squares - square / d)
        return min(((1 - 2 / d) * squares + square) / distance, 1.0) if distance > 0 else 1.0

    def effective_dimensions(self) -> np.ndarray:
        """For every k, the effective number of directions at the scale of direction k: Σ_j min(1, λ_j / λ_k).

        It is d if all variances are equal, and near k if the variances after k are small.
        """
        rest = self.values.sum() - np.cumsum(self.values)
        kept = np.arange(1, len(self.values) + 1)
        return kept + np.divide(rest, self.values, out=np.zeros_like(rest), where=self.values > 0)

    def shrunk(self, shrinkage: float) -> np.ndarray:
        """Eigenvalues of (1 − a) Σ + a (trace Σ / d) I, which has the eigenvectors of Σ."""
        return (1 - shrinkage) * self.values + shrinkage * self.values.mean()

    def rank(self, relative: float, n: int) -> int:
        """The number of eigenvalues above the floor, at most n − 1."""
        return min(int((self.values > np.maximum(_floor(self.values, relative), self.noise)).sum()), n - 1)

    def unseen(self, n: int) -> np.ndarray:
        """The variances to expect of further rows along the axes, which n rows turned towards their own variance.

        λ / |1 − c + c λ g(λ)|² with c = d / n and g the mean of 1 / (λ − λ_j), smoothed at the scale λ_j / √n. For
        n < d, the sum over the axes without variance is n times the harmonic mean of the other variances.

        References:
          Ledoit, Péché 2011, "Eigenvectors of some large sample covariance matrix ensembles". Bun, Bouchaud, Potters
          2017, "Cleaning large correlation matrices: tools from random matrix theory", for the smoothing. Ledoit, Wolf
          2020, "Analytical nonlinear shrinkage of large-dimensional covariance matrices", for n < d.
        """
        rank, found = self.rank(0.0, n), np.zeros(len(self.values))
        if not rank:
            return found
        values = self.values[:rank] * n / (n - 1)
        d = rank if rank < n - 1 else len(found)  # rows of lower rank than they could have never leave its axes
        g = (1 / (values[:, None] - values * (1 + 1j / np.sqrt(n - 1)))).sum(axis=1) / d + (d - rank) / (d * values)
        found[:rank] = values / np.abs(1 + d / (n - 1) * (values * g - 1)) ** 2
        if d > rank:
            left = min(rank**2 / (1 / values).sum(), 0.95 * values.sum())
            found *= (values.sum() - left) / found.sum()
            found[rank:] = left / (d - rank)
        return found

    def scales(self, gamma: float, shrinkage: float, relative: float) -> np.ndarray:
        """Λ^(−γ/2) of the shrunk eigenvalues, each raised to the floor and the noise; ones if all are zero."""
        values = self.shrunk(shrinkage)
        floor = _floor(values, relative)
        return np.maximum(values, np.maximum(floor, self.noise)) ** (-gamma / 2) if floor > 0 else np.ones_like(values)


def _floor(values: np.ndarray, relative: float) -> float:
    """`relative` times the largest value, and at least the resolution of float64."""
    return max(relative, len(values) * np.finfo(np.float64).eps) * float(values[0])


def _warn_of_few_rows(decomposition: Decomposition, n: int, k: int) -> None:
    """Warns if a whitening to k columns was fitted on too few rows to estimate their variances."""
    d, effective = len(decomposition.mean), decomposition.effective_dimensions()
    needed = np.maximum(_ROWS_PER_COLUMN * np.arange(1, d + 1), np.ceil(_ROWS_PER_EFFECTIVE * effective))
    if n >= needed[k - 1]:
        return
    few = f"{_ROWS_PER_COLUMN} per column{' kept' if k < d else ''}"
    if n >= _ROWS_PER_COLUMN * k:
        few = f"{_ROWS_PER_EFFECTIVE} for each of the {effective[k - 1]:.0f} columns of about that variance"
    most = int(np.count_nonzero(needed <= n))
    fewer = f", or keep at most {most} columns: n_components={most}" if most else ""
    _warn(
        f"A whitening {'of' if k == d else f'to {k} of'} {d} columns was fitted on {n} rows, fewer than {few}:"
        f" the variances it scales by are unreliable. Give more rows{fewer}."
    )


@parameters
class Whitening(Method):
    """Whitening with the parameters β and γ, as a scikit-learn estimator.

    An eigenvalue below `eigenvalue_floor` times the largest is replaced by that floor, so that directions without
    variance stay small and nothing is divided by zero. A variance below (eps · mean)², where eps is the precision of
    the rows' dtype, is rounding and becomes zero. `rank_` counts the eigenvalues above the floor. Rows that are all
    equal map to zero. Several threads may call `transform` and `inverse_transform`.

    Args:
      n_components: k, the number of columns kept; None keeps all.
      beta: Share of the mean that is subtracted, 0 to 1.
      gamma: Power of the scaling, 0 to 1. beta=1, gamma=1 is whitening; beta=1, gamma=0 is PCA; beta=gamma=0 with
        all columns leaves every cosine unchanged.
      shrinkage: None, `"oas"`, or a number a in [0, 1]: the covariance becomes (1 − a) Σ + a (trace Σ / d) I.
      eigenvalue_floor: Relative floor, 0 to 1. The default is above the rounding noise that sums in float32 leave in
        null directions. A value below d times the float64 precision is raised to it.

    References:
      Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster Retrieval (2021), section 3.
      The two knobs: Su, https://kexue.fm/archives/9079.
      Chen, Wiesel, Eldar, Hero: Shrinkage algorithms for MMSE covariance estimation (2010), equation 23, for `"oas"`.
    """

    name = "whitening"

    n_components: int | None = DEFAULTS["n_components"]
    beta: float = DEFAULTS["beta"]
    gamma: float = DEFAULTS["gamma"]
    shrinkage: str | float | None = DEFAULTS["shrinkage"]
    eigenvalue_floor: float = DEFAULTS["eigenvalue_floor"]

    # `fit`: rows → moments (`_learn`) → decomposition (`_complete`). `_map` makes the map from it at the first use.

    def _learn(self, X: np.ndarray, state: Moments | Decomposition | None) -> Moments:
        before = state.moments(self.n_samples_seen_) if isinstance(state, Decomposition) else state or Moments()
        return Moments().merge(before).add(X)

    def _complete(self, state: Moments) -> Decomposition:
        decomposition = Decomposition.of(state)
        if 0 < np.abs(state.mean).max() < np.sqrt(np.finfo(np.float64).tiny):
            raise InputError(f"The rows are near {state.mean[0]:.0e}, whose squares float64 does not hold: scale them.")
        if self.gamma:  # at 0 nothing is scaled
            _warn_of_few_rows(decomposition, state.n, int(self.n_components or len(state.mean)))
        self._warn_of_rank(decomposition, state.n)
        variances = np.square(decomposition.vectors) @ decomposition.values
        if 0 < np.median(variances) < _floor(variances.max(keepdims=True), float(self.eigenvalue_floor)):
            _warn(
                f"Column {np.argmax(variances)} has {variances.max() / np.median(variances):.0e} times the variance of"
                " the median one, so that most columns lie below eigenvalue_floor. Scale the columns first."
            )
        return decomposition

    @property
    def _decomposition(self) -> Decomposition:
        """The decomposition; after `partial_fit` it is computed at the first use."""
        if isinstance(self._fitted().state, Moments):
            with _LOCK:
                learned = self._learned
                if isinstance(learned.state, Moments):
                    self._learned = learned._replace(state=self._complete(learned.state))
        return self._learned.state

    def _map(self, inverse: bool = False) -> Affine:
        """The map for the current parameters, or its inverse; cached until they change."""
        decomposition = self._decomposition
        params = tuple(self.get_params().values())
        found = decomposition.maps.get(inverse)
        if found is None or found[0] != params:
            self._check_params(len(decomposition.mean))
            scales, shift = self.scales_, self.beta * decomposition.mean
            axes = decomposition.vectors[:, : len(scales)]
            if inverse:
                affine = Affine(np.zeros(len(scales)), (axes / scales).T, shift)
            else:
                affine = Affine(shift, axes * scales)
            found = decomposition.maps[inverse] = params, affine
        return found[1]

    def _apply(self, state: Any, X: np.ndarray) -> np.ndarray:
        return self._map()(X)

    @classmethod
    def from_moments(cls, moments: Moments, *, provenance: Mapping[str, Any] | None = None, **params: Any) -> Whitening:
        """Fits a whitening from moments, without the rows.

        Args:
          moments: The moments of the rows; not kept and not changed.
          provenance: Facts to save with the whitening, such as model and pooling, added to the facts of the moments.
          **params: Arguments of the constructor.
        """
        result = cls().set_params(**params)
        if moments.n == 0:
            raise InputError("These moments are empty: update them with rows first.")
        result._check_params(len(moments.mean))
        facts = {**stamp(), **moments.provenance, **(provenance or {})}
        result._learned = Learned(result._complete(moments), moments.n, len(moments.mean), facts)
        return result

    def with_params(self, **changes: Any) -> Whitening:
        """A whitening of the same fit with other parameters; both share the decomposition, so that it costs nothing."""
        decomposition = dataclasses.replace(self._decomposition)
        result = type(self)(**self.get_params()).set_params(**changes)
        result._check_params(self.n_features_in_)
        result._learned = self._learned._replace(state=decomposition)
        result._warn_of_rank(decomposition, self.n_samples_seen_)
        return result

    def with_mean(self, mean: Float[np.ndarray, " d"]) -> Whitening:
        """A whitening with the axes and scales of this fit, centred at the mean of another corpus."""
        d, mean = self.n_features_in_, np.array(mean, np.float64)
        if mean.shape != (d,) or not np.isfinite(mean).all():
            raise InputError(f"The mean must be {d} finite numbers, got an array of shape {mean.shape}.")
        result = type(self)(**self.get_params())
        result._learned = self._learned._replace(state=dataclasses.replace(self._decomposition, mean=mean))
        return result

    def _warn_of_rank(self, decomposition: Decomposition, n: int) -> None:
        k, rank, d = self.n_components, decomposition.rank(float(self.eigenvalue_floor), n), len(decomposition.mean)
        if self._coefficient(decomposition, n):
            return
        if self.gamma and 4 * rank < min(d, n - 1):
            what = f"{d - rank} of {d} directions vary too little to be whitened: the rank of the data is {rank}"
            most = f", or use n_components={rank}" if rank else ""
            _warn(f"{what}. Remove rows that are much longer than the others, and repeated rows{most}.")
        elif k is not None and k > rank:
            last = f"{k - rank} columns carry" if k - rank > 1 else "column carries"
            _warn(
                f"n_components={k!r} is more than the rank of the data, {rank}: the last {last} no"
                " information. Take fewer."
            )

    def inverse_transform(self, Z: Any) -> Float[np.ndarray, "n d"]:
        """The rows that `transform` maps to Z [n, k]; for k < d, of all such rows the ones nearest to βμ."""
        inverse = self._map(inverse=True)
        return inverse(as_matrix(Z, type(self).__name__, columns=inverse.inputs))

    @property
    def affine(self) -> Affine:
        """The map of `transform`, which subtracts βμ first."""
        return self._map()

    @property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and bias with transform(X) = X W + bias, computed in float64 and rounded to float32 once."""
        return self._map().kernel

    @property
    def mean_(self) -> Float64[np.ndarray, " d"]:
        """μ."""
        return self._decomposition.mean

    @property
    def components_(self) -> Float64[np.ndarray, "d d"]:
        """U: eigenvectors as columns, in the order of `eigenvalues_`."""
        return self._decomposition.vectors

    @property
    def eigenvalues_(self) -> Float64[np.ndarray, " d"]:
        """Eigenvalues of the covariance, descending, after shrinkage and before the floor."""
        return self._decomposition.shrunk(self.shrinkage_)

    @property
    def unseen_variances_(self) -> Float64[np.ndarray, " d"]:
        """The variances along `components_` to expect of further rows of the same kind, whatever the parameters."""
        return self._decomposition.unseen(self.n_samples_seen_)

    @property
    def shrinkage_(self) -> float:
        """The shrinkage coefficient in use; 0 without shrinkage."""
        return self._coefficient(self._decomposition, self.n_samples_seen_)

    @property
    def scales_(self) -> Float64[np.ndarray, " k"]:
        """Λ^(−γ/2) for the kept columns, after the floor."""
        gamma, floor = float(self.gamma), float(self.eigenvalue_floor)
        return self._decomposition.scales(gamma, self.shrinkage_, floor)[: self.n_components]

    @property
    def rank_(self) -> int:
        """The number of eigenvalues above the floor before shrinkage, at most n − 1."""
        return self._decomposition.rank(float(self.eigenvalue_floor), self.n_samples_seen_)

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"rank": self.rank_}

    def _coefficient(self, decomposition: Decomposition, n: int) -> float:
        if self.shrinkage is None:
            return 0.0
        return decomposition.oas(n) if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _pack(self, state: Any) -> dict[str, np.ndarray]:
        found, n = self._decomposition, np.array([self.n_samples_seen_], np.int64)
        noise = np.broadcast_to(found.noise, found.values.shape)
        return {"n": n, "mean": found.mean, "components": found.vectors, "eigenvalues": found.values, "noise": noise}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Decomposition:
        mean, vectors, values = (tensors[name] for name in ("mean", "components", "eigenvalues"))
        noise = tensors.get("noise", np.zeros_like(values))  # older files have none
        if int(tensors["n"].item()) < 1:
            raise ValueError("n is out of range")
        if any(array.dtype != np.float64 for array in (mean, vectors, values, noise)):
            raise ValueError("tensors are not float64")
        if mean.shape != (d,) or vectors.shape != (d, d) or values.shape != (d,) or noise.shape != (d,):
            raise ValueError(f"shapes do not fit {d} columns: mean {mean.shape}, components {vectors.shape}")
        if values[-1] < 0 or (np.diff(values) > 0).any():
            raise ValueError("eigenvalues are negative or not descending")
        if np.abs(np.einsum("ij,ij->j", vectors, vectors) - 1).max() > 1e-6:
            raise ValueError("the components are not of unit length")
        return Decomposition(mean, vectors, values, noise)

    def _check_params(self, d: int) -> None:
        k, shrinkage = self.n_components, self.shrinkage
        if k is not None:
            check_integer("n_components", k, 1, d)
        for name in ("beta", "gamma", "eigenvalue_floor"):
            check_share(name, getattr(self, name))
        if isinstance(shrinkage, str):
            if shrinkage == "ledoit-wolf":
                raise InputError("shrinkage='ledoit-wolf' became 'oas', which needs no fourth powers: fit with that.")
            check_name("shrinkage", shrinkage, SHRINKAGES)
        elif shrinkage is not None:
            check_share("shrinkage", shrinkage)
