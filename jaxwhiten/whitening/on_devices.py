"""The sums behind `Moments`, on the devices, of blocks of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxwhiten import arrays

Sums = tuple[Any, Any]  # Σ yᵀy and Σ y, see `moments.Sums`
# Platforms that compute in float64. Elsewhere the host centers float64 rows, and the device sums them in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")


@functools.cache
def _device_sums(devices: tuple[jax.Device, ...]) -> Callable[..., Sums]:
    """The pmapped sums, compiled once for each (rows per device, d, dtype); a count is 1 for a row, 0 for padding."""
    times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def sums(x: jax.Array, counts: jax.Array, center: jax.Array, scale: jax.Array) -> Sums:
        y = (x.astype(center.dtype) - center) * (scale * counts)[:, None]
        return lax.psum((times(y.T, y), times(counts, y)), "rows")

    return jax.pmap(sums, axis_name="rows", in_axes=(0, 0, None, None), out_axes=None, devices=devices)


def sums_on_devices(
    block: np.ndarray, center: np.ndarray, scale: float, devices: Sequence[jax.Device], full: int
) -> Sums:
    """Dispatches the sums of one block on all devices. Rows are padded to a multiple of the devices, with count 0."""
    n, d = block.shape
    x = arrays.device_block(block)
    no_double = center.dtype == np.float64 and devices[0].platform not in _DOUBLE_PLATFORMS
    if no_double or scale > 2.0**90:  # rows so small that XLA would flush some to zero
        dtype = np.dtype(np.float32) if no_double else center.dtype
        with np.errstate(all="ignore"):
            x = ((x - center) * scale).astype(dtype)
        center, scale = np.zeros(d, dtype), 1.0
    rows = arrays.row_bucket(n, full, len(devices))
    each = rows // len(devices)
    with jax.enable_x64(center.dtype == np.float64):
        return _device_sums(tuple(devices))(
            arrays.pad_rows(x, rows).reshape(len(devices), each, d),
            arrays.pad_rows(np.ones(n, center.dtype), rows).reshape(len(devices), each),
            center,
            np.asarray(scale, center.dtype),
        )
