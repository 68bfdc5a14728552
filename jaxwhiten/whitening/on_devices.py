"""Moments of rows that are already on the devices: the rows stay there, the host fetches only their sums."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float

from jaxwhiten.whitening.moments import Moments, moments_of
from jaxwhiten.whitening.reduction import BlockSums, Sums, row_sums

_AXIS = "data"
_DEALT = PartitionSpec(None, _AXIS)  # of arrays [row of its device, device, ...]


class DeviceMoments:
    """Sums of rows, batch by batch, about the mean of the first batch. The mesh has one axis, `data`."""

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        self._total: Sums | None = None
        self._about: tuple[jax.Array, jax.Array] | None = None
        self._n = 0

    def add(self, rows: Float[jax.Array, "rows devices ... d"], counts: Bool[np.ndarray, "rows devices ..."]) -> None:
        """Dispatches the sums of rows, second axis over the mesh; rows outside `counts` are ignored but finite."""
        counted = jax.device_put(counts.astype(np.float32), NamedSharding(self._mesh, _DEALT))
        if self._about is None:
            self._about = _centre_and_scale(rows, counted)
        self._total = _add(self._total, rows, counted, *self._about, self._mesh)
        self._n += int(counts.sum())

    def moments(self) -> Moments | None:
        """The moments of all rows, or None if their sums overflow float32: the host then has to sum the rows."""
        if self._total is None or self._about is None:
            return Moments()
        sums, (centre, scale) = jax.device_get((self._total, self._about))
        block = BlockSums(slice(0, self._n), sums, centre, float(scale))
        return moments_of(block) if block.usable() else None


@jax.jit
def _centre_and_scale(rows: jax.Array, counted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean, and a power of two that keeps squares within float32; it is 1 for rows of an ordinary size."""
    counts = counted[..., None] > 0
    axes = tuple(range(rows.ndim - 1))
    centre = jnp.sum(jnp.where(counts, rows, 0), axis=axes) / jnp.sum(counted)
    exponent = jnp.frexp(jnp.max(jnp.where(counts, jnp.abs(rows - centre), 0)))[1]
    usual = jnp.abs(exponent) <= 16
    return centre, jnp.where(usual, 1.0, jnp.ldexp(jnp.float32(1), -jnp.clip(exponent, -120, 120)))


@functools.partial(jax.jit, static_argnames="mesh", donate_argnames="total")
def _add(
    total: Sums | None, rows: jax.Array, counted: jax.Array, centre: jax.Array, scale: jax.Array, mesh: Mesh
) -> Sums:
    def local(rows: jax.Array, counted: jax.Array, centre: jax.Array, scale: jax.Array) -> Sums:
        sums = row_sums(rows.reshape(-1, rows.shape[-1]), counted.reshape(-1), centre, scale)
        return lax.psum(sums, _AXIS)

    everywhere = PartitionSpec()
    specs = (_DEALT, _DEALT, everywhere, everywhere)
    sums: Any = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=everywhere)(rows, counted, centre, scale)
    return sums if total is None else jax.tree.map(jnp.add, total, sums)
