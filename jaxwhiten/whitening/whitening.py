"""Whitening of sentence vectors: x̃ = (x − βμ) U Λ^(−γ/2), cut to the first k columns.

Rows are summed as `Moments`. Their covariance Σ = U Λ Uᵀ, with divisor n, is decomposed once in float64 on the host.
Another k, β, γ or shrinkage only rescales the columns of U.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import InputError, check_name, warn
from jaxwhiten.options import SHRINKAGES, WhiteningParameters, check_bounds
from jaxwhiten.runtime import hardware
from jaxwhiten.terminal import counted
from jaxwhiten.types import Fields, Float, Float32, Float64, Json, RowsLike
from jaxwhiten.vectors import space_of
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Estimator, parameters, stamp
from jaxwhiten.whitening.moments import Moments

# Measured on vectors of a tuned and an un-tuned encoder, fitted on 300 to 6,000 rows: with this many rows, the
# variances of fresh rows along the kept columns are within a third of the fitted ones. The second limit is for flat
# spectra.
_ROWS_PER_COLUMN = 10
_ROWS_PER_EFFECTIVE = 5
_DECOMPOSED = ("mean_", "components_", "variances_", "noise_")


class WhiteningWarning(UserWarning):
    """A whitening was fitted on too little data, or on data that it cannot scale well."""


@parameters
class Whitening(Estimator, WhiteningParameters):
    """Whitening with the parameters β and γ, as a scikit-learn estimator.

    An eigenvalue below `eigenvalue_floor` times the largest is replaced by that floor, so that directions without
    variance stay small and nothing is divided by zero. A variance below (eps · mean)², where eps is the precision of
    the rows' dtype, is rounding and becomes zero. Rows that are all equal map to zero. Changed parameters act at once,
    without another fit. Threads may share a fitted one; one thread at a time may fit it.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> np.allclose(np.cov(Whitening().fit_transform(rows).T, ddof=0), np.eye(8), atol=1e-4)
    True

    Args:
      n_components: k, the number of columns kept; None keeps all.
      beta: Fraction of the mean to subtract, 0 to 1.
      gamma: Exponent of the scaling, 0 to 1. beta=1, gamma=1 is whitening; beta=1, gamma=0 is PCA; beta=gamma=0 with
        all columns leaves every cosine unchanged.
      shrinkage: None, `"oas"`, or a number a in [0, 1]: the covariance becomes (1 − a) Σ + a (trace Σ / d) I.
      eigenvalue_floor: Relative floor, 0 to 1. The default is above the rounding noise that sums in float32 leave in
        null directions. A value below d times the float64 precision is raised to it.

    Attributes:
      n_samples_seen_: n, the number of rows fitted on.
      n_features_in_: d, the columns of the input.
      mean_: μ, float64 [d].
      components_: U, float64 [d, d]: eigenvectors as columns, the largest entry of each positive.
      variances_: Λ, float64 [d]: the variances along `components_`, descending, before shrinkage and floor.
      noise_: The variance that rounding may leave along each of `components_`, float64 [d].

    References:
      Su, Cao, Liu, Ou: Whitening Sentence Representations for Better Semantics and Faster Retrieval (2021), section 3.
      The two knobs: Su, https://kexue.fm/archives/9079.
      Chen, Wiesel, Eldar, Hero: Shrinkage algorithms for MMSE covariance estimation (2010), equation 23, for `"oas"`.
    """

    name = "whitening"

    def fit(self, X: RowsLike, y: object = None) -> Whitening:
        """Learns from rows and forgets earlier ones.

        Args:
          X: [n, d] rows; a memory map is read block by block. If they know their space, it is recorded.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
        """
        started = time.perf_counter()
        space = space_of(X)
        X = as_matrix(X, "Whitening", min_rows=1)
        self._check_params(X.shape[1])
        self._decompose(Moments().update(X))
        return self._fitted_on(len(X), X.shape[1], stamp(time.perf_counter() - started), space)

    def _add_rows(self, X: np.ndarray, more: bool) -> None:
        self._pending: Moments | None = (self._moments() if more else Moments()).update(X)
        self._made: list[tuple[Json, Affine]] = []  # the map, with its parameters, once it is asked for
        for name in _DECOMPOSED:
            vars(self).pop(name, None)

    @classmethod
    def from_moments(cls, moments: Moments, *, provenance: Fields | None = None, **params: Any) -> Whitening:
        """Fits a whitening from moments, without the rows.

        Args:
          moments: The moments of the rows; not kept and not changed.
          provenance: Facts to save with the whitening, such as model and pooling, added to the facts of the moments.
          **params: Arguments of the constructor.
        """
        result = cls().set_params(**params)
        if not moments.n:
            raise InputError("These moments are empty: add rows with update first.")
        d = len(moments.mean)
        result._check_params(d)
        result._decompose(moments)
        return result._fitted_on(moments.n, d, {**stamp(), **moments.provenance, **(provenance or {})})

    def _decompose(self, moments: Moments) -> None:
        """Sets what the eigendecomposition of the covariance gives, and warns of data that it cannot scale well."""
        n = moments.n
        mean = moments.mean.copy()
        if 0 < np.abs(mean).max() < np.sqrt(np.finfo(np.float64).tiny):
            raise InputError(f"The rows are near {mean[0]:.0e}, whose squares underflow float64: rescale them.")
        variances, components, noise = eigen(moments)
        self._learn(n, mean, components, variances, noise)
        if self.gamma and not self.shrinkage_:  # at 0 nothing is scaled
            _warn_of_few_rows(variances, n, int(self.n_components or len(mean)))
        self._warn_of_rank()
        columns = np.square(components) @ variances
        if 0 < np.median(columns) < _floor(columns.max(keepdims=True), float(self.eigenvalue_floor)):
            warn(
                f"Column {np.argmax(columns)} has {columns.max() / np.median(columns):.0e} times the variance of the"
                " median one, so that most columns lie below eigenvalue_floor. Rescale the columns, or remove outlying"
                " rows.",
                WhiteningWarning,
            )

    def _learn(
        self,
        n: int,
        mean: Float64[np.ndarray, " d"],
        components: Float64[np.ndarray, "d d"],
        variances: Float64[np.ndarray, " d"],
        noise: Float64[np.ndarray, " d"],
    ) -> None:
        """Sets what was learned from n rows."""
        self._made = []
        self.n_samples_seen_ = n
        self.mean_ = mean
        self.components_ = components
        self.variances_ = variances
        self.noise_ = noise
        self._pending = None  # last, for threads that need the others

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # The first use after `partial_fit`. Threads that race here compute the same arrays.
            if name in _DECOMPOSED and (pending := vars(self).get("_pending")) is not None:
                self._decompose(pending)
            if name in vars(self):
                return vars(self)[name]
            return super().__getattr__(name)

    def _moments(self) -> Moments:
        """New moments of the rows of the fit."""
        if self._pending is not None:
            return Moments().merge(self._pending)
        M2 = (self.components_ * (self.variances_ * self.n_samples_seen_)) @ self.components_.T
        return Moments(self.n_samples_seen_, self.mean_.copy(), (M2 + M2.T) / 2)

    def with_params(self, **changes: Any) -> Whitening:
        """A whitening of the same fit with other parameters; both share the decomposition, so that it costs nothing."""
        result = self._about(self.mean_).set_params(**changes)
        result._check_params(self.n_features_in_)
        result._warn_of_rank()
        return result

    def with_mean(self, mean: Float[np.ndarray, " d"]) -> Whitening:
        """A whitening with the axes and scales of this fit, centered at the mean of another corpus."""
        d = self.n_features_in_
        mean = np.array(mean, np.float64)
        if mean.shape != (d,) or not np.isfinite(mean).all():
            raise InputError(f"Expected a mean of {d} finite numbers, got an array of shape {mean.shape}.")
        return self._about(mean)

    def _about(self, mean: np.ndarray) -> Whitening:
        result = copy.copy(self)
        result.mean_ = mean
        result._made = []
        return result

    @property
    def affine(self) -> Affine:
        """The map of `transform` for the current parameters, which subtracts βμ first."""
        mean = self.mean_  # of the fit, which may be pending
        params = self.get_params()
        for made_for, affine in self._made:
            if made_for == params:
                return affine
        self._check_params(len(mean))
        scales = self.scales_
        affine = Affine(self.beta * mean, self.components_[:, : len(scales)] * scales)
        self._made[:] = [(params, affine)]  # in place: `transform` leaves the attributes as they are
        return affine

    def _apply(self, X: np.ndarray) -> np.ndarray:
        return self.affine(X)

    def inverse_transform(self, Z: object) -> Float[np.ndarray, "n d"]:
        """The rows that `transform` maps to Z [n, k]; for k < d, of all such rows the ones nearest to βμ.

        Raises:
          InputError: Z does not have k columns.
        """
        shift, scales = self.beta * self.mean_, self.scales_
        inverse = Affine(np.zeros(len(scales)), (self.components_[:, : len(scales)] / scales).T, shift)
        return inverse(as_matrix(Z, "Whitening", columns=len(scales)))

    @property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and bias with transform(X) = X W + bias, computed in float64 and rounded to float32 once."""
        return self.affine.kernel

    # These follow from the fit and the current parameters.

    @property
    def shrinkage_(self) -> float:
        """The shrinkage coefficient in use; 0 without shrinkage."""
        if isinstance(self.shrinkage, str):
            return oas(self.variances_, self.n_samples_seen_)
        return float(self.shrinkage or 0.0)

    @property
    def eigenvalues_(self) -> Float64[np.ndarray, " d"]:
        """Eigenvalues of (1 − a) Σ + a (trace Σ / d) I, descending: `variances_` after shrinkage, before the floor."""
        variances, shrinkage = self.variances_, self.shrinkage_
        return (1 - shrinkage) * variances + shrinkage * variances.mean()

    @property
    def scales_(self) -> Float64[np.ndarray, " k"]:
        """Λ^(−γ/2) for the kept columns, after the floor; ones if all eigenvalues are zero."""
        values = self.eigenvalues_
        floor = _floor(values, float(self.eigenvalue_floor))
        floored = np.maximum(values, np.maximum(floor, self.noise_))[: self.n_components]
        if floor > 0:
            return floored ** (-float(self.gamma) / 2)
        return np.ones_like(floored)

    @property
    def rank_(self) -> int:
        """The number of eigenvalues above the floor before shrinkage, at most n − 1."""
        floor = _floor(self.variances_, float(self.eigenvalue_floor))
        above = self.variances_ > np.maximum(floor, self.noise_)
        return min(int(above.sum()), self.n_samples_seen_ - 1)

    def _facts(self) -> Json:
        return super()._facts() | {"rank": self.rank_}

    def tensors(self) -> dict[str, np.ndarray]:
        arrays = {"mean": self.mean_, "components": self.components_, "eigenvalues": self.variances_}
        return {"n": np.array([self.n_samples_seen_], np.int64), **arrays, "noise": self.noise_}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        mean, components, variances, noise = io.take(
            tensors, "float64", mean=(d,), components=(d, d), eigenvalues=(d,), noise=(d,)
        )
        self._check_params(d)
        n = int(tensors["n"].item())
        io.within("n", n, 1)
        io.within("eigenvalues", variances, 0.0)
        if (np.diff(variances) > 0).any():
            raise ValueError("eigenvalues: not descending")
        squares = np.einsum("ij,ij->j", components, components)
        io.within("squared lengths of the components", squares, 1 - 1e-6, 1 + 1e-6)
        self._learn(n, mean, components, variances, noise)
        self._fitted_on(n, d, {})

    def _check_params(self, d: int) -> None:
        if isinstance(self.shrinkage, str):
            check_name("shrinkage", self.shrinkage, SHRINKAGES)
        check_bounds(self, n_components=d)

    def _warn_of_rank(self) -> None:
        k = self.n_components
        d = len(self.mean_)
        rank = self.rank_
        if self.shrinkage_:
            return
        if self.gamma and 4 * rank < min(d, self.n_samples_seen_ - 1):
            what = f"{d - rank} of {d} directions vary too little to be whitened: the rank of the data is {rank}"
            most = f", or use n_components={rank}" if rank else ""
            warn(
                f"{what}. Remove rows that are much longer than the others, and repeated rows{most}.", WhiteningWarning
            )
        elif k is not None and k > rank:
            last = f"{k - rank} columns carry" if k - rank > 1 else "column carries"
            warn(
                f"n_components={k!r} is more than the rank of the data, {rank}: the last {last} no"
                " information. Use fewer.",
                WhiteningWarning,
            )


