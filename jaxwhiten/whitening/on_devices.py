"""The sums behind `Moments`, on the devices: of blocks of the host, or of rows that stay where they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float

from jaxwhiten import arrays

Sums = tuple[Any, Any]  # Σ yᵀy and Σ y, see `moments.Sums`
# Platforms that compute in float64. Elsewhere the host centers float64 rows, and the device sums them in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")
_AXIS = "data"
_DEALT = PartitionSpec(None, _AXIS)  # of arrays [row of its device, device, ...]


def row_sums(x: jax.Array, counts: jax.Array, center: jax.Array, scale: jax.Array) -> Sums:
    """The sums of rows on one device; a count is 1 for a row and 0 for padding."""
    y = (x.astype(center.dtype) - center) * (scale * counts)[:, None]
    times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    return times(y.T, y), times(counts, y)


@functools.cache
def _device_sums(devices: tuple[jax.Device, ...]) -> Callable[..., Sums]:
    """The pmapped sums, compiled once for each (rows per device, d, dtype)."""

    def sums(x: jax.Array, counts: jax.Array, center: jax.Array, scale: jax.Array) -> Sums:
        return lax.psum(row_sums(x, counts, center, scale), "rows")

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


class DeviceSums:
    """Sums of rows, batch by batch, about the mean of the first batch. The mesh has one axis, `data`."""

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        self._total: Sums | None = None
        self._about: tuple[Any, Any] = (None, None)
        self._n = 0

    def add(self, rows: Float[jax.Array, "rows devices ... d"], counts: Bool[np.ndarray, "rows devices ..."]) -> None:
        """Dispatches the sums of rows, second axis over the mesh; rows outside `counts` are ignored but finite."""
        counted = jax.device_put(counts.astype(np.float32), NamedSharding(self._mesh, _DEALT))
        if self._total is None:
            self._about = _center_and_scale(rows, counted)
        self._total = _add(self._total, rows, counted, *self._about, self._mesh)
        self._n += int(counts.sum())

    def fetch(self) -> tuple[int, Any, Any, Any]:
        """The arguments of `moments.moments_of`, on the host."""
        return self._n, *jax.device_get((self._total, *self._about))


@jax.jit
def _center_and_scale(rows: jax.Array, counted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean, and a power of two that keeps squares within float32; it is 1 for rows of an ordinary size."""
    counts = counted[..., None] > 0
    axes = tuple(range(rows.ndim - 1))
    center = jnp.sum(jnp.where(counts, rows, 0), axis=axes) / jnp.sum(counted)
    exponent = jnp.frexp(jnp.max(jnp.where(counts, jnp.abs(rows - center), 0)))[1]
    usual = jnp.abs(exponent) <= 16
    return center, jnp.where(usual, 1.0, jnp.ldexp(jnp.float32(1), -jnp.clip(exponent, -120, 120)))


@functools.partial(jax.jit, static_argnames="mesh", donate_argnames="total")
def _add(
    total: Sums | None, rows: jax.Array, counted: jax.Array, center: jax.Array, scale: jax.Array, mesh: Mesh
) -> Sums:
    def local(rows: jax.Array, counted: jax.Array, center: jax.Array, scale: jax.Array) -> Sums:
        sums = row_sums(rows.reshape(-1, rows.shape[-1]), counted.reshape(-1), center, scale)
        return lax.psum(sums, _AXIS)

    everywhere = PartitionSpec()
    specs = (_DEALT, _DEALT, everywhere, everywhere)
    sums: Any = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=everywhere)(rows, counted, center, scale)
    return sums if total is None else jax.tree.map(jnp.add, total, sums)
