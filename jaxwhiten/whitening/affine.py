"""The affine map (x − shift) A + offset of rows, on the host, on devices, in FAISS and in files."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

from jaxwhiten import arrays
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import hardware
from jaxwhiten.types import AnyArray, Float, Float32, RowsLike, Shaped

_BLOCK_BYTES = 32 << 20
_HOST_BLOCK_BYTES = 256 << 20
_CHUNK_BYTES = 2 << 20  # bytes of rows that a core shifts and multiplies at a time
_FEW_ROWS = 16  # up to this many rows stay on the host
_MOST = 1e30  # entries above it or below its inverse bring results near the limits of float32


def linear(
    x: Float[AnyArray, "*batch d"], weight: Float[AnyArray, "d k"], bias: Float[AnyArray, " k"] | None = None
) -> Float[AnyArray, "*batch k"]:
    """x W + b in JAX, with float32 products on every device, or in NumPy; also inside compiled functions."""
    if isinstance(x, np.ndarray):
        product = x @ weight
    else:
        product = x.__array_namespace__().matmul(x, weight, precision="highest")
    if bias is None:
        return product
    return product + bias


@functools.cache
def map_block() -> Any:
    """The compiled map of a block of rows by shift, A and offset; also gives whether all results are finite."""
    import jax

    def mapped(x: RowsLike, shift: AnyArray, matrix: AnyArray, offset: AnyArray) -> tuple[AnyArray, AnyArray]:
        y = linear(x.astype(shift.dtype) - shift, matrix, offset)
        return y, jax.numpy.isfinite(y).all()

    return jax.jit(mapped)


class Affine:
    """The map x ↦ (x − shift) A + offset, optionally followed by scaling to unit length.

    Rows of float32 and of 8- and 16-bit types are mapped in float32, on the accelerator or, without one, by the host's
    BLAS, which copies nothing. Other rows are mapped in float64 on the host, and so is every row if the entries of A
    are near the limits of float32. If `shift` is float32, the result is float32 for every input dtype. `shift` is
    subtracted before the product and its rounding error is added to the offset, so that rows far from the origin keep
    their digits. `matrix=None` is the identity, whose shift and offset must be zero; `offset=None` is zero. Zero rows
    stay zero under scaling to unit length. Several threads may call one map.
    """

    def __init__(
        self,
        shift: Float[np.ndarray, " d"],
        matrix: Float[np.ndarray, "d k"] | None = None,
        offset: Float[np.ndarray, " k"] | None = None,
        *,
        unit_length: bool = False,
    ) -> None:
        self.shift = shift
        self.matrix = matrix
        self.unit_length = unit_length
        self.inputs = len(shift)
        if matrix is None:
            self.outputs = len(shift)
        else:
            self.outputs = matrix.shape[1]
        if offset is None:
            self.offset = np.zeros(self.outputs, shift.dtype)
        else:
            self.offset = offset
        size = 1.0 if matrix is None else float(np.abs(matrix).max(initial=0.0))
        self._extreme = size > _MOST or 0 < size < 1 / _MOST
        self._constants: dict[Any, tuple[Any, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:  # copies make their own constants of devices
        return vars(self) | {"_constants": {}}

    @functools.cached_property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and b of the map written as x W + b, rounded to float32 once; unit length is not part of it."""
        if self.matrix is None:
            return np.eye(self.inputs, dtype=np.float32), np.zeros(self.outputs, np.float32)
        bias = self.offset - self.shift @ self.matrix
        return np.ascontiguousarray(self.matrix, np.float32), bias.astype(np.float32)

    @property
    def parts(self) -> tuple[Float32[np.ndarray, " d"], Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """Shift, A and offset in float32, the form in which all other programs and files get a map."""
        shift, matrix, offset = self._in(np.dtype(np.float32))
        return shift, matrix, offset

    def in_float32(self, *, unit_length: bool) -> Affine:
        """This map with its `parts`, with or without scaling to unit length."""
        if self.matrix is None:
            return Affine(np.zeros(self.inputs, np.float32), unit_length=unit_length)
        return Affine(*self.parts, unit_length=unit_length)

    def times(self, B: Float[np.ndarray, "k m"]) -> Affine:
        """This map, then a linear map of its results before they are scaled to unit length; in float32."""
        matrix = B if self.matrix is None else self.matrix @ B
        return Affine(self.shift, matrix, self.offset @ B).in_float32(unit_length=self.unit_length)

    def hash(self) -> str | None:
        """SHA-256 over the `parts`, or None for the identity."""
        if self.matrix is None:
            return None
        shift, weight, bias = self.parts
        content = f"{weight.shape}".encode() + weight.tobytes() + bias.tobytes() + shift.tobytes()
        return hashlib.sha256(content).hexdigest()

    def on_device(self, x: Float[AnyArray, "n d"]) -> Float[AnyArray, "n k"]:
        """Maps a JAX array on its device; also usable inside a compiled function."""
        if self.matrix is not None:
            shift, matrix, offset = self.parts
            x = linear(x.astype(np.float32) - shift, matrix, offset)
        if self.unit_length:
            return arrays.normalize_on_device(x)
        return x

    def __call__(self, X: Shaped[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Maps rows that `arrays.as_matrix` has checked, to float32 or float64.

        Raises:
          NonFiniteError: A row holds NaN or an infinity.
          InputError: A result overflows its dtype.
        """
        out_dtype = min(arrays.work_dtype(X.dtype), self.shift.dtype, key=lambda dtype: dtype.itemsize)
        if self.matrix is None:
            if not self.unit_length:  # which checks it
                arrays.check_finite(X)
            mapped = np.asarray(X, out_dtype)
        else:
            mapped = self._mapped(X, out_dtype)
        if self.unit_length:
            return arrays.normalize(mapped)
        return mapped

    def _mapped(self, X: np.ndarray, out_dtype: np.dtype) -> np.ndarray:
        dtype = np.dtype(np.float64) if self._extreme else out_dtype
        out = np.empty((len(X), self.outputs), out_dtype)
        on_host = dtype == np.float64 or len(X) <= _FEW_ROWS or not hardware.has_accelerator()
        doubtful = self._map_on_host(X, out, dtype) if on_host else self._map_on_device(X, out)
        for part in doubtful:
            arrays.check_finite(X[part], part.start)
            row = arrays.first_nonfinite_row(out[part])
            if row is not None:
                raise InputError(f"Row {part.start + row} of the input overflows {out.dtype}: scale it down.")
        return out

    def _in(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """shift, A and offset in `dtype`. Threads that race here compute the same arrays."""
        assert self.matrix is not None
        if dtype not in self._constants:
            with np.errstate(over="ignore"):
                shift = self.shift.astype(dtype)
                offset = self.offset - (self.shift - shift) @ self.matrix
                self._constants[dtype] = (shift, np.ascontiguousarray(self.matrix, dtype), offset.astype(dtype))
        return self._constants[dtype]

    def _map_on_host(self, X: np.ndarray, out: np.ndarray, dtype: np.dtype) -> list[slice]:
        """Fills `out` with each core on its own chunks; returns, in order, chunks whose results may not be finite."""
        n, d = X.shape
        (shift, matrix, offset), doubtful = self._in(dtype), list[slice]()
        work = functools.partial(_map_chunks, X, out, shift, matrix, offset)
        rows = max(1, _CHUNK_BYTES // (d * dtype.itemsize))
        full = rows * max(1, _HOST_BLOCK_BYTES // _CHUNK_BYTES)
        for part in arrays.blocks(n, full):  # an interrupt waits for one block, not for all rows
            numbers = range(part.start, part.stop)
            for chunks in hardware.on_cores(work, numbers, rows, hardware.cores()):
                doubtful += chunks
        return sorted(doubtful, key=lambda part: part.start)

    def _map_on_device(self, X: np.ndarray, out: np.ndarray) -> list[slice]:
        """Fills `out`, dispatching each block before fetching the last; returns the same as `_map_on_host`."""
        import jax

        n, d = X.shape
        full = arrays.block_rows(max(d, out.shape[1]), out.dtype.itemsize, _BLOCK_BYTES)
        if "device" not in self._constants:
            self._constants["device"] = tuple(jax.device_put(a) for a in self._in(out.dtype))
        constants = self._constants["device"]
        doubtful = []

        def dispatch(part: slice) -> tuple[slice, AnyArray, AnyArray]:
            block = arrays.device_block(X[part])
            return part, *map_block()(arrays.pad_rows(block, arrays.row_bucket(len(block), full)), *constants)

        for part, mapped, finite in arrays.one_ahead(map(dispatch, arrays.blocks(n, full))):
            out[part] = np.asarray(mapped)[: part.stop - part.start]
            if not finite:
                doubtful.append(part)
        return doubtful


def _map_chunks(
    X: np.ndarray, out: np.ndarray, shift: np.ndarray, matrix: np.ndarray, offset: np.ndarray, chunks: list[slice]
) -> list[slice]:
    """Maps chunks of rows, the largest first; returns the chunks whose results may not be finite."""
    doubtful = []
    most = chunks[0].stop - chunks[0].start
    # Intermediate results stay in the core's cache; `out`, whose pages may be new, is touched only once.
    shifted = np.empty((most, X.shape[1]), shift.dtype)
    product = np.empty((most, len(offset)), shift.dtype)
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
