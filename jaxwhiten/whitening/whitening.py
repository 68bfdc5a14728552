"""Whitening of sentence vectors: x̃ = (x − βμ) U Λ^(−γ/2), the first k columns of it.

Σ = U Λ Uᵀ is the covariance with divisor n. One eigendecomposition, in float64 on the host, serves every k, β, γ and
shrinkage: they only rescale its columns.
"""

from __future__ import annotations

import dataclasses
import numbers
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import InputError, spelled, unknown_name
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.decomposition import Decomposition
from jaxwhiten.whitening.estimator import Learned, check_share, is_number, parameters, stamp
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.spectral import SpectralMethod, Spectrum

_SHRINKAGES = ("ledoit-wolf",)
# Measured on vectors of a tuned and an un-tuned encoder, fitted on 300 to 6,000 rows: with so many, the variances of
# fresh rows along the columns kept are within a third of those fitted. The second holds where the spectrum is flat.
_ROWS_PER_COLUMN, _ROWS_PER_EFFECTIVE = 10, 5


class WhiteningWarning(UserWarning):
    """A whitening that was fitted, but on less data than it should have."""


def _warn(message: str) -> None:
    """Warns at the line that called this package: a fit warns by itself, a partial fit when it is first used."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("jaxwhiten."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, WhiteningWarning, stacklevel=level)


def warn_of_few_rows(decomposition: Decomposition, k: int, remedy: str = "") -> None:
    """Warns where a whitening that keeps k columns was fitted on too few rows to scale them by their variances."""
    n, d, effective = decomposition.effective_n, len(decomposition.mean), decomposition.effective_dimensions()
    needed = np.maximum(_ROWS_PER_COLUMN * np.arange(1, d + 1), np.ceil(_ROWS_PER_EFFECTIVE * effective))
    if n >= needed[k - 1]:
        return
    few = f"{_ROWS_PER_COLUMN} per column{' kept' if k < d else ''}"
    if n >= _ROWS_PER_COLUMN * k:
        few = f"{_ROWS_PER_EFFECTIVE} for each of the {effective[k - 1]:.0f} columns of about that variance"
    most = int(np.count_nonzero(needed <= n))
    rows = "rows" if n == decomposition.n else f"effective rows, {decomposition.n:,} of unequal weights"
    fewer = f", or keep at most {most} columns: {remedy}{spelled('n_components', most)}" if most else ""
    _warn(
        f"A whitening {'of' if k == d else f'to {k} of'} {d} columns was fitted on {n:.0f} {rows}, fewer than {few}:"
        f" the variances it scales by are unreliable. Give more rows{fewer}."
    )


class Parameter(NamedTuple):
    """A parameter of `Whitening` as command lines and configs take it: `parse` makes its value of a text."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


def _number_or_name(text: str) -> str | float | None:
    try:
        return float(text)
    except ValueError:
        if text not in ("none", *_SHRINKAGES):
            raise
        return None if text == "none" else text


