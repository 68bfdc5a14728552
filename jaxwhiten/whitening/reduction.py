"""The sums over a block of rows that `Moments` are made of, computed on the devices or by the host's BLAS.

With y = (x − c) · scale about an approximate centre c, and s = ‖y‖², they are Σ yᵀy, Σ y, Σ s y, Σ s and Σ s²: all that
is needed to move to the true mean, to merge with other blocks, and to compute the Ledoit-Wolf coefficient later without
another pass over the data. Where rows have weights w, each term counts w times: y and s are multiplied by √w.

Two routes compute them and are tested against each other. On accelerators, and wherever there is more than one device,
it is `jax.pmap` with `lax.psum` over all local devices. On a lone CPU device there is nothing to reduce over, and XLA
has no symmetric product there: BLAS `syrk` computes only half of the entries and is twice as fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxwhiten.arrays import (
    BLOCK_BYTES,
    block_rows,
    blocks,
    check_finite,
    device_block,
    one_ahead,
    pad_rows,
    release_pages,
    row_bucket,
    work_dtype,
)
from jaxwhiten.runtime import blas, hardware

# Of a block on the host, which copies only chunks of it. Two blocks of a file are resident while they are read, and an
# interrupt waits for one. Larger blocks were measured to be no faster.
_HOST_BLOCK_BYTES = 256 << 20
_SAMPLE_ROWS = 512
# A thread of the BLAS route copies a chunk of rows at a time, centred, a few of them while they are in its cache.
_CHUNK_BYTES = 32 << 20
_CHUNKS_BYTES = 256 << 20
_FILL_ROWS = 256
_LEAST_CHUNK = 512
_MATRICES_BYTES = 512 << 20
# Platforms that compute in float64; elsewhere float64 rows are centred on the host and reduced in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")


class Shares(NamedTuple):
    """How much the rows of a block count. The weights w of its sums are relative to the largest of them."""

    n: int  # rows that count
    total: float  # Σ w
    largest: float = 1.0
    roots: np.ndarray | None = None  # [n], √w; None where all rows count once
    sums: tuple[float, ...] = ()  # of the weights as they were given, and of their squares

    @classmethod
    def of(cls, rows: int, weights: np.ndarray | None) -> Shares:
        """Of float64 weights, none below 0; without weights every row counts once."""
        if weights is None:
            return cls(rows, float(rows))
        largest = float(weights.max(initial=0.0)) or 1.0
        relative = weights / largest
        sums = float(weights.sum()), float(weights @ weights)
        return cls(int(np.count_nonzero(weights)), float(relative.sum()), largest, np.sqrt(relative), sums)


class Sums(NamedTuple):
    """Sums over rows y = (x − centre) · scale; s = ‖y‖². Device arrays that may still be computed, or NumPy's."""

    product: Any  # [d, d], Σ yᵀy
    vectors: Any  # [2, d], Σ y and Σ s y
    squares: Any  # [2], Σ s and Σ s²


class BlockSums(NamedTuple):
    """The sums of one block of rows, and the centre and scale they were taken with."""

    rows: slice
    sums: Sums
    centre: np.ndarray
    scale: float
    shares: Shares

    def usable(self) -> bool:
        """Whether the sums are finite, and none can have vanished in float32."""
        if not np.isfinite(self.sums.vectors).all() or not np.isfinite(self.sums.squares).all():
            return False
        in_float32 = np.float32 in (self.centre.dtype, self.sums.squares.dtype)
        return not in_float32 or float(self.sums.squares[0]) >= 1e-16 * self.shares.total


def block_sums(X: np.ndarray, devices: Sequence[jax.Device], weights: np.ndarray | None = None) -> Iterator[BlockSums]:
    """The sums of X block by block, each block dispatched before the sums of the last one are fetched.

    The host's BLAS takes the place of a lone CPU device. Refuses rows that are not finite. Weights are float64, finite,
    and none is below 0.
    """
    n, d = X.shape
    dtype = work_dtype(X.dtype)
    on_host = len(devices) == 1 and devices[0].platform == "cpu"
    full = block_rows(d, dtype.itemsize, _HOST_BLOCK_BYTES if on_host else BLOCK_BYTES)

    def dispatch(rows: slice) -> BlockSums:
        block = X[rows]
        shares = Shares.of(len(block), None if weights is None else weights[rows])
        centre, scale = centre_and_scale(block, dtype, shares.roots)
        if on_host:
            sums = sums_on_host(block, centre, scale, shares.roots)
        else:
            sums = sums_on_devices(block, centre, scale, devices, full, shares.roots)
        return BlockSums(rows, sums, centre, scale, shares)

    for found in one_ahead(map(dispatch, blocks(n, full))):
        block = X[found.rows]
        yield found if found.usable() else sums_in_float64(block, found.rows, found.shares)
        release_pages(block)


def sums_in_float64(block: np.ndarray, rows: slice, shares: Shares) -> BlockSums:
    """The sums of rows whose powers leave the range of float32; NonFiniteError if the rows are not finite."""
    check_finite(block, rows.start)
    centre, scale = centre_and_scale(block, np.dtype(np.float64), shares.roots)
    return BlockSums(rows, sums_on_host(block, centre, scale, shares.roots), centre, scale, shares)


