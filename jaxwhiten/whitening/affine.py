"""The one affine map of rows, (x − shift) A + offset, on the host and on devices; as a kernel x W + b."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Shaped

from jaxwhiten import arrays
from jaxwhiten.errors import InputError
from jaxwhiten.lazy import Array, jax, jit, jnp, lax
from jaxwhiten.runtime import blas, hardware

_BLOCK_BYTES = 32 << 20
_HOST_BLOCK_BYTES = 256 << 20
_CHUNK_BYTES = 2 << 20  # of rows that a core shifts and multiplies at a time
_FEW_ROWS = 16  # for which no device is asked
_MOST = 1e30  # beyond it, and below its inverse, rows and results come near the ends of float32


def linear(
    x: Float[Array, "*batch d"],
    weight: Float[Array | np.ndarray, "d k"],
    bias: Float[Array | np.ndarray, " k"] | None = None,
) -> Float[Array, "*batch k"]:
    """x W + b in JAX, with float32 products on every device; for use inside compiled functions."""
    product = jnp.matmul(x, weight, precision=lax.Precision.HIGHEST)
    return product if bias is None else product + bias


@jit
def _map_block(
    x: Shaped[jax.Array, "n d"], shift: Float[jax.Array, " d"], matrix: Float[jax.Array, "d k"], offset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y = linear(x.astype(shift.dtype) - shift, matrix, offset)
    return y, jnp.isfinite(y).all()


class Affine:
    """The map x ↦ (x − shift) A + offset, and unit length after it where that is asked for.

    float32 rows (and those of at most 16 bits) are mapped in float32: on the accelerator, or where there is none by the
    host's BLAS, for which nothing has to be copied. `shift` is subtracted before the product, and its rounding error is
    carried over to the offset, so that rows far from the origin keep their digits. Other rows, and those whose map is
    made of numbers at the ends of float32's range, are mapped in float64 on the host. A map given in float32 gives
    float32, whatever the rows are. May be called from several threads. No matrix is the identity, whose shift and
    offset are zero; no offset is zero. Zero rows have no unit length and stay zero.
    """

    def __init__(
        self,
        shift: Float[np.ndarray, " d"],
        matrix: Float[np.ndarray, "d k"] | None = None,
        offset: Float[np.ndarray, " k"] | None = None,
        *,
        unit_length: bool = False,
    ) -> None:
        self.shift, self.matrix, self.unit_length = shift, matrix, unit_length
        self.inputs, self.outputs = len(shift), len(shift) if matrix is None else matrix.shape[1]
        self.offset = np.zeros(self.outputs, shift.dtype) if offset is None else offset
        size = 1.0 if matrix is None else float(np.abs(matrix).max(initial=0.0))
        self._extreme = size > _MOST or 0 < size < 1 / _MOST
        self._constants: dict[Any, tuple[Any, ...]] = {}

    @classmethod
    def of_kernel(
        cls, weight: Float32[np.ndarray, "d k"], bias: Float32[np.ndarray, " k"], *, unit_length: bool = False
    ) -> Affine:
        """The map x W + b, as `kernel` gives it."""
        return cls(np.zeros(len(weight), np.float32), weight, bias, unit_length=unit_length)

    @functools.cached_property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and b of the map as x W + b, rounded once; without the unit length."""
        if self.matrix is None:
            return np.eye(self.inputs, dtype=np.float32), np.zeros(self.outputs, np.float32)
        bias = self.offset - self.shift @ self.matrix
        return np.ascontiguousarray(self.matrix, np.float32), bias.astype(np.float32)

    def hash(self) -> str | None:
        """SHA-256 over W and b, or None for the identity."""
        if self.matrix is None:
            return None
        weight, bias = self.kernel
        return hashlib.sha256(f"{weight.shape}".encode() + weight.tobytes() + bias.tobytes()).hexdigest()

    def on_device(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """Maps a JAX array where it lies, also inside a compiled function."""
        if self.matrix is not None:
            x = linear(x.astype(jnp.float32), *self.kernel)
        return arrays.normalize_on_device(x) if self.unit_length else x

    def __call__(self, X: Shaped[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Maps rows that `arrays.as_matrix` has checked: to float32, or to float64 where they have more digits.

        Refuses rows that are not finite, or whose results do not fit the dtype.
        """
        out_dtype = min(arrays.work_dtype(X.dtype), self.shift.dtype, key=lambda dtype: dtype.itemsize)
        if self.matrix is None:
            arrays.check_finite(X)
            mapped = np.asarray(X, out_dtype)
        else:
            mapped = self._mapped(X, out_dtype)
        return arrays.normalize(mapped) if self.unit_length else mapped

    def _mapped(self, X: np.ndarray, out_dtype: np.dtype) -> np.ndarray:
        dtype = np.dtype(np.float64) if self._extreme else out_dtype
        out = np.empty((len(X), self.outputs), out_dtype)
        on_host = dtype == np.float64 or len(X) <= _FEW_ROWS or jax.default_backend() == "cpu"
        doubtful = self._map_on_host(X, out, dtype) if on_host else self._map_on_device(X, out)
        for part in doubtful:
            arrays.check_finite(X[part], part.start)
            row = arrays.first_nonfinite_row(out[part])
            if row is not None:
                raise InputError(f"Row {part.start + row} of the input leaves the range of {out.dtype}: scale it down.")
        return out

    def _in(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """shift, A and offset in `dtype`. Threads that race here compute the same arrays."""
        assert self.matrix is not None
        if dtype not in self._constants:
            with np.errstate(over="ignore"):
                shift = self.shift.astype(dtype)
                offset = self.offset - (self.shift - shift) @ self.matrix
                self._constants[dtype] = (shift, self.matrix.astype(dtype), offset.astype(dtype))
        return self._constants[dtype]

    def _map_on_host(self, X: np.ndarray, out: np.ndarray, dtype: np.dtype) -> list[slice]:
        """Fills `out`, every core its own chunks; returns those that may hold what is not finite, in order."""
        n, d = X.shape
        constants, doubtful = self._in(dtype), list[slice]()
        rows = max(1, _CHUNK_BYTES // (d * dtype.itemsize))
        full = rows * max(1, _HOST_BLOCK_BYTES // _CHUNK_BYTES)
        for part in arrays.blocks(n, full):  # an interrupt waits for one block, not for all rows
            shares = blas.deal(range(part.start, part.stop), rows, hardware.cores())
            for found in blas.on_cores(lambda share: _map_chunks(X, out, share, *constants), shares):
                doubtful += found
        return sorted(doubtful, key=lambda part: part.start)

    def _map_on_device(self, X: np.ndarray, out: np.ndarray) -> list[slice]:
        """Fills `out`, each block dispatched before the last one is fetched; returns the same as on the host."""
        n, d = X.shape
        full = arrays.block_rows(max(d, out.shape[1]), out.dtype.itemsize, _BLOCK_BYTES)
        if "device" not in self._constants:
            self._constants["device"] = tuple(jax.device_put(a) for a in self._in(out.dtype))
        constants, doubtful = self._constants["device"], []

        def dispatch(part: slice) -> tuple[slice, jax.Array, jax.Array]:
            block = arrays.device_block(X[part])
            return part, *_map_block(arrays.pad_rows(block, arrays.row_bucket(len(block), full)), *constants)

        for part, mapped, finite in arrays.one_ahead(map(dispatch, arrays.blocks(n, full))):
            out[part] = np.asarray(mapped)[: part.stop - part.start]
            if not finite:
                doubtful.append(part)
        return doubtful


def _map_chunks(
    X: np.ndarray, out: np.ndarray, chunks: list[slice], shift: np.ndarray, matrix: np.ndarray, offset: np.ndarray
) -> list[slice]:
    """Maps some chunks of rows, the first of which has the most; returns those whose results may not be finite."""
    doubtful, most = [], chunks[0].stop - chunks[0].start
    # What is computed stays in the core's cache; the result, whose pages may be new, is touched only once.
    shifted, product = np.empty((most, X.shape[1]), shift.dtype), np.empty((most, len(offset)), shift.dtype)
    with np.errstate(all="ignore"):
        for chunk in chunks:
            rows = chunk.stop - chunk.start
            y = np.subtract(X[chunk], shift, out=shifted[:rows], casting="same_kind")
            mapped = np.matmul(y, matrix, out=product[:rows])
            mapped += offset
            out[chunk] = mapped
            if out.dtype != mapped.dtype or not np.isfinite(mapped.sum()):
                doubtful.append(chunk)
    return doubtful
