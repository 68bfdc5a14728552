"""Linear maps of rows, (x − shift) A + offset, in blocks: what every linear transform ends in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Float64, Shaped

from jaxwhiten.arrays import (
    block_rows,
    blocks,
    check_finite,
    device_block,
    first_nonfinite_row,
    one_ahead,
    pad_rows,
    row_bucket,
    work_dtype,
)
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import blas, hardware

_BLOCK_BYTES = 32 << 20
_HOST_BLOCK_BYTES = 256 << 20
_CHUNK_BYTES = 2 << 20  # of rows that a core shifts and multiplies at a time
_MOST = 1e30  # beyond it, and below its inverse, rows and results come near the ends of float32


@jax.jit
def _map_block(
    x: Shaped[jax.Array, "n d"], shift: Float[jax.Array, " d"], matrix: Float[jax.Array, "d k"], offset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y = jnp.matmul(x.astype(shift.dtype) - shift, matrix, precision=lax.Precision.HIGHEST) + offset
    return y, jnp.isfinite(y).all()


class Affine:
    """The map x ↦ (x − shift) A + offset, given in float64; no offset is zero.

    float32 rows (and those of at most 16 bits) are mapped in float32: on the accelerator, or where there is none by the
    host's BLAS, for which nothing has to be copied. `shift` is subtracted before the product, and its rounding error is
    carried over to the offset, so that rows far from the origin keep their digits. Other rows, and those whose map is
    made of numbers at the ends of float32's range, are mapped in float64 on the host. May be called from several
    threads.
    """

    def __init__(
        self,
        shift: Float64[np.ndarray, " d"],
        matrix: Float64[np.ndarray, "d k"],
        offset: Float64[np.ndarray, " k"] | None = None,
    ) -> None:
        self.shift, self.matrix = shift, matrix
        self.offset = np.zeros(matrix.shape[1]) if offset is None else offset
        size = float(np.abs(matrix).max(initial=0.0))
        self._extreme = size > _MOST or 0 < size < 1 / _MOST
        self._constants: dict[Any, tuple[Any, ...]] = {}

    def _in(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """shift, A and offset in `dtype`. Threads that race here compute the same arrays."""
        if dtype not in self._constants:
            with np.errstate(over="ignore"):
                shift = self.shift.astype(dtype)
                offset = self.offset - (self.shift - shift) @ self.matrix
                self._constants[dtype] = (shift, self.matrix.astype(dtype), offset.astype(dtype))
        return self._constants[dtype]

    def __call__(self, X: Shaped[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Maps rows that `arrays.as_matrix` has checked: to float32, or to float64 where they have more digits.

        Refuses rows that are not finite, or whose results do not fit the dtype.
        """
        out_dtype = work_dtype(X.dtype)
        dtype = np.dtype(np.float64) if self._extreme else out_dtype
        out = np.empty((len(X), self.matrix.shape[1]), out_dtype)
        on_host = dtype == np.float64 or jax.default_backend() == "cpu"
        doubtful = self._map_on_host(X, out, dtype) if on_host else self._map_on_device(X, out)
        for part in doubtful:
            check_finite(X[part], part.start)
            row = first_nonfinite_row(out[part])
            if row is not None:
                raise InputError(
                    f"Row {part.start + row} of the input leaves the range of {out.dtype}: scale the input."
                )
        return out

    def _map_on_host(self, X: np.ndarray, out: np.ndarray, dtype: np.dtype) -> list[slice]:
        """Fills `out`, every core its own chunks; returns those that may hold what is not finite, in order."""
        n, d = X.shape
        constants, doubtful = self._in(dtype), list[slice]()
        rows = max(1, _CHUNK_BYTES // (d * dtype.itemsize))
        full = rows * max(1, _HOST_BLOCK_BYTES // _CHUNK_BYTES)
        for part in blocks(n, full):  # an interrupt waits for one block, not for all rows
            shares = blas.deal(range(part.start, part.stop), rows, hardware.cores())
            for found in blas.on_cores(lambda share: _map_chunks(X, out, share, *constants), shares):
                doubtful += found
        return sorted(doubtful, key=lambda part: part.start)

    def _map_on_device(self, X: np.ndarray, out: np.ndarray) -> list[slice]:
        """Fills `out`, each block dispatched before the last one is fetched; returns the same as on the host."""
        n, d = X.shape
        full = block_rows(max(d, out.shape[1]), out.dtype.itemsize, _BLOCK_BYTES)
        if "device" not in self._constants:
            self._constants["device"] = tuple(jax.device_put(a) for a in self._in(out.dtype))
        constants, doubtful = self._constants["device"], []

        def dispatch(part: slice) -> tuple[slice, jax.Array, jax.Array]:
            block = device_block(X[part])
            return part, *_map_block(pad_rows(block, row_bucket(len(block), full)), *constants)

        for part, mapped, finite in one_ahead(map(dispatch, blocks(n, full))):
            out[part] = np.asarray(mapped)[: part.stop - part.start]
            if not finite:
                doubtful.append(part)
        return doubtful


def _map_chunks(
    X: np.ndarray, out: np.ndarray, chunks: list[slice], shift: np.ndarray, matrix: np.ndarray, offset: np.ndarray
) -> list[slice]:
    """Maps some chunks of rows, the first of which has the most; returns those whose results may not be finite."""
    doubtful = []
    most = chunks[0].stop - chunks[0].start
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