def centre_and_scale(block: np.ndarray, dtype: np.dtype, roots: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """An approximate centre in the working dtype, and a power of two that keeps fourth powers within its range.

    They follow from a sample in which a row occurs as often as its weight makes it.
    """
    if roots is None:
        sample = block[:: max(1, len(block) // _SAMPLE_ROWS)].astype(np.float64)
    else:
        cumulated = np.cumsum(roots**2)
        places = np.searchsorted(cumulated, cumulated[-1] * (np.arange(_SAMPLE_ROWS) + 0.5) / _SAMPLE_ROWS)
        sample = block[np.minimum(places, len(block) - 1)].astype(np.float64)
    with np.errstate(all="ignore"):
        centre = sample.mean(axis=0).astype(dtype)
        spread = float(np.max(np.abs(sample - centre)))
    exponent = np.frexp(spread)[1] if np.isfinite(spread) else 0
    return centre, 1.0 if abs(exponent) <= 16 else float(np.ldexp(1.0, -int(np.clip(exponent, -120, 120))))


def sums_on_host(block: np.ndarray, centre: np.ndarray, scale: float, roots: np.ndarray | None = None) -> Sums:
    """The sums in float64, of chunks computed in `centre`'s dtype by BLAS.

    Every core takes its own chunks; only matrices too wide to have one per core are left to BLAS's own threads.
    """
    n, d = block.shape
    cores = hardware.cores()
    alone = cores * d * d * (8 + centre.dtype.itemsize) > _MATRICES_BYTES
    threads = 1 if alone else cores
    most = max(_LEAST_CHUNK, min(_CHUNK_BYTES, _CHUNKS_BYTES // threads) // (d * centre.dtype.itemsize))
    roots = None if roots is None else roots.astype(centre.dtype)
    dealt = [
        [(block[rows], None if roots is None else roots[rows]) for rows in share]
        for share in blas.deal(range(n), most, threads)
    ]
    total, *others = blas.on_cores(lambda chunks: _sums_of(chunks, centre, scale), dealt)
    for other in others:
        for sums, more in zip(total, other, strict=True):
            sums += more
    return total


def _sums_of(chunks: Sequence[tuple[np.ndarray, np.ndarray | None]], centre: np.ndarray, scale: float) -> Sums:
    """The sums of some chunks with the roots of their weights; the first has the most rows."""
    d, dtype = len(centre), centre.dtype
    total = Sums(np.zeros((d, d)), np.zeros((2, d)), np.zeros(2))
    centred, product = np.empty((len(chunks[0][0]), d), dtype), np.empty((d, d), dtype)
    factors = np.ones((2, _FILL_ROWS), dtype)  # √w and √w s
    with np.errstate(all="ignore"):
        for chunk, roots in chunks:
            for start in range(0, len(chunk), _FILL_ROWS):
                rows = chunk[start : start + _FILL_ROWS]
                y, (root, s) = centred[start : start + len(rows)], factors[:, : len(rows)]
                np.subtract(rows, centre, out=y, casting="same_kind")
                if scale != 1.0:
                    y *= dtype.type(scale)
                np.vecdot(y, y, out=s)
                if roots is not None:
                    root[:] = roots[start : start + len(rows)]
                    y *= root[:, None]
                    s *= root
                total.vectors[:] += factors[:, : len(rows)] @ y
                total.squares[:] += np.vecdot(root, s, dtype=np.float64), np.vecdot(s, s, dtype=np.float64)
            Y = centred[: len(chunk)]
            total.product[:] += np.matmul(Y.T, Y, out=product)  # NumPy sees the symmetry and calls syrk
    return total


def row_sums(x: jax.Array, roots: jax.Array, centre: jax.Array, scale: jax.Array) -> Sums:
    """The sums of rows on one device, with the roots of their weights; those of weight 0 do not count."""
    y = (x.astype(centre.dtype) - centre) * (scale * (roots > 0))[:, None]
    s = jnp.sum(y * y, axis=1) * roots
    y = y * roots[:, None]
    times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    return Sums(times(y.T, y), times(jnp.stack([roots, s]), y), jnp.stack([(roots * s).sum(), (s * s).sum()]))


@functools.cache
def _device_sums(devices: tuple[jax.Device, ...]) -> Callable[..., Sums]:
    """The pmapped sums, compiled once per (rows per device, d, dtype)."""

    def sums(x: jax.Array, roots: jax.Array, centre: jax.Array, scale: jax.Array) -> Sums:
        return lax.psum(row_sums(x, roots, centre, scale), "rows")

    return jax.pmap(sums, axis_name="rows", in_axes=(0, 0, None, None), out_axes=None, devices=devices)


def sums_on_devices(
    block: np.ndarray,
    centre: np.ndarray,
    scale: float,
    devices: Sequence[jax.Device],
    full: int,
    roots: np.ndarray | None = None,
) -> Sums:
    """Starts the sums of one block on all devices and returns at once. Rows that do not divide are padded, weight 0."""
    n, d = block.shape
    x = device_block(block)
    no_double = centre.dtype == np.float64 and devices[0].platform not in _DOUBLE_PLATFORMS
    if no_double or scale > 2.0**90:  # so small that some rows lie where XLA flushes to zero
        dtype = np.dtype(np.float32) if no_double else centre.dtype
        with np.errstate(all="ignore"):
            x = ((x - centre) * scale).astype(dtype)
        centre, scale = np.zeros(d, dtype), 1.0
    rows = row_bucket(n, full, len(devices))
    each = rows // len(devices)
    counted = np.zeros(rows, centre.dtype)  # not the padding
    counted[:n] = 1 if roots is None else roots
    with jax.enable_x64(centre.dtype == np.float64):
        return _device_sums(tuple(devices))(
            pad_rows(x, rows).reshape(len(devices), each, d),
            counted.reshape(len(devices), each),
            centre,
            np.asarray(scale, centre.dtype),
        )
