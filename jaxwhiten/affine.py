"""Linear maps of rows, (x − shift) A + offset, on the device in blocks: what every linear transform ends in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Float64, Shaped

from jaxwhiten.arrays import block_rows, device_block, first_nonfinite_row, nonfinite_error, row_bucket, work_dtype
from jaxwhiten.errors import InputError

_BLOCK_BYTES = 32 << 20
_MOST = 1e30  # beyond it, and below its inverse, rows and results come near the ends of float32


def double_device() -> jax.Device | None:
    """The device for float64 work: the host CPU, so that results do not depend on the accelerator; else the default."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@jax.jit
def _map_block(
    x: Shaped[jax.Array, "n d"], shift: Float[jax.Array, " d"], matrix: Float[jax.Array, "d k"], offset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y = jnp.matmul(x.astype(shift.dtype) - shift, matrix, precision=lax.Precision.HIGHEST) + offset
    return y, jnp.isfinite(y).all()


class Affine:
    """The map x ↦ (x − shift) A + offset, given in float64.

    float32 rows (and those of at most 16 bits) are mapped in float32 on the default device. `shift` is subtracted
    before the product, and its rounding error is carried over to the offset, so that rows far from the origin keep
    their digits. Other rows, and those whose map is made of numbers at the ends of float32's range, are mapped in
    float64 on the host CPU. May be called from several threads.
    """

    def __init__(
        self,
        shift: Float64[np.ndarray, " d"],
        matrix: Float64[np.ndarray, "d k"],
        offset: Float64[np.ndarray, " k"],
    ) -> None:
        self.shift, self.matrix, self.offset = shift, matrix, offset
        size = float(np.abs(matrix).max(initial=0.0))
        self._extreme = size > _MOST or 0 < size < 1 / _MOST
        self._constants: dict[np.dtype, tuple[jax.Array, ...]] = {}

    def _on_device(self, dtype: np.dtype) -> tuple[jax.Array, ...]:
        """shift, A and offset in `dtype` on their device. Threads that race here compute the same arrays."""
        if dtype not in self._constants:
            with np.errstate(over="ignore"):
                shift = self.shift.astype(dtype)
                offset = self.offset - (self.shift - shift) @ self.matrix
                arrays = (shift, self.matrix.astype(dtype), offset.astype(dtype))
            device = double_device() if dtype == np.float64 else None
            self._constants[dtype] = tuple(jax.device_put(a, device) for a in arrays)
        return self._constants[dtype]

    def __call__(self, X: Shaped[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Maps rows.

        Args:
          X: Rows, such as `arrays.as_matrix` returns.

        Returns:
          float32 rows, or float64 ones where the input has more digits than float32.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it.
          InputError: A result does not fit the dtype.
        """
        out_dtype = work_dtype(X.dtype)
        dtype = np.dtype(np.float64) if self._extreme else out_dtype
        n, d = X.shape
        k = self.matrix.shape[1]
        full = block_rows(max(d, k), dtype.itemsize, _BLOCK_BYTES)
        out = np.empty((n, k), out_dtype)
        with jax.enable_x64(dtype == np.float64):
            constants = self._on_device(dtype)
            waiting = None
            for start in range(0, n, full):
                block = device_block(X[start : start + full])
                if self._extreme:
                    block = block.astype(dtype)
                pad = row_bucket(len(block), full) - len(block)
                if pad:
                    block = np.concatenate([block, np.zeros((pad, d), block.dtype)])
                result = _map_block(block, *constants)
                if waiting is not None:
                    self._store(X, out, *waiting)
                waiting = (start, min(full, n - start), result)
            if waiting is not None:
                self._store(X, out, *waiting)
        return out

    def _store(self, X: np.ndarray, out: np.ndarray, start: int, rows: int, result: Any) -> None:
        mapped, finite = result
        with np.errstate(over="ignore"):
            out[start : start + rows] = np.asarray(mapped)[:rows]
        if finite and not self._extreme:
            return
        row = first_nonfinite_row(X[start : start + rows])
        if row is not None:
            raise nonfinite_error(start + row)
        row = first_nonfinite_row(out[start : start + rows])
        if row is not None:
            raise InputError(f"Row {start + row} of the input leaves the range of {out.dtype}: scale the input.")
