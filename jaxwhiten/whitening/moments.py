"""Mean and covariance of any number of rows in O(d²) memory: summed block by block, merged exactly in float64."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxwhiten import arrays, io
from jaxwhiten.errors import InputError, MismatchError, check_width
from jaxwhiten.runtime import hardware
from jaxwhiten.space import Space, check_space, merged
from jaxwhiten.types import AnyArray, Fields, Float64, Json, RowsLike
from jaxwhiten.vectors import Vectors, space_of
from jaxwhiten.whitening.estimator import Saved

_CODED_ROWS = 1 << 18
# Bytes of a block on the host. An interrupt waits for one block. Larger blocks were measured to be no faster.
_HOST_BLOCK_BYTES = 256 << 20
_SAMPLE_ROWS = 512
# On the host, each thread copies and centers a chunk of rows, `_FILL_ROWS` at a time to stay in its cache.
_CHUNK_BYTES = 32 << 20
_CHUNKS_BYTES = 256 << 20
_FILL_ROWS = 256
_LEAST_CHUNK = 512
_MATRICES_BYTES = 512 << 20
# Platforms that compute in float64. Elsewhere the host centers float64 rows, and the device sums them in float32.
_DOUBLE_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")

Sums = tuple[Any, Any]
"""Σ yᵀy [d, d] and Σ y [d] over rows y = (x − center) · scale, in NumPy or on a device that may still compute them."""


@dataclasses.dataclass(eq=False, repr=False)
class Moments(Saved):
    """Count, mean and centered second moments of rows: a summary that merges exactly.

    `Moments()` starts empty. `update` and `merge` change it in place and return it. Moments of the parts of a corpus
    merge to the moments of the whole corpus, in any order. Threads have their own each, which are merged at the end.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8))
    >>> Moments().update(rows[:100]).merge(Moments().update(rows[100:]))
    Moments(n=400, d=8)

    Attributes:
      n: Number of rows seen.
      mean: float64 [d], the mean μ of the rows; empty before the first row.
      M2: float64 [d, d], Σ (x−μ)ᵀ(x−μ).
      provenance: The facts given to `save`; `load` restores them.
      eps: Precision of the rows' dtype, the coarsest one seen. A fit takes a variance below (eps · mean)² for rounding.

    References:
      Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """

    name = "moments"

    n: int = 0
    mean: np.ndarray = dataclasses.field(default_factory=functools.partial(np.zeros, 0))
    M2: np.ndarray = dataclasses.field(default_factory=functools.partial(np.zeros, (0, 0)))
    provenance: Json = dataclasses.field(default_factory=dict)
    eps: float = float(np.finfo(np.float64).eps)

    @classmethod
    def of(cls, rows: AnyArray) -> Moments:
        """The moments of rows, see `update`."""
        return cls().update(rows)

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, d={len(self.mean)})"

    def update(self, block: AnyArray) -> Moments:
        """Adds rows. The first rows decide the space: if they know it, its record becomes part of the provenance.

        Args:
          block: [n, d] rows in float16, bfloat16, float32, float64 or integers, or codes, which are decoded part by
            part. A memory map is read block by block. Rows of 16 bits and float32 are summed in float32, others in
            float64. n may be 0.

        Raises:
          NonFiniteError: A row holds NaN or an infinity. The message names the row; nothing is changed.
          MismatchError: The rows are of another space than earlier rows, and both are known, or of another width.
        """
        space = space_of(block)
        first = self.n == 0
        if space is not None:
            check_space("these moments", Space.of(self.provenance), space, "omit them")
        if isinstance(block, Vectors) and block.code is not None:
            for part in arrays.blocks(len(block), _CODED_ROWS):
                self._update(arrays.as_matrix(block[part]))
        else:
            self._update(arrays.as_matrix(block))
        if first and self.n and space is not None:
            self.provenance = {**space.record(), **self.provenance}
        return self

    def _update(self, X: np.ndarray) -> Moments:
        if self.n:
            check_width("sum", len(self.mean), X.shape[1], "the rows")
        total = Moments(eps=arrays.resolution(X.dtype))
        for of_block in block_moments(X):
            total._merge(of_block)
        return self._merge(total)

    def merge(self, other: Moments, where: object = "the other moments") -> Moments:
        """Adds the rows that `other` summarizes, which has as many columns or is empty; `other` is not changed.

        `where` names the other summary in messages, such as its file.

        Raises:
          MismatchError: The two are of vectors in different spaces, as far as their provenance says.
        """
        if self.n and other.n:
            check_width("sum", len(self.mean), len(other.mean), where)
            self.provenance = merged(where, self.provenance, other.provenance)
        elif other.n:
            self.provenance = {**other.provenance, **self.provenance}
        return self._merge(other)

    def _merge(self, other: Moments) -> Moments:
        if other.n == 0:
            return self
        self.eps = max(self.eps, other.eps)
        if self.n == 0:
            self.n = other.n
            self.mean = other.mean.copy()
            self.M2 = other.M2.copy()
            return self
        delta = other.mean - self.mean
        share = other.n / (self.n + other.n)
        self.M2 += other.M2
        self.M2 += np.outer(root := delta * np.sqrt(self.n * share), root)
        self.n = self.n + other.n
        self.mean = self.mean + delta * share
        return self

    def covariance(self, ddof: int = 0) -> Float64[np.ndarray, "d d"]:
        """M2 / (n − ddof), a new matrix. `ddof=0` is the paper's E[xᵀx] − μᵀμ, `ddof=1` is numpy's default."""
        if self.n <= ddof:
            raise InputError(f"A covariance with ddof={ddof} needs at least {ddof + 1} rows; {self.n} were seen.")
        return self.M2 / (self.n - ddof)

    def save(self, path: io.PathLike, provenance: Fields | None = None) -> None:
        """Writes a safetensors file with a JSON header; `provenance` adds facts, such as model and pooling."""
        facts = {"n": self.n, "dimension": len(self.mean)}
        header = {"provenance": {**self.provenance, **(provenance or {}), **facts}}
        io.save_tensors(path, self.tensors(), kind=self.name, header=header)

    def tensors(self) -> dict[str, np.ndarray]:
        """The numbers as named arrays."""
        return {"n": np.array([self.n], np.int64), "mean": self.mean, "M2": self.M2, "eps": np.array([self.eps])}

    @classmethod
    def _restored(cls, tensors: Mapping[str, np.ndarray], provenance: Json) -> Moments:
        d = tensors["mean"].size
        mean, M2 = io.take(tensors, "float64", mean=(d,), M2=(d, d))
        n = int(tensors["n"].item())
        eps = float(tensors["eps"].item())
        io.within(f"n, with {d} columns", n, min(1, d), None if d else 0)
        io.within("precision", eps, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0))
        diagonal = np.diagonal(M2)
        io.within("variances", diagonal, 0.0)
        if not np.allclose(M2, M2.T, rtol=1e-9, atol=1e-12 * diagonal.max(initial=0.0)):
            raise ValueError("M2 is not symmetric")
        return cls(n, mean, M2, provenance, eps)

    def packed(self) -> Float64[np.ndarray, " packed"]:
        """n, eps, mean and M2 in one array, for another process; n is exact up to 2^53."""
        return np.concatenate([[self.n, self.eps], self.mean, self.M2.ravel()])

    @classmethod
    def unpacked(cls, packed: Float64[np.ndarray, " packed"]) -> Moments:
        """The inverse of `packed`."""
        d = math.isqrt(len(packed) - 2)
        (n, eps), mean, M2 = np.split(packed.copy(), [2, 2 + d])
        return cls(int(n), mean, M2.reshape(d, d), eps=float(eps))


def block_moments(X: np.ndarray, devices: Sequence[Any] | None = None) -> Iterator[Moments]:
    """The moments of rows block by block, on all local devices or, for a lone CPU, by the host's BLAS.

    XLA has no symmetric product, so that BLAS `syrk` is twice as fast on a CPU. On devices, each block
    is dispatched before the sums of the last one are fetched. Raises NonFiniteError for rows that are not finite.
    """
    import jax

    (n, d), dtype, devices = X.shape, arrays.work_dtype(X.dtype), jax.local_devices() if devices is None else devices
    on_host = len(devices) == 1 and devices[0].platform == "cpu"
    full = arrays.block_rows(d, dtype.itemsize, _HOST_BLOCK_BYTES if on_host else arrays.BLOCK_BYTES)

    def dispatch(rows: slice) -> tuple[slice, Sums, tuple[np.ndarray, float]]:
        scaling = center_and_scale(X[rows], dtype)
        if on_host or scaling[0].dtype != dtype:
            return rows, sums_on_host(X[rows], *scaling), scaling
        return rows, sums_on_devices(X[rows], *scaling, devices, full), scaling

    dispatched = map(dispatch, arrays.blocks(n, full))
    for rows, sums, scaling in dispatched if on_host else arrays.one_ahead(dispatched):
        moments = moments_of(len(block := X[rows]), sums, *scaling)
        if moments is None:
            arrays.check_finite(block, rows.start)
            scaling = center_and_scale(block, np.dtype(np.float64))
            moments = moments_of(len(block), sums_on_host(block, *scaling), *scaling)
        if moments is None:
            raise InputError(
                f"Rows {rows.start} to {rows.stop - 1} contain values whose squares overflow float64: scale the input"
                " down. Nothing was changed."
            )
        yield moments
        arrays.release_pages(block)


def center_and_scale(block: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, float]:
    """An approximate center in the dtype of the sums, and a power of two that keeps squares within its range.

    The sums of repeated rows are in float64: equal products round alike, and float32 would show a variance.
    """
    sample = block[:: max(1, len(block) // _SAMPLE_ROWS)]
    if len(set(map(np.ndarray.tobytes, sample))) < len(sample) / 8:
        dtype = np.dtype(np.float64)
    sample = sample.astype(np.float64)
    with np.errstate(all="ignore"):
        center = sample.mean(axis=0).astype(dtype)
        spread = float(np.max(np.abs(sample - center)))
    exponent = np.frexp(spread)[1] if np.isfinite(spread) else 0
    return center, 1.0 if abs(exponent) <= 16 else float(np.ldexp(1.0, -int(np.clip(exponent, -120, 120))))


def sums_on_host(block: np.ndarray, center: np.ndarray, scale: float) -> Sums:
    """The sums in float64 of chunks that BLAS computes in the dtype of `center`.

    Every core takes its own chunks. If a matrix per core would take too much memory, BLAS's own threads share one.
    """
    (n, d), cores = block.shape, hardware.cores()
    threads = 1 if cores * d * d * (8 + center.dtype.itemsize) > _MATRICES_BYTES else cores
    most = max(_LEAST_CHUNK, min(_CHUNK_BYTES, _CHUNKS_BYTES // threads) // (d * center.dtype.itemsize))
    work = functools.partial(_sums_of_chunks, block, center, scale)
    total, *others = hardware.on_cores(work, range(n), most, threads)
    for other in others:
        for sums, more in zip(total, other, strict=True):
            sums += more
    return total


def _sums_of_chunks(block: np.ndarray, center: np.ndarray, scale: float, chunks: Sequence[slice]) -> Sums:
    """The sums of several chunks of rows, the largest first."""
    d = len(center)
    dtype = center.dtype
    longest = chunks[0].stop - chunks[0].start
    product_sum = np.zeros((d, d))
    total = np.zeros(d)
    centered = np.empty((longest, d), dtype)
    product = np.empty((d, d), dtype)
    ones = np.ones(_FILL_ROWS, dtype)
    with np.errstate(all="ignore"):
        for chunk in chunks:
            Y = centered[: chunk.stop - chunk.start]
            for start in range(0, len(Y), _FILL_ROWS):
                y = Y[start : start + _FILL_ROWS]
                first = chunk.start + start
                np.subtract(block[first : first + len(y)], center, out=y, casting="same_kind")
                if scale != 1.0:
                    y *= dtype.type(scale)
                total += ones[: len(y)] @ y
            product_sum += np.matmul(Y.T, Y, out=product)  # NumPy sees the symmetry and calls syrk
    return product_sum, total


@functools.cache
def device_sums(devices: tuple[Any, ...]) -> Callable[..., Sums]:
    """The pmapped sums, compiled once for each (rows per device, d, dtype); a count is 1 for a row, 0 for padding."""
    import jax

    times = functools.partial(jax.numpy.matmul, precision=jax.lax.Precision.HIGHEST)

    def sums(x: RowsLike, counts: AnyArray, center: AnyArray, scale: AnyArray) -> Sums:
        y = (x.astype(center.dtype) - center) * (scale * counts)[:, None]
        return jax.lax.psum((times(y.T, y), times(counts, y)), "rows")

    return jax.pmap(sums, axis_name="rows", in_axes=(0, 0, None, None), out_axes=None, devices=devices)


def sums_on_devices(block: np.ndarray, center: np.ndarray, scale: float, devices: Sequence[Any], full: int) -> Sums:
    """Dispatches the sums of one block on all devices. Rows are padded to a multiple of the devices, with count 0."""
    import jax

    n, d = block.shape
    x = arrays.device_block(block)
    no_double = center.dtype == np.float64 and devices[0].platform not in _DOUBLE_PLATFORMS
    if no_double or scale > 2.0**90:  # rows so small that XLA would flush some to zero
        dtype = np.dtype(np.float32) if no_double else center.dtype
        with np.errstate(all="ignore"):
            x = ((x - center) * scale).astype(dtype)
        center = np.zeros(d, dtype)
        scale = 1.0
    rows = arrays.row_bucket(n, full, len(devices))
    each = rows // len(devices)
    with jax.enable_x64(center.dtype == np.float64):
        return device_sums(tuple(devices))(
            arrays.pad_rows(x, rows).reshape(len(devices), each, d),
            arrays.pad_rows(np.ones(n, center.dtype), rows).reshape(len(devices), each),
            center,
            np.asarray(scale, center.dtype),
        )


def moments_of(n: int, sums: Any, center: AnyArray, scale: AnyArray) -> Moments | None:
    """The moments of n rows from sums about a center; None if these are not finite or underflowed in float32."""
    if not n:
        return Moments()
    product, total, scale = *map(np.asarray, sums), float(scale)
    if np.float32 in (center.dtype, total.dtype) and np.trace(product, dtype=np.float64) < 1e-16 * n:
        return None
    with np.errstate(all="ignore"):
        shift = np.asarray(total, np.float64) / (scale * n)
        M2 = np.add(product, product.T, dtype=np.float64)  # the last bits of a device's product are not symmetric
        M2 *= 0.5 / scale**2
        M2 -= np.outer(root := shift * np.sqrt(n), root)
        np.fill_diagonal(M2, np.maximum(np.diagonal(M2), 0.0))  # squares may have underflowed in float32
        result = Moments(n, center.astype(np.float64) + shift, M2, eps=arrays.resolution(center.dtype))
    return result if np.isfinite(result.mean).all() and np.isfinite(M2).all() else None


def merge_moments(moments: Moments) -> Moments:
    """The moments of the rows of all processes, in every process: float64, merged in the order of the processes.

    Collective: every process has to call it. Memory is two summaries, however many processes there are. `moments` is
    empty if this process has no rows, and is not changed. The result is bit-equal in all processes.

    >>> merge_moments(Moments().update(np.eye(4)))  # in a job of one process
    Moments(n=4, d=4)
    """
    from jaxwhiten.runtime import distributed

    widths = distributed.gather(len(moments.mean))
    if len(widths) == 1:
        return Moments().merge(moments)
    d = max(widths)
    if set(widths) - {0, d}:
        raise MismatchError(f"The processes have moments of different dimensions: {', '.join(map(str, widths))}.")
    total = Moments()
    packed = moments.packed() if moments.n else np.zeros(2 + d + d * d)
    for source in range(len(widths)):
        total.merge(Moments.unpacked(distributed.broadcast(packed, source)))
    return total
