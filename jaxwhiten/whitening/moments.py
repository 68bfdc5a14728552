"""Mean and covariance of any number of rows in O(d²) memory: reduced block by block, merged exactly in float64.

Every block of rows is shifted by an approximate centre and reduced to a few sums (`reduction.py`); from these, in
float64, follow its mean, its centred second moments, and the third and fourth powers that Ledoit-Wolf shrinkage needs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float64, Shaped

from jaxwhiten import io
from jaxwhiten.arrays import as_matrix
from jaxwhiten.errors import FormatError, InputError, MismatchError
from jaxwhiten.whitening.reduction import BlockSums, block_sums

_OUTER_ROWS = 64


def moments_of(block: BlockSums) -> Moments:
    """Moves the sums of a block from its approximate centre to its mean."""
    rows, sums, centre, scale, shares = block
    if not shares.n:
        return Moments()
    n = shares.total * shares.largest
    vectors, squares = (shares.largest * np.asarray(x, np.float64) for x in (sums.vectors, sums.squares))
    with np.errstate(all="ignore"):
        total, weighted = vectors[0] / scale, vectors[1] / scale**3
        square, fourth = squares[0] / scale**2, squares[1] / scale**4
        product = np.asarray(sums.product)
        M2 = np.add(product, product.T, dtype=np.float64)  # a device's product is not symmetric to the last bit
        M2 *= 0.5 * shares.largest / scale**2
        shift = total / n
        size = shift @ shift
        M2e = _times(M2, shift)
        cubic = weighted - 2 * M2e + size * total + shift * (2 * (shift @ total) - square - n * size)
        quartic = fourth + 4 * (shift @ M2e) + n * size**2 + 2 * size * square
        quartic -= 4 * (shift @ weighted + size * (shift @ total))
        _add_outer(M2, shift * np.sqrt(n), -1.0)
        np.fill_diagonal(M2, np.maximum(np.diagonal(M2), 0.0))  # squares that vanished in float32
        mean = centre.astype(np.float64) + shift
        result = Moments(shares.n, mean, M2, cubic, max(0.0, float(quartic)), weights=shares.sums)
    if not result._finite():
        raise InputError(
            f"Rows {rows.start} to {rows.stop - 1} hold values or weights too large for float64 sums of fourth powers:"
            " scale the input down. Nothing was changed."
        )
    return result


def _checked_weights(weights: Any, n: int) -> np.ndarray:
    """The weights in float64."""
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"weights must be {n} numbers, one per row ({error}).") from error
    if found.shape != (n,):
        raise InputError(f"weights must be {n} numbers, one per row; got an array of shape {found.shape}.")
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise InputError(
            f"Weight {first} is {found[first]:g}: weights must be finite and not below 0. Nothing was changed."
        )
    with np.errstate(over="ignore", under="ignore"):
        if n and found.any() and not np.finfo(np.float64).tiny <= found @ found < np.inf:
            raise InputError("The squares of the weights leave float64: scale them. Nothing was changed.")
    return found


def weights_problem(weights: tuple[float, ...]) -> str | None:
    """What makes Σ w and Σ w² impossible, or None; they are empty where no row had a weight."""
    if weights and not (len(weights) == 2 and np.isfinite(weights).all() and min(weights) > 0):
        return f"the sums of the weights are {weights}"
    return None


def _times(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """matrix · v without BLAS, whose threads, once woken, keep a core busy that the eigendecomposition needs."""
    return np.einsum("ij,j->i", matrix, v)


def _add_outer(matrix: np.ndarray, v: np.ndarray, sign: float) -> None:
    """matrix += sign · vᵀv in place, exactly symmetric."""
    for start in range(0, len(v), _OUTER_ROWS):
        rows = slice(start, start + _OUTER_ROWS)
        matrix[rows] += (sign * v[rows, None]) * v


@dataclasses.dataclass(eq=False, repr=False)
class Moments:
    """Count, mean and centred second moments of rows: a summary that merges exactly.

    `Moments()` starts empty. `update` and `merge` change it in place and return it. Summaries of parts of a corpus,
    made anywhere, merge to the summary of the whole, in any order. Rows may have weights: one of weight 2 counts as two
    rows of weight 1, which is that of rows without.

    Attributes:
      n: Rows seen, those of weight 0 left out.
      mean: float64 [d], their mean μ (empty while no row was seen).
      M2: float64 [d, d], Σ w (x−μ)ᵀ(x−μ).
      cubic: float64 [d], Σ w ‖x−μ‖² (x−μ); carried so that `quartic` merges exactly.
      quartic: Σ w ‖x−μ‖⁴; what Ledoit-Wolf shrinkage needs beyond the covariance.
      provenance: What `save` was told and `load` found.
      weights: Σ w and Σ w²; empty while no row had a weight.

    References:
      Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """

    n: int = 0
    mean: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    M2: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    cubic: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    quartic: float = 0.0
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    weights: tuple[float, ...] = ()

    def __repr__(self) -> str:
        weighted = f", effective_n={self.effective_n:.6g}" if self.weights else ""
        return f"Moments(n={self.n}{weighted}, d={len(self.mean)})"

    @property
    def weight(self) -> float:
        """Σ w: n where no row had a weight."""
        return self.weights[0] if self.weights else float(self.n)

    @property
    def effective_n(self) -> float:
        """(Σ w)² / Σ w², the rows of equal weight whose mean has as little variance; n where no row had a weight.

        References:
          Kish: Survey Sampling (1965), section 11.2.
        """
        return self.weights[0] ** 2 / self.weights[1] if self.weights else float(self.n)

    def update(self, block: Any, weights: Any = None) -> Moments:
        """Adds rows.

        Args:
          block: [n, d] rows in float16, bfloat16, float32, float64 or integers; a memory map is read block by block.
            Rows of at most 16 bits and float32 are reduced in float32, others in float64. n may be 0.
          weights: [n], how often each row counts, finite and none below 0; None for once. They need not be whole
            numbers.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it and nothing was changed.
          InputError: Not a matrix, values whose fourth powers leave float64, or a weight that cannot be, by its index.
          MismatchError: Another number of columns than before.
        """
        rows = as_matrix(block)
        return self.add(rows, None if weights is None else _checked_weights(weights, len(rows)))

    def add(self, X: Shaped[np.ndarray, "n d"], weights: Float64[np.ndarray, " n"] | None = None) -> Moments:
        """`update` with rows that `arrays.as_matrix` has checked, and weights that were checked."""
        self._check_dimension(X.shape[1])
        parts = map(moments_of, block_sums(X, jax.local_devices(), weights))
        total = next(parts, Moments())
        for part in parts:
            total.merge(part)
        return self.merge(total)

    def merge(self, other: Moments) -> Moments:
        """Adds the rows another summary stands for; `other` is left as it is.

        Args:
          other: Moments of the same number of columns, or empty.

        Returns:
          This object.

        Raises:
          MismatchError: Another number of columns.
        """
        if other.n == 0:
            return self
        self._check_dimension(len(other.mean))
        if self.n == 0:
            self.n, self.mean, self.M2 = other.n, other.mean.copy(), other.M2.copy()
            self.cubic, self.quartic, self.weights = other.cubic.copy(), other.quartic, other.weights
            return self
        a, b = self.weight, other.weight
        share = b / (a + b)
        delta = other.mean - self.mean
        cubic_a, quartic_a = self._powers_about(-delta * share)
        cubic_b, quartic_b = other._powers_about(delta * (1 - share))
        mean = self.mean + delta * share
        if self.weights or other.weights:
            self.weights = a + b, sum(m.weights[1] if m.weights else m.n for m in (self, other))
        self.M2 += other.M2
        _add_outer(self.M2, delta * np.sqrt(a * share), 1.0)
        self.n, self.mean = self.n + other.n, mean
        self.cubic, self.quartic = cubic_a + cubic_b, quartic_a + quartic_b
        return self

    def covariance(self, ddof: int = 0) -> Float64[np.ndarray, "d d"]:
        """The covariance matrix M2 / (n − ddof); of weighted rows M2 / (Σ w − ddof Σ w² / Σ w), as `numpy.cov`.

        Args:
          ddof: 0 for the paper's E[xᵀx] − μᵀμ, 1 for numpy's default.

        Returns:
          A new matrix.

        Raises:
          InputError: Not more than `ddof` rows were seen, or effective rows.
        """
        seen = min(self.n, self.effective_n)
        if seen <= ddof:
            raise InputError(f"A covariance with ddof={ddof} needs at least {ddof + 1} rows; {seen:g} were seen.")
        return self.M2 / (self.weight - ddof * self.weight / self.effective_n)

    def save(self, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None) -> None:
        """Writes a safetensors file with a JSON header of provenance.

        Args:
          path: The file to write.
          provenance: Further JSON-representable facts, such as model and pooling.
        """
        tensors = {name: getattr(self, name) for name in ("mean", "M2", "cubic")}
        tensors |= {"n": np.array([self.n], np.int64), "quartic": np.array([self.quartic])}
        facts: dict[str, Any] = {"n": self.n, "dimension": len(self.mean)}
        if self.weights:
            tensors["weights"] = np.array(self.weights)
            facts["effective_n"] = self.effective_n
        header = {"provenance": {**self.provenance, **(provenance or {}), **facts}}
        io.save_tensors(path, tensors, kind="moments", header=header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Moments:
        """Reads a file written by `save` and checks its contents.

        Args:
          path: The file to read.

        Returns:
          The moments, with their provenance.

        Raises:
          FormatError: Missing, damaged, or numbers that cannot be moments.
        """
        tensors, header = io.load_tensors(path, kind="moments")
        try:
            mean, M2, cubic = (tensors[name] for name in ("mean", "M2", "cubic"))
            n, quartic = int(tensors["n"].item()), float(tensors["quartic"].item())
            weights = tuple(map(float, tensors.get("weights", ())))
            result = cls(n, mean, M2, cubic, quartic, dict(header["provenance"]), weights)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: not complete as a moments file ({error}). Write it again.") from error
        with np.errstate(all="ignore"):
            problem = result._problem()
        if problem:
            raise FormatError(f"{path}: {problem}; these are not moments. Write the file again.")
        return result

    def _check_dimension(self, d: int) -> None:
        if self.n and d != len(self.mean):
            raise MismatchError(f"These moments are of rows with {len(self.mean)} columns; got {d}.")

    def _finite(self) -> bool:
        return bool(np.isfinite(self.quartic)) and all(np.isfinite(a).all() for a in (self.mean, self.M2, self.cubic))

    def _powers_about(self, e: np.ndarray) -> tuple[np.ndarray, float]:
        """`cubic` and `quartic` about the point μ − e in place of μ."""
        size, trace, M2e = e @ e, np.trace(self.M2), _times(self.M2, e)
        cubic = self.cubic + 2 * M2e + (trace + self.weight * size) * e
        quartic = self.quartic + 4 * (e @ M2e + e @ self.cubic) + self.weight * size**2 + 2 * size * trace
        return cubic, max(0.0, float(quartic))

    def _problem(self) -> str | None:
        """What makes these numbers impossible, or None."""
        d = len(self.mean) if self.mean.ndim == 1 else -1
        if any(a.dtype != np.float64 for a in (self.mean, self.M2, self.cubic)):
            return "tensors are not float64"
        if d < 0 or self.M2.shape != (d, d) or self.cubic.shape != (d,):
            return f"shapes do not fit: mean {self.mean.shape}, M2 {self.M2.shape}, cubic {self.cubic.shape}"
        if self.n < 0 or (self.n == 0) != (d == 0):
            return f"n is {self.n} with {d} columns"
        if problem := weights_problem(self.weights):
            return problem
        if not self._finite() or self.quartic < 0:
            return "a number is NaN, infinite or out of range"
        diagonal = np.diagonal(self.M2)
        if (diagonal < 0).any():
            return "a variance is negative"
        size = diagonal.max(initial=0.0)
        if not np.allclose(self.M2, self.M2.T, rtol=1e-9, atol=1e-12 * size):
            return "M2 is not symmetric"
        return None
