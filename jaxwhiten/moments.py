"""Mean and covariance of any number of rows in O(d²) memory: reduced on the devices, merged exactly in float64.

Every block of rows is shifted by an approximate centre c and reduced to one Gram matrix AᵀA with A = [y, ‖y‖², 1],
y = x − c. That matrix holds the sums of y, yᵀy, y‖y‖² and ‖y‖⁴: all that is needed to move to the true mean, to merge
with other blocks, and to compute the Ledoit-Wolf coefficient later without another pass over the data.

Two routes compute the Gram matrix and are tested against each other. On accelerators, and wherever there is more than
one device, it is `jax.pmap` with `lax.psum` over all local devices. On a lone CPU device there is nothing to reduce
over, and XLA has no symmetric product there: BLAS `syrk` computes only half of the entries and is twice as fast.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float64
from scipy.linalg import blas

from jaxwhiten import io
from jaxwhiten.arrays import (
    BLOCK_BYTES,
    as_matrix,
    block_rows,
    device_block,
    first_nonfinite_row,
    nonfinite_error,
    release_pages,
    row_bucket,
    work_dtype,
)
from jaxwhiten.errors import FormatError, InputError, MismatchError

# The BLAS route copies nothing but one chunk, small enough to stay in the CPU's cache; its blocks can be larger.
_HOST_BLOCK_BYTES = 256 << 20
_CHUNK_BYTES = 8 << 20
_FILL_ROWS = 256
_SAMPLE_ROWS = 512
# Platforms that compute in float64; elsewhere float64 rows are centred on the host and reduced in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")


def _centre_and_scale(block: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, float]:
    """An approximate centre in the working dtype, and a power of two that keeps fourth powers within its range."""
    sample = block[:: max(1, len(block) // _SAMPLE_ROWS)].astype(np.float64)
    with np.errstate(all="ignore"):
        centre = sample.mean(axis=0).astype(dtype)
        spread = float(np.max(np.abs(sample - centre)))
    exponent = np.frexp(spread)[1] if np.isfinite(spread) else 0
    return centre, 1.0 if abs(exponent) <= 16 else float(np.ldexp(1.0, -int(np.clip(exponent, -120, 120))))


def _fill(a: np.ndarray, chunk: np.ndarray, centre: np.ndarray, scale: float) -> None:
    """Writes [y, ‖y‖²] of some rows into A, so few at a time that they are still in the CPU's cache for the norm."""
    d = len(centre)
    with np.errstate(all="ignore"):
        for start in range(0, len(chunk), _FILL_ROWS):
            part = a[start : start + _FILL_ROWS]
            y = part[:, :d]
            np.subtract(chunk[start : start + _FILL_ROWS], centre, out=y, casting="same_kind")
            if scale != 1.0:
                y *= centre.dtype.type(scale)
            np.vecdot(y, y, out=part[:, d])