def eigen(moments: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues of the covariance, descending; eigenvectors as columns; the rounding noise along each.

    A variance below (eps · mean)² is rounding of rows of that precision, and becomes zero. The decomposition is made on
    the host in float64 and on one thread, so that it depends neither on the accelerator nor on the number of cores.
    """
    import jax
    import jax.numpy as jnp
    import scipy.linalg  # noqa: F401 (JAX uses its BLAS, whose threads can be set once it is there)

    sigma = moments.M2 / moments.n
    noise = np.square(moments.eps * moments.mean)
    constant = np.diagonal(sigma) < noise
    sigma[constant], sigma[:, constant] = 0.0, 0.0
    try:
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS without the CPU
        host = None
    with hardware.one_blas_thread(), jax.enable_x64(True):
        values, vectors = map(np.asarray, jnp.linalg.eigh(jax.device_put(sigma, host)))
        values = np.where(values > len(values) * np.finfo(np.float64).eps * values[-1], values, 0.0)
        values[: max(0, len(values) + 1 - moments.n)] = 0.0  # n rows vary along n − 1 axes
        vectors = np.hstack([echelon(vectors[:, values == 0]), vectors[:, values > 0]])
        noise = noise @ np.square(vectors)
    values = np.where(values < noise, 0.0, values)
    order = np.argsort(values, kind="stable")[::-1]
    values = values[order]
    vectors = vectors[:, order]
    noise = noise[order]
    largest = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(len(values))]
    return values, np.ascontiguousarray(vectors * np.where(largest < 0, -1.0, 1.0)), noise


def echelon(basis: Float64[np.ndarray, "d m"]) -> Float64[np.ndarray, "d m"]:
    """The orthonormal basis of the same space, up to signs, whose i-th vector has zeros in its first i entries.

    >>> bool(np.allclose(np.abs(echelon(np.array([[0.6, 0.8], [-0.8, 0.6]]))), np.eye(2)))
    True
    """
    rows: np.ndarray = np.linalg.qr(basis.T)[1]
    return rows.T


def oas(variances: Float64[np.ndarray, " d"], n: int) -> float:
    """The shrinkage coefficient of the Oracle Approximating Shrinkage estimator, from the eigenvalues and n."""
    d = len(variances)
    squares = float(variances @ variances)
    square = float(variances.sum()) ** 2
    distance = (n + 1 - 2 / d) * (squares - square / d)
    if distance > 0:
        return min(((1 - 2 / d) * squares + square) / distance, 1.0)
    return 1.0


def unseen_variances(whitening: Whitening) -> Float64[np.ndarray, " d"]:
    """The variances along a whitening's axes to expect of further rows of the same kind, falling.

    λ / |1 − c + c λ g(λ)|² with c = d / n and g the mean of 1 / (λ − λ_j), smoothed at the scale λ_j / √n; those that
    rise are averaged. For n < d, the sum over the axes without variance is n times the harmonic mean of the other
    variances. No variance is less than OAS gives to axes without any: a pair of rows that are nearly equal makes the
    harmonic mean small. Rows that vary along less than half as many axes as n rows can vary along no others.

    References:
      Ledoit, Péché 2011, "Eigenvectors of some large sample covariance matrix ensembles". Bun, Bouchaud, Potters 2017,
      "Cleaning large correlation matrices: tools from random matrix theory", for the smoothing. Ledoit, Wolf 2020,
      "Analytical nonlinear shrinkage of large-dimensional covariance matrices", for n < d.
    """
    from scipy.optimize import isotonic_regression

    n = whitening.n_samples_seen_
    rank = whitening.rank_
    unseen = np.zeros_like(whitening.variances_)
    if not rank:
        return unseen
    d = rank if 2 * rank < n else len(unseen)
    fitted = whitening.variances_[:d]
    least = oas(fitted, n) * fitted.mean()
    rows = n - 1 if n > d else rank  # repeated rows tell nothing
    values = fitted[:rank] * n / (n - 1)
    smoothed = values * (1 + 1j / np.sqrt(rows))
    g = np.array([(1 / (value - smoothed)).sum() for value in values]) / d + (d - rank) / (d * values)
    unseen[:rank] = values / np.abs(1 + d / rows * (values * g - 1)) ** 2
    if rows < d:
        rest = min(rank**2 / (1 / values).sum(), 0.95 * values.sum())
        unseen *= (values.sum() - rest) / unseen.sum()
        unseen[rank:d] = rest / (d - rank)
    unseen[:d] = isotonic_regression(np.maximum(unseen[:d], least), increasing=False).x
    return unseen


def effective_dimensions(variances: Float64[np.ndarray, " d"]) -> Float64[np.ndarray, " d"]:
    """For every k, the effective number of directions at the scale of direction k: Σ_j min(1, λ_j / λ_k).

    It is d if all variances are equal, and near k if the variances after k are small.
    """
    after = np.cumsum(variances[::-1])[::-1]  # from the smallest on, so that nothing is left after the last
    rest = after - variances
    counts = np.arange(1, len(variances) + 1)
    return counts + np.divide(rest, variances, out=np.zeros_like(rest), where=variances > 0)


def _floor(values: np.ndarray, relative: float) -> float:
    """`relative` times the largest value, and at least the resolution of float64."""
    return max(relative, len(values) * np.finfo(np.float64).eps) * float(values[0])


def alike(n: int) -> str:
    """Why nothing can be fitted on n vectors without any variance, and what to do.

    >>> alike(1)
    'one vector has no variance. Use more texts.'
    """
    if n == 1:
        return "one vector has no variance. Use more texts."
    return f"the {n:,} vectors are identical up to rounding. Use texts that differ."


def _warn_of_few_rows(variances: np.ndarray, n: int, k: int) -> None:
    """Warns if a whitening to k columns was fitted on too few rows to estimate their variances."""
    d = len(variances)
    effective = effective_dimensions(variances)
    needed = np.maximum(_ROWS_PER_COLUMN * np.arange(1, d + 1), np.ceil(_ROWS_PER_EFFECTIVE * effective))
    if n >= needed[k - 1]:
        return
    few = f"{_ROWS_PER_COLUMN} per column{' kept' if k < d else ''}"
    if n >= _ROWS_PER_COLUMN * k:
        few = f"{_ROWS_PER_EFFECTIVE} for each of the {effective[k - 1]:.0f} columns of about that variance"
    most = int(np.count_nonzero(needed <= n))
    fewer = f", or keep at most {counted(most, 'columns')}: n_components={most}" if most else ""
    what = f"A whitening {'of' if k == d else f'to {k} of'} {d} columns"
    warn(
        f"{what} was fitted on {counted(n, 'rows')}, fewer than {few}:"
        f" its variance estimates are unreliable. Use at least {needed[k - 1]:.0f} rows{fewer}.",
        WhiteningWarning,
    )
