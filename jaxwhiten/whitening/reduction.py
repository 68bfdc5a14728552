"""The sums over a block of rows from which `Moments` are made, computed on the devices or by the host's BLAS.

With y = (x − c) · scale about an approximate centre c, the sums are Σ yᵀy and Σ y. `jax.pmap` with `lax.psum` computes
them over all local devices. XLA has no symmetric product, so on a lone CPU BLAS `syrk` is twice as fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxwhiten import arrays
from jaxwhiten.runtime import blas, hardware

# Bytes of a block on the host. Two blocks of a file are resident while it is read, and an interrupt waits for one
# block. Larger blocks were measured to be no faster.
_HOST_BLOCK_BYTES = 256 << 20
_SAMPLE_ROWS = 512
# On the BLAS route, each thread copies and centres a chunk of rows, `_FILL_ROWS` at a time to stay in its cache.
_CHUNK_BYTES = 32 << 20
_CHUNKS_BYTES = 256 << 20
_FILL_ROWS = 256
_LEAST_CHUNK = 512
_MATRICES_BYTES = 512 << 20
# Platforms that compute in float64. Elsewhere the host centres float64 rows, and the device sums them in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")


class Sums(NamedTuple):
    """Sums over rows y = (x − centre) · scale, as NumPy arrays or device arrays that may still be computing."""

    product: Any  # [d, d], Σ yᵀy
    total: Any  # [d], Σ y


class BlockSums(NamedTuple):
    """The sums of one block of rows, with their centre and scale."""

    rows: slice
    sums: Sums
    centre: np.ndarray
    scale: float

    def usable(self) -> bool:
        """Whether the sums are finite and too large to have underflowed in float32."""
        squares = float(np.trace(self.sums.product, dtype=np.float64))
        if not np.isfinite(self.sums.total).all() or not np.isfinite(squares):
            return False
        in_float32 = np.float32 in (self.centre.dtype, self.sums.total.dtype)
        return not in_float32 or squares >= 1e-16 * (self.rows.stop - self.rows.start)


def block_sums(X: np.ndarray, devices: Sequence[jax.Device] | None = None) -> Iterator[BlockSums]:
    """The sums of X block by block; each block is dispatched before the sums of the last one are fetched.

    By default all local devices are used. A lone CPU device is replaced by the host's BLAS. Raises NonFiniteError for
    rows that are not finite.
    """
    (n, d), devices = X.shape, jax.local_devices() if devices is None else devices
    dtype = arrays.work_dtype(X.dtype)
    on_host = len(devices) == 1 and devices[0].platform == "cpu"
    full = arrays.block_rows(d, dtype.itemsize, _HOST_BLOCK_BYTES if on_host else arrays.BLOCK_BYTES)

    def dispatch(rows: slice) -> BlockSums:
        block = X[rows]
        sample = block[:: max(1, len(block) // _SAMPLE_ROWS)]
        if dtype == np.float32 and len({row.tobytes() for row in sample}) < len(sample) / 8:
            return sums_in_float64(block, rows)  # equal products round alike, and float32 would show a variance
        about = centre_and_scale(block, dtype)
        sums = sums_on_host(block, *about) if on_host else sums_on_devices(block, *about, devices, full)
        return BlockSums(rows, sums, *about)

    for sums in arrays.one_ahead(map(dispatch, arrays.blocks(n, full))):
        block = X[sums.rows]
        yield sums if sums.usable() else sums_in_float64(block, sums.rows)
        arrays.release_pages(block)


def sums_in_float64(block: np.ndarray, rows: slice) -> BlockSums:
    """The sums of rows that repeat or whose squares leave float32; NonFiniteError if a row is not finite."""
    arrays.check_finite(block, rows.start)
    about = centre_and_scale(block, np.dtype(np.float64))
    return BlockSums(rows, sums_on_host(block, *about), *about)


def centre_and_scale(block: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, float]:
    """An approximate centre in the working dtype, and a power of two that keeps squares within its range."""
    sample = block[:: max(1, len(block) // _SAMPLE_ROWS)].astype(np.float64)
    with np.errstate(all="ignore"):
        centre = sample.mean(axis=0).astype(dtype)
        spread = float(np.max(np.abs(sample - centre)))
    exponent = np.frexp(spread)[1] if np.isfinite(spread) else 0
    return centre, 1.0 if abs(exponent) <= 16 else float(np.ldexp(1.0, -int(np.clip(exponent, -120, 120))))


def sums_on_host(block: np.ndarray, centre: np.ndarray, scale: float) -> Sums:
    """The sums in float64 of chunks that BLAS computes in `centre`'s dtype.

    Every core takes its own chunks. If a matrix per core would take too much memory, BLAS's own threads share one.
    """
    n, d = block.shape
    cores = hardware.cores()
    alone = cores * d * d * (8 + centre.dtype.itemsize) > _MATRICES_BYTES
    threads = 1 if alone else cores
    most = max(_LEAST_CHUNK, min(_CHUNK_BYTES, _CHUNKS_BYTES // threads) // (d * centre.dtype.itemsize))
    dealt = [[block[rows] for rows in share] for share in blas.deal(range(n), most, threads)]
    total, *others = blas.on_cores(lambda chunks: _sums_of(chunks, centre, scale), dealt)
    for other in others:
        for sums, more in zip(total, other, strict=True):
            sums += more
    return total


def _sums_of(chunks: Sequence[np.ndarray], centre: np.ndarray, scale: float) -> Sums:
    """The sums of several chunks, the largest first."""
    d, dtype = len(centre), centre.dtype
    sums = Sums(np.zeros((d, d)), np.zeros(d))
    centred, product = np.empty((len(chunks[0]), d), dtype), np.empty((d, d), dtype)
    ones = np.ones(_FILL_ROWS, dtype)
    with np.errstate(all="ignore"):
        for chunk in chunks:
            for start in range(0, len(chunk), _FILL_ROWS):
                rows = chunk[start : start + _FILL_ROWS]
                y = np.subtract(rows, centre, out=centred[start : start + len(rows)], casting="same_kind")
                if scale != 1.0:
                    y *= dtype.type(scale)
                sums.total[:] += ones[: len(rows)] @ y
            Y = centred[: len(chunk)]
            sums.product[:] += np.matmul(Y.T, Y, out=product)  # NumPy sees the symmetry and calls syrk
    return sums


def row_sums(x: jax.Array, counts: jax.Array, centre: jax.Array, scale: jax.Array) -> Sums:
    """The sums of rows on one device; a count is 1 for a row and 0 for padding."""
    y = (x.astype(centre.dtype) - centre) * (scale * counts)[:, None]
    times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    return Sums(times(y.T, y), times(counts, y))


@functools.cache
def _device_sums(devices: tuple[jax.Device, ...]) -> Callable[..., Sums]:
    """The pmapped sums, compiled once for each (rows per device, d, dtype)."""

    def sums(x: jax.Array, counts: jax.Array, centre: jax.Array, scale: jax.Array) -> Sums:
        return lax.psum(row_sums(x, counts, centre, scale), "rows")

    return jax.pmap(sums, axis_name="rows", in_axes=(0, 0, None, None), out_axes=None, devices=devices)


def sums_on_devices(
    block: np.ndarray, centre: np.ndarray, scale: float, devices: Sequence[jax.Device], full: int
) -> Sums:
    """Dispatches the sums of one block on all devices. Rows are padded to a multiple of the devices, with count 0."""
    n, d = block.shape
    x = arrays.device_block(block)
    no_double = centre.dtype == np.float64 and devices[0].platform not in _DOUBLE_PLATFORMS
    if no_double or scale > 2.0**90:  # rows so small that XLA would flush some to zero
        dtype = np.dtype(np.float32) if no_double else centre.dtype
        with np.errstate(all="ignore"):
            x = ((x - centre) * scale).astype(dtype)
        centre, scale = np.zeros(d, dtype), 1.0
    rows = arrays.row_bucket(n, full, len(devices))
    each = rows // len(devices)
    with jax.enable_x64(centre.dtype == np.float64):
        return _device_sums(tuple(devices))(
            arrays.pad_rows(x, rows).reshape(len(devices), each, d),
            arrays.pad_rows(np.ones(n, centre.dtype), rows).reshape(len(devices), each),
            centre,
            np.asarray(scale, centre.dtype),
        )