@parameters
class Whitening(SpectralMethod):
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

    name = "whitening"

    n_components: int | None = None
    beta: float = 1.0
    gamma: float = 1.0
    shrinkage: str | float | None = None
    eigenvalue_floor: float = 1e-6

    @staticmethod
    def parameters() -> tuple[Parameter, ...]:
        """The constructor's arguments, in their order."""
        return (
            Parameter("n_components", lambda text: None if text == "none" else int(text), None, "dimensions kept"),
            Parameter("beta", float, 1.0, "share of the mean subtracted, 0 to 1"),
            Parameter("gamma", float, 1.0, "power of the scaling, 0 to 1: 1 is whitening, 0 is PCA"),
            Parameter("shrinkage", _number_or_name, None, "'ledoit-wolf', a number from 0 to 1, or none"),
            Parameter("eigenvalue_floor", float, 1e-6, "least eigenvalue scaled by, as a share of the largest"),
        )

    @classmethod
    def from_moments(cls, moments: Moments, *, provenance: Mapping[str, Any] | None = None, **params: Any) -> Whitening:
        """A whitening from a summary, without the rows.

        Args:
          moments: What `Moments` gathered; not kept and not changed.
          provenance: Facts to be saved with it, such as model and pooling; added to those of the moments.
          **params: Arguments of the constructor.

        Returns:
          The fitted estimator.

        Raises:
          InputError: Empty moments, an unknown parameter, or one that cannot be.
        """
        result = cls().set_params(**params)
        if moments.n == 0:
            raise InputError("These moments are empty: update them with rows first.")
        result._check_params(len(moments.mean))
        decomposition = Decomposition.of(moments)
        facts = {**stamp(), **moments.provenance, **(provenance or {})}
        result._learned = Learned(Spectrum(None, decomposition), moments.n, len(moments.mean), facts)
        result._coefficient(decomposition)  # refused for unequal weights
        result._check_fit(decomposition)
        return result

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
        learned = self._fitted()
        decomposition = self._decompose(learned.state)
        result = type(self)(**self.get_params()).set_params(**changes)
        result._check_params(learned.d)
        result._learned = learned._replace(state=Spectrum(None, decomposition))
        result._warn_of_rank(decomposition)
        return result

    def with_mean(self, mean: Float[np.ndarray, " d"]) -> Whitening:
        """Another whitening with the axes and scales of this fit, about another mean.

        Args:
          mean: Of the vectors that will be whitened, where the fit is of another corpus.

        Returns:
          A fitted estimator.

        Raises:
          InputError: A mean of another width, or one that is not finite.
          NotFittedError: Nothing was fitted yet.
        """
        learned = self._fitted()
        mean = np.array(mean, np.float64)
        if mean.shape != (learned.d,) or not np.isfinite(mean).all():
            raise InputError(f"The mean must be {learned.d} finite numbers, got an array of shape {mean.shape}.")
        decomposition = dataclasses.replace(self._decompose(learned.state), mean=mean)
        result = type(self)(**self.get_params())
        result._learned = learned._replace(state=Spectrum(None, decomposition))
        return result

    def along_axes(self, moments: Moments) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, " d"]]:
        """Where other vectors lie in this fit: their mean, from this one's, and their variance along every axis.

        Args:
          moments: Of raw vectors.

        Raises:
          InputError: Moments of another width, or empty.
          NotFittedError: Nothing was fitted yet.
        """
        if not moments.n or len(moments.mean) != self.n_features_in_:
            raise InputError(f"Moments of {self.n_features_in_} columns are wanted, got {moments!r}.")
        axes = self.components_
        variances = np.einsum("ij,ij->j", axes, moments.covariance() @ axes)
        return (moments.mean - self.mean_) @ axes, np.maximum(variances, 0.0)

    def _check_fit(self, decomposition: Decomposition) -> None:
        if self.gamma:  # at 0 nothing is scaled
            warn_of_few_rows(decomposition, int(self.n_components or len(decomposition.mean)))
        self._warn_of_rank(decomposition)

    def _warn_of_rank(self, decomposition: Decomposition) -> None:
        k, rank = self.n_components, decomposition.rank(self.eigenvalue_floor)
        if k is not None and k > rank and not self._coefficient(decomposition):
            last = f"{k - rank} columns carry" if k - rank > 1 else "column carries"
            _warn(
                f"{spelled('n_components', k)} is more than the rank of the data, {rank}: the last {last} no"
                " information. Take fewer."
            )

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
        inverse = self._affine(self._fitted().state, inverse=True)
        return inverse(as_matrix(Z, type(self).__name__, columns=len(inverse.matrix)))

    @property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and bias with transform(X) = X W + bias, computed in float64 and rounded once."""
        W = self._affine(self._fitted().state).matrix
        return W.astype(np.float32), (-self.beta * (self.mean_ @ W)).astype(np.float32)

    def _scales(self, decomposition: Decomposition) -> np.ndarray:
        scales = decomposition.scales(self.gamma, self._coefficient(decomposition), self.eigenvalue_floor)
        return scales[: self.n_components]

    def _map(self, decomposition: Decomposition) -> Affine:
        scales = self._scales(decomposition)
        return Affine(self.beta * decomposition.mean, decomposition.vectors[:, : len(scales)] * scales)

    def _inverse_map(self, decomposition: Decomposition) -> Affine:
        scales = self._scales(decomposition)
        matrix = (decomposition.vectors[:, : len(scales)] / scales).T
        return Affine(np.zeros(len(scales)), matrix, self.beta * decomposition.mean)

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
    def shrinkage_(self) -> float:
        """The shrinkage coefficient in use; 0 without shrinkage."""
        return self._coefficient(self._decomposition)

    @property
    def scales_(self) -> Float64[np.ndarray, " k"]:
        """Λ^(−γ/2) of the columns kept, of floored eigenvalues."""
        return self._scales(self._decomposition)

    @property
    def rank_(self) -> int:
        """Eigenvalues above the floor before shrinkage, at most n − 1."""
        return self._decomposition.rank(self.eigenvalue_floor)

    def _facts(self) -> dict[str, Any]:
        weighted = self._decomposition.weights
        effective = {"effective_n": self._decomposition.effective_n} if weighted else {}
        return super()._facts() | {"rank": self.rank_, **effective}

    def _coefficient(self, decomposition: Decomposition) -> float:
        if self.shrinkage is None:
            return 0.0
        return decomposition.ledoit_wolf() if isinstance(self.shrinkage, str) else float(self.shrinkage)

    def _check_params(self, d: int) -> None:
        k, shrinkage = self.n_components, self.shrinkage
        if k is not None and not (is_number(k, numbers.Integral) and 1 <= k <= d):
            raise InputError(
                f"{spelled('n_components')} must be None or an integer from 1 to the {d} columns of the input, got"
                f" {k!r}."
            )
        for name in ("beta", "gamma", "eigenvalue_floor"):
            check_share(name, getattr(self, name))
        if isinstance(shrinkage, str):
            if shrinkage not in _SHRINKAGES:
                raise unknown_name("shrinkage", shrinkage, _SHRINKAGES)
        elif shrinkage is not None:
            check_share("shrinkage", shrinkage)
