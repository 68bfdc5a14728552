"""Whitening of sentence vectors: x̃ = (x − βμ) U Λ^(−γ/2), the first k columns of it.

Σ = U Λ Uᵀ is the covariance with divisor n. One eigendecomposition, in float64 on the host, serves every k, β, γ and
shrinkage: they only rescale its columns.
"""

from __future__ import annotations

import datetime
import numbers
import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float, Float32, Float64

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.arrays import as_matrix
from jaxwhiten.arrays import normalize as normalize
from jaxwhiten.errors import FormatError, InputError, not_fitted, unknown_name
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.decomposition import Decomposition
from jaxwhiten.whitening.estimator import Estimator, is_number
from jaxwhiten.whitening.moments import Moments

_SHRINKAGES = ("ledoit-wolf",)
_ROWS_PER_COLUMN = 10
# Partial fits decompose when they are first used; threads that come at the same time wait for one of them.
_LOCK = threading.Lock()


class WhiteningWarning(UserWarning):
    """A whitening that was fitted, but on less data than it should have."""


class Whitening(Estimator):
    """Whitening with two knobs, as a scikit-learn estimator.

    Directions whose eigenvalue lies below `eigenvalue_floor` times the largest are scaled as if it lay at that floor:
    they stay small instead of being blown up, and nothing is ever divided by zero. `rank_` counts those above it.
    Rows that are all equal map to zero. `transform` and `inverse_transform` may be called from several threads.

    Args:
      n_components: k, the columns kept; None for all.
      beta: Share of the mean that is subtracted, 0 to 1.
      gamma: Power of the scaling, 0 to 1. beta=1, gamma=1 is whitening, beta=1, gamma=0 is PCA, and beta=gamma=0 with
        all columns leaves every cosine unchanged.
      shrinkage: None, `"ledoit-wolf"`, or a number a in [0, 1]: the covariance (1 − a) Σ + a (trace Σ / d) I.
      eigenvalue_floor: Relative floor, 0 to 1. The default lies above what the float32 reduction leaves in null
        directions. Values below d times the float64 precision are raised to it.

    References:
      Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster Retrieval (2021), section 3.
      The two knobs: Su, https://kexue.fm/archives/9079.
      Ledoit, Wolf: A well-conditioned estimator for large-dimensional covariance matrices (2004), section 3.
    """

    n_components: int | None
    beta: float
    gamma: float
    shrinkage: str | float | None
    eigenvalue_floor: float

    @no_type_check  # scikit-learn stores any value here; fitting checks it
    def __init__(
        self,
        n_components: int | None = None,
        beta: float = 1.0,
        gamma: float = 1.0,
        shrinkage: str | float | None = None,
        eigenvalue_floor: float = 1e-6,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.gamma = gamma
        self.shrinkage = shrinkage
        self.eigenvalue_floor = eigenvalue_floor

    def fit(self, X: Any, y: Any = None) -> Whitening:
        """Learns mean and eigendecomposition from rows, forgetting earlier ones.

        Args:
          X: [n, d] rows; memory maps are read block by block.
          y: Ignored.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: Not a matrix of numbers, no rows, or a parameter that cannot be.
        """
        X = as_matrix(X, type(self).__name__, min_rows=1)
        self._check_params(X.shape[1])
        state = Decomposition.of(Moments().update(X))
        return self._adopt(state, {})._warn(state)

    def partial_fit(self, X: Any, y: Any = None) -> Whitening:
        """Adds rows to those already seen, by `fit`, `partial_fit` or the run that saved this object.

        The eigendecomposition waits until something asks for it, so that many small blocks are cheap.

        Args:
          X: [n, d] rows. n may be 0 once rows were seen.
          y: Ignored.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it, nothing is changed.
          InputError: Not a matrix of numbers, or another number of columns.
        """
        state, moments = getattr(self, "_state", None), getattr(self, "_moments", None)
        if moments is None:
            moments = Moments() if state is None else state.moments()
        columns = len(moments.mean) if moments.n else None
        X = as_matrix(X, type(self).__name__, columns, min_rows=0 if moments.n else 1)
        self._check_params(X.shape[1])
        moments.update(X)
        return self._adopt(None, getattr(self, "_provenance", {}) | {"date": _now(), "version": __version__}, moments)

    @classmethod
    def from_moments(
        cls,
        moments: Moments,
        n_components: int | None = None,
        beta: float = 1.0,
        gamma: float = 1.0,
        shrinkage: str | float | None = None,
        eigenvalue_floor: float = 1e-6,
        provenance: Mapping[str, Any] | None = None,
    ) -> Whitening:
        """A whitening from a summary, without the rows.

        Args:
          moments: What `Moments` gathered; not kept and not changed.
          n_components, beta, gamma, shrinkage, eigenvalue_floor: As in the constructor.
          provenance: Facts to be saved with it, such as model and pooling; added to those of the moments.

        Returns:
          The fitted estimator.

        Raises:
          InputError: Empty moments, or a parameter that cannot be.
        """
        result = cls(n_components, beta, gamma, shrinkage, eigenvalue_floor)
        if moments.n == 0:
            raise InputError("These moments are empty: update them with rows first.")
        result._check_params(len(moments.mean))
        state = Decomposition.of(moments)
        return result._adopt(state, {**moments.provenance, **(provenance or {})})._warn(state)

    def with_params(self, **changes: Any) -> Whitening:
        """Another whitening of the same fit; the eigendecomposition is shared, so that it costs nothing.

        Args:
          **changes: Constructor arguments that differ.

        Returns:
          A fitted estimator.

        Raises:
          InputError: An unknown name, or a value that cannot be.
          NotFittedError: Nothing was fitted yet.
        """
        state = self._fitted()
        result = type(self)(**self.get_params()).set_params(**changes)
        result._check_params(len(state.mean))
        return result._adopt(state, self._provenance)._warn(state, rows=False)

    def tune(self, pairs: tuple[Any, Any, Any], **grid: Any) -> Whitening:
        """The same fit with the k, β and γ that score best on a few scored pairs.

        Args:
          pairs: Raw vectors of the first and the second sentences, and their human scores: `tuning.ScoredPairs`.
          **grid: `ks`, `betas`, `gammas` of `jaxwhiten.whitening.tuning.tune`, which also gives the whole grid.

        Returns:
          A fitted estimator. Where no whitening beats the raw vectors it is the best all the same; `tuning.tune` warns.

        Raises:
          InputError: An empty grid, no pairs, or pairs of another width.
          NotFittedError: Nothing was fitted yet.
        """
        from jaxwhiten.whitening.tuning import ScoredPairs, tune

        best = tune(self, ScoredPairs(*pairs), **grid).best
        return self.with_params(n_components=best.n_components, beta=best.beta, gamma=best.gamma)

    def _adopt(
        self, state: Decomposition | None, provenance: Mapping[str, Any], moments: Moments | None = None
    ) -> Whitening:
        with _LOCK:
            self._state, self._moments, self._cache = state, moments, dict[str, Any]()
            self._provenance = {"date": _now(), "version": __version__, **provenance}
        return self

    def _warn(self, state: Decomposition, rows: bool = True) -> Whitening:
        d = len(state.mean)
        if rows and state.n < _ROWS_PER_COLUMN * d:
            warnings.warn(
                f"Whitening {d} columns was fitted on {state.n} rows, fewer than {_ROWS_PER_COLUMN} a column: the "
                "small eigenvalues are unreliable. Give more rows, fewer components or shrinkage='ledoit-wolf'.",
                WhiteningWarning,
                stacklevel=3,
            )
        k, rank = self.n_components, state.rank(self.eigenvalue_floor)
        if k is not None and k > rank and not self._coefficient(state):
            warnings.warn(
                f"n_components={k} is more than the rank of the data, {rank}: the last {k - rank} columns carry no "
                "information. Take fewer.",
                WhiteningWarning,
                stacklevel=3,
            )
        return self

    def _fitted(self) -> Decomposition:
        state = getattr(self, "_state", None)
        if state is not None:
            return state
        with _LOCK:
            moments = getattr(self, "_moments", None)
            if moments is None:
                raise not_fitted(self)
            if self._state is None:
                self._state = Decomposition.of(moments)
                self._warn(self._state)
            return self._state

    def transform(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Whitens rows: (x − βμ) U Λ^(−γ/2), the first k columns.

        Args:
          X: [n, d] rows.

        Returns:
          float32 for rows in float32 or of at most 16 bits, float64 for others.

        Raises:
          NotFittedError: Nothing was fitted yet.
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: Not a matrix of numbers, or another number of columns.
        """
        state = self._fitted()
        return self._map("forward", state)(as_matrix(X, type(self).__name__, columns=len(state.mean)))

    def inverse_transform(self, Z: Any) -> Float[np.ndarray, "n d"]:
        """The rows that `transform` maps to Z; with k < d those nearest to βμ.

        Args:
          Z: [n, k] whitened rows.

        Returns:
          Rows in the dtype `transform` would choose for Z.

        Raises:
          NotFittedError: Nothing was fitted yet.
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: Not a matrix of numbers, or not k columns.
        """
        state = self._fitted()
        inverse = self._map("inverse", state)
        return inverse(as_matrix(Z, type(self).__name__, columns=len(inverse.matrix)))

    def fit_transform(self, X: Any, y: Any = None) -> Float[np.ndarray, "n k"]:
        """`fit`, then `transform` of the same rows."""
        return self.fit(X).transform(X)

    @property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and bias with transform(X) = X W + bias, computed in float64 and rounded once."""
        state = self._fitted()
        scales = self._scales(state)
        W = state.vectors[:, : len(scales)] * scales
        return W.astype(np.float32), (-self.beta * (state.mean @ W)).astype(np.float32)

    def _scales(self, state: Decomposition) -> np.ndarray:
        """Λ^(−γ/2) of the columns kept, eigenvalues floored."""
        self._check_params(len(state.mean))
        return state.scales(self.gamma, self._coefficient(state), self.eigenvalue_floor)[: self.n_components]

    def _map(self, direction: str, state: Decomposition) -> Affine:
        """The map for the present parameters; kept until they change."""
        key = (state, *self.get_params().values())
        found = self._cache.get(direction)
        if found is not None and found[0] == key:
            return found[1]
        scales = self._scales(state)
        vectors, centre = state.vectors[:, : len(scales)], self.beta * state.mean
        if direction == "forward":
            result = Affine(centre, vectors * scales, np.zeros(len(scales)))
        else:
            result = Affine(np.zeros(len(scales)), (vectors / scales).T, centre)
        self._cache[direction] = (key, result)
        return result

    @property
    def n_features_in_(self) -> int:
        """d, the columns of the input."""
        moments = getattr(self, "_moments", None)
        return len(self._fitted().mean if moments is None else moments.mean)

    @property
    def n_samples_seen_(self) -> int:
        """Rows fitted on."""
        moments = getattr(self, "_moments", None)
        return self._fitted().n if moments is None else moments.n

    @property
    def mean_(self) -> Float64[np.ndarray, " d"]:
        """μ."""
        return self._fitted().mean

    @property
    def components_(self) -> Float64[np.ndarray, "d d"]:
        """U: eigenvectors as columns, in the order of `eigenvalues_`."""
        return self._fitted().vectors

    @property
    def eigenvalues_(self) -> Float64[np.ndarray, " d"]:
        """Eigenvalues of the covariance, descending, after shrinkage and before the floor."""
        state = self._fitted()
        return state.shrunk(self._coefficient(state))

    @property
    def shrinkage_(self) -> float:
        """The shrinkage coefficient in use; 0 without shrinkage."""
        return self._coefficient(self._fitted())

    @property
    def rank_(self) -> int:
        """Eigenvalues above the floor before shrinkage, at most n − 1."""
        return self._fitted().rank(self.eigenvalue_floor)

    @property
    def provenance(self) -> dict[str, Any]:
        """A new dict: model, pooling, n, rank, dimension, date, version, and what else was given."""
        state = self._fitted()
        facts = {"n": state.n, "rank": state.rank(self.eigenvalue_floor), "dimension": len(state.mean)}
        return {"model": None, "pooling": None, **self._provenance, **facts}

    def _coefficient(self, state: Decomposition) -> float:
        if self.shrinkage is None:
            return 0.0
        return state.ledoit_wolf() if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def save(self, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None) -> None:
        """Writes a safetensors file that serves every k, β, γ and shrinkage, and further `partial_fit`.

        Args:
          path: The file to write.
          provenance: Further JSON-representable facts, such as model and pooling.

        Raises:
          NotFittedError: Nothing was fitted yet.
        """
        state = self._fitted()
        params = {name: getattr(value, "item", lambda v=value: v)() for name, value in self.get_params().items()}
        header = {"params": params, "provenance": self.provenance | dict(provenance or {})}
        io.save_tensors(path, state.tensors(), kind="whitening", header=header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Whitening:
        """Reads a file written by `save` and checks its contents.

        Args:
          path: The file to read.

        Returns:
          The fitted estimator.

        Raises:
          FormatError: Missing, damaged, or numbers that cannot be a whitening.
        """
        tensors, header = io.load_tensors(path, kind="whitening")
        try:
            state = Decomposition.from_tensors(tensors)
            provenance = dict(header["provenance"])
            result = cls().set_params(**header["params"])
            with np.errstate(all="ignore"):
                problem = state.problem()
            if problem is None:
                result._check_params(len(state.mean))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: not complete as a whitening file ({error}). Write it again.") from error
        if problem:
            raise FormatError(f"{path}: {problem}; this is not a whitening. Write the file again.")
        return result._adopt(state, provenance)

    def _check_params(self, d: int) -> None:
        k, shrinkage = self.n_components, self.shrinkage
        if k is not None and not (is_number(k, numbers.Integral) and 1 <= k <= d):
            raise InputError(
                f"n_components must be None or an integer from 1 to the {d} columns of the input, got {k!r}."
            )
        for name in ("beta", "gamma", "eigenvalue_floor"):
            if not (is_number(getattr(self, name)) and 0 <= getattr(self, name) <= 1):
                raise InputError(f"{name} must be a number from 0 to 1, got {getattr(self, name)!r}.")
        if isinstance(shrinkage, str):
            if shrinkage not in _SHRINKAGES:
                raise unknown_name("shrinkage", shrinkage, _SHRINKAGES)
        elif shrinkage is not None and not (is_number(shrinkage) and 0 <= shrinkage <= 1):
            raise InputError(f"shrinkage must be None, 'ledoit-wolf' or a number from 0 to 1, got {shrinkage!r}.")

    def __getstate__(self) -> dict[str, Any]:  # copies and scikit-learn's workers make their own device constants
        return self.__dict__ | ({"_cache": {}} if "_cache" in self.__dict__ else {})

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_state", None) is not None or getattr(self, "_moments", None) is not None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