def _gram_on_host(block: np.ndarray, centre: np.ndarray, scale: float) -> np.ndarray:
    """AᵀA of one block by BLAS: all cores write a chunk of A, then all of them multiply it."""
    dtype, d = centre.dtype, block.shape[1]
    rows = min(len(block), max(2048, _CHUNK_BYTES // (d * dtype.itemsize)))
    cores = min(os.cpu_count() or 1, 8)
    buffer = np.empty((rows, d + 2), dtype)
    buffer[:, -1] = 1.0
    gram = np.zeros((d + 2, d + 2), dtype)
    product = np.empty_like(gram)
    with ThreadPoolExecutor(cores) as pool, np.errstate(all="ignore"):
        for start in range(0, len(block), rows):
            chunk = block[start : start + rows]
            a = buffer[: len(chunk)]
            share = max(_FILL_ROWS, -(-len(chunk) // cores))
            parts = [slice(first, first + share) for first in range(0, len(chunk), share)]
            fills = [pool.submit(_fill, a[part], chunk[part], centre, scale) for part in parts[1:]]
            _fill(a[parts[0]], chunk[parts[0]], centre, scale)
            for fill in fills:
                fill.result()
            np.matmul(a.T, a, out=product)  # numpy sees the symmetry and calls syrk
            gram += product
    return gram


@functools.cache
def _device_gram(devices: tuple[jax.Device, ...]) -> Callable[..., jax.Array]:
    """The pmapped AᵀA, compiled once per (rows per device, d, dtype)."""

    def gram(x: jax.Array, count: jax.Array, centre: jax.Array, scale: jax.Array) -> jax.Array:
        weight = (jnp.arange(x.shape[0]) < count).astype(centre.dtype)[:, None]
        y = (x.astype(centre.dtype) - centre) * (scale * weight)
        a = jnp.concatenate([y, jnp.sum(y * y, axis=1, keepdims=True), weight], axis=1)
        return lax.psum(jnp.matmul(a.T, a, precision=lax.Precision.HIGHEST), "rows")

    return jax.pmap(gram, axis_name="rows", in_axes=(0, 0, None, None), out_axes=None, devices=devices)


def _gram_on_devices(
    block: np.ndarray, centre: np.ndarray, scale: float, devices: Sequence[jax.Device], full: int
) -> jax.Array:
    """Starts AᵀA of one block on all devices and returns at once. Rows that do not divide are padded, weight 0."""
    n, d = block.shape
    x = device_block(block)
    no_double = centre.dtype == np.float64 and devices[0].platform not in _DOUBLE_PLATFORMS
    if no_double or scale > 2.0**90:  # so small that some rows lie where XLA flushes to zero
        dtype = np.dtype(np.float32) if no_double else centre.dtype
        with np.errstate(all="ignore"):
            x = ((x - centre) * scale).astype(dtype)
        centre, scale = np.zeros(d, dtype), 1.0
    rows = row_bucket(n, full, len(devices))
    if rows > n:
        x = np.concatenate([x, np.zeros((rows - n, d), x.dtype)])
    each = rows // len(devices)
    counts = np.clip(n - each * np.arange(len(devices)), 0, each).astype(np.int32)
    with jax.enable_x64(centre.dtype == np.float64):
        return _device_gram(tuple(devices))(
            x.reshape(len(devices), each, d), counts, centre, np.asarray(scale, centre.dtype)
        )


def _reduce(X: np.ndarray, devices: Sequence[jax.Device]) -> Iterator[Moments]:
    """Moments of X block by block; the next block is dispatched before the last is read back."""
    n, d = X.shape
    dtype = work_dtype(X.dtype)
    on_host = len(devices) == 1 and devices[0].platform == "cpu"
    full = block_rows(d, dtype.itemsize, _HOST_BLOCK_BYTES if on_host else BLOCK_BYTES)
    waiting = None
    for start in range(0, n, full):
        block = X[start : start + full]
        centre, scale = _centre_and_scale(block, dtype)
        gram = _gram_on_host(block, centre, scale) if on_host else _gram_on_devices(block, centre, scale, devices, full)
        if waiting is not None:
            yield _finish(*waiting)
            release_pages(waiting[0])
        waiting = (block, start, gram, centre, scale)
    if waiting is not None:
        yield _finish(*waiting)
        release_pages(waiting[0])


def _finish(block: np.ndarray, start: int, gram: Any, centre: np.ndarray, scale: float) -> Moments:
    """Moments of one block from its Gram matrix; refuses rows that are not finite."""
    result = _from_gram(len(block), np.asarray(gram), centre, scale)
    if result is not None:
        return result
    row = first_nonfinite_row(block)
    if row is not None:
        raise nonfinite_error(start + row)
    # Finite rows whose powers leave the range of float32: once more, in float64.
    centre, scale = _centre_and_scale(block, np.dtype(np.float64))
    result = _from_gram(len(block), _gram_on_host(block, centre, scale), centre, scale)
    if result is None:
        raise InputError(
            f"Rows {start} to {start + len(block) - 1} hold values too large for float64 sums of fourth powers: "
            "scale the input down. Nothing was changed."
        )
    return result


def _from_gram(n: int, gram: np.ndarray, centre: np.ndarray, scale: float) -> Moments | None:
    """Moves the sums about `centre` to the mean. None if a sum is not finite, or may have underflowed in float32."""
    if not np.isfinite(gram[-1]).all() or not np.isfinite(gram[-2, -2]):
        return None
    if gram.dtype == np.float32 and gram[-2, -1] < 1e-16 * n:
        return None
    d = len(centre)
    with np.errstate(all="ignore"):
        g = gram.astype(np.float64)
        total, square = g[:d, -1] / scale, g[-2, -1] / scale**2
        M2 = g[:d, :d] + g[:d, :d].T  # a device's product is not symmetric to the last bit
        M2 *= 0.5 / scale**2
        shift = total / n
        size = shift @ shift
        M2e = M2 @ shift
        cubic = g[:d, -2] / scale**3 - 2 * M2e + size * total + shift * (2 * (shift @ total) - square - n * size)
        quartic = g[-2, -2] / scale**4 + 4 * (shift @ M2e) + n * size**2 + 2 * size * square
        quartic -= 4 * (shift @ g[:d, -2] / scale**3 + size * (shift @ total))
        _add_outer(M2, shift * np.sqrt(n), -1.0)
        np.fill_diagonal(M2, np.maximum(np.diagonal(M2), 0.0))  # squares that vanished in float32
        result = Moments()
        result.n, result.mean, result.M2 = n, centre.astype(np.float64) + shift, M2
        result.cubic, result.quartic = cubic, max(0.0, float(quartic))
    return result if result._finite() else None


def _add_outer(matrix: np.ndarray, v: np.ndarray, sign: float) -> None:
    """matrix += sign · vᵀv in place, exactly symmetric."""
    updated = blas.dger(sign, v, v, a=matrix.T, overwrite_a=1)
    if not np.shares_memory(updated, matrix):
        matrix[...] = updated


class Moments:
    """Count, mean and centred second moments of rows: a summary that merges exactly.

    `Moments()` starts empty. `update` and `merge` change it in place and return it. Summaries of parts of a corpus,
    made anywhere, merge to the summary of the whole, in any order.

    Attributes:
      n: Rows seen.
      mean: float64 [d], their mean μ (empty while no row was seen).
      M2: float64 [d, d], Σ (x−μ)ᵀ(x−μ).
      cubic: float64 [d], Σ ‖x−μ‖² (x−μ); carried so that `quartic` merges exactly.
      quartic: Σ ‖x−μ‖⁴; what Ledoit-Wolf shrinkage needs beyond the covariance.
      provenance: What `save` was told and `load` found.

    References:
      Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """

    def __init__(self) -> None:
        self.n: int = 0
        self.mean: np.ndarray = np.zeros(0)
        self.M2: np.ndarray = np.zeros((0, 0))
        self.cubic: np.ndarray = np.zeros(0)
        self.quartic: float = 0.0
        self.provenance: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, d={len(self.mean)})"

    def update(self, block: Any) -> Moments:
        """Adds rows.

        Args:
          block: [n, d] rows in float16, bfloat16, float32, float64 or integers; a memory map is read block by block.
            Rows of at most 16 bits and float32 are reduced in float32, others in float64. n may be 0.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it and nothing was changed.
          InputError: Not a matrix, or values whose fourth powers leave float64.
          MismatchError: Another number of columns than before.
        """
        X = as_matrix(block)
        self._check_dimension(X.shape[1])
        total = Moments()
        for part in _reduce(X, jax.local_devices()):
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
            self.cubic, self.quartic = other.cubic.copy(), other.quartic
            return self
        n = self.n + other.n
        delta = other.mean - self.mean
        cubic_a, quartic_a = self._powers_about(-delta * (other.n / n))
        cubic_b, quartic_b = other._powers_about(delta * (self.n / n))
        mean = self.mean + delta * (other.n / n)
        self.M2 += other.M2
        _add_outer(self.M2, delta * np.sqrt(self.n / n * other.n), 1.0)
        self.n, self.mean = n, mean
        self.cubic, self.quartic = cubic_a + cubic_b, quartic_a + quartic_b
        return self

    def covariance(self, ddof: int = 0) -> Float64[np.ndarray, "d d"]:
        """The covariance matrix M2 / (n − ddof).

        Args:
          ddof: 0 for the paper's E[xᵀx] − μᵀμ, 1 for numpy's default.

        Returns:
          A new matrix.

        Raises:
          InputError: Not more than `ddof` rows were seen.
        """
        if self.n <= ddof:
            raise InputError(f"A covariance with ddof={ddof} needs at least {ddof + 1} rows; {self.n} were seen.")
        return self.M2 / (self.n - ddof)

    def save(self, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None) -> None:
        """Writes a safetensors file with a JSON header of provenance.

        Args:
          path: The file to write.
          provenance: Further JSON-representable facts, such as model and pooling.
        """
        tensors = {name: getattr(self, name) for name in ("mean", "M2", "cubic")}
        tensors |= {"n": np.array([self.n], np.int64), "quartic": np.array([self.quartic])}
        header = {"provenance": {**self.provenance, **(provenance or {}), "n": self.n, "dimension": len(self.mean)}}
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
        result = cls()
        try:
            result.n = int(tensors["n"].item())
            result.mean, result.M2, result.cubic = tensors["mean"], tensors["M2"], tensors["cubic"]
            result.quartic = float(tensors["quartic"].item())
            result.provenance = dict(header["provenance"])
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
        size, trace, M2e = e @ e, np.trace(self.M2), self.M2 @ e
        cubic = self.cubic + 2 * M2e + (trace + self.n * size) * e
        quartic = self.quartic + 4 * (e @ M2e + e @ self.cubic) + self.n * size**2 + 2 * size * trace
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
        if not self._finite() or self.quartic < 0:
            return "a number is NaN, infinite or out of range"
        diagonal = np.diagonal(self.M2)
        if (diagonal < 0).any():
            return "a variance is negative"
        size = diagonal.max(initial=0.0)
        if not np.allclose(self.M2, self.M2.T, rtol=1e-9, atol=1e-12 * size):
            return "M2 is not symmetric"
        return None
