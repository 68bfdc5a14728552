"""Array-like input: conversion of rows to matrices, checks, and blocks of few different sizes."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from jaxwhiten.errors import REASON, InputError, NonFiniteError, turning
from jaxwhiten.types import AnyArray, Float, RowsLike
from jaxwhiten.vectors import Vectors, check_comparable, space_of

BLOCK_BYTES = 64 << 20
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
_DEVICE_DTYPES = tuple(np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))

T = TypeVar("T")


def check_collected(x: RowsLike) -> None:
    """Raises InputError for a table that is not computed yet, such as a LazyFrame of polars."""
    if hasattr(x, "collect") and (hasattr(x, "collect_schema") or hasattr(x, "columns")):
        kind = type(x).__name__
        raise InputError(f"Expected values, got a {kind}, which is not computed yet: pass the result of its collect().")


def _of_arrow(x: RowsLike) -> Any:
    """The rows of an Arrow column of lists; other objects unchanged."""
    import pyarrow as pa

    if not isinstance(x, pa.Array | pa.ChunkedArray) or not pa.types.is_nested(x.type):
        return x
    if x.null_count:
        raise NonFiniteError(f"Row {x.is_null().index(True)} is missing: remove or fill it.")
    return vectors_of(x)


def as_floats(x: RowsLike) -> np.ndarray:
    """Array-like vectors as numbers: coded vectors are decoded, other numbers kept.

    InputError for bytes alone, masks, missing values, dates, and other objects that are no numbers; MismatchError for a
    list of vectors in different spaces.
    """
    if isinstance(x, Vectors):
        if x.code is not None:
            return x.decode()
        x = x.view(np.ndarray)
    if type(x) is np.ndarray and x.dtype.kind == "f":
        return x
    if isinstance(x, list | tuple):
        space_of(x)
    if "numpy.ma" in sys.modules and np.ma.is_masked(x):  # its import takes as long as a batch
        raise InputError("Expected numbers, got masked entries: pass x.filled(value) or np.ma.compress_rows(x).")
    check_collected(x)
    if hasattr(x, "detach") and hasattr(x, "cpu"):  # of torch, where NumPy has no bfloat16
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            x = x.float()
    if "pyarrow" in sys.modules and hasattr(x, "null_count"):
        x = _of_arrow(x)
    with turning(InputError, f"Expected rows of numbers, all of one length: {REASON}", ValueError):
        array = np.asarray(x)
        if array.dtype == object and array.ndim == 1 and len(array) and np.ndim(array[0]) == 1:
            array = np.array(array.tolist())  # a column of rows, as pandas has them
    if array.dtype.kind in "OUSmM":
        return numbers_of(array)
    if array.dtype.kind == "c":
        raise InputError(f"Complex data not supported: expected real numbers, got dtype {array.dtype}.")
    if array.dtype in _BYTES:
        raise InputError(
            f"These are bytes ({array.dtype} of shape {array.shape}) without their code, so they cannot be decoded:"
            " pass the array that `encode` returned, or code.decode(codes)."
        )
    return array


def vectors_of(column: RowsLike) -> np.ndarray:
    """The vectors [n, d] of an Arrow column of lists, or the uint8 codes of a column of bytes, without the nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    column = (column.storage if isinstance(column, pa.ExtensionArray) else column).drop_null()
    if pa.types.is_fixed_size_binary(column.type):
        return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(len(column), -1 if len(column) else 0)
    widths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(widths) > 1:
        raise InputError(f"The vectors are of different widths, {sorted(widths)[:2]}: embed them with one encoder.")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), *widths or [0])


class _NotANumberError(InputError, TypeError):
    """Also a TypeError, which scikit-learn expects of estimators."""


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Objects and strings in float64; InputError names the first one that is no number."""
    if array.dtype.kind in "mM":
        raise InputError(f"Expected numbers, got dates or times ({array.dtype}): convert or drop these columns.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise _refused(array, error) from error


def _refused(array: np.ndarray, error: Exception) -> InputError:
    """The error for the first value of an array that is no number."""
    values = ((row, value) for row, values in enumerate(np.atleast_1d(array)) for value in np.ravel(values))
    first = next((pair for pair in values if not _is_number(pair[1])), None)
    if first is None:
        return InputError(f"Expected rows of numbers, got dtype {array.dtype}: {error}.")
    row, value = first
    if str(value) in ("<NA>", "NaT"):
        return NonFiniteError(f"Row {row} contains the missing value {value!r}: remove or fill it.")
    if isinstance(value, np.generic):
        value = value.item()
    what = f"got the {type(value).__name__} {value!r:.60} in row {row}"
    return _NotANumberError(f"Expected rows of numbers, {what}: convert or drop it ({error}).")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def comparable(a: RowsLike, b: RowsLike) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of vectors as floats; codes are decoded, to vectors of the space that was coded.

    MismatchError if both sides know their spaces and these differ. Queries may be compared with documents.
    """
    check_comparable(a, b)
    return as_floats(a), as_floats(b)


def as_matrix(X: RowsLike, caller: str = "Moments", columns: int | None = None, min_rows: int = 0) -> np.ndarray:
    """Views [n, d] array-like input as a real matrix, without copying arrays and memory maps or reading their values.

    Coded vectors are decoded. Raises InputError, which names the `caller`, for sparse, complex or non-numeric input,
    for bytes without their code, and for a wrong number of dimensions, columns (`columns`) or rows (`min_rows`).
    """
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise InputError(f"{caller} takes dense rows, not a sparse matrix: pass X.toarray().")
    array = as_floats(X)
    if array.dtype.kind not in "fiub" and array.dtype not in _DEVICE_DTYPES:
        array = numbers_of(array)
    if array.ndim != 2:
        raise InputError(
            f"Expected 2D array, got {array.ndim}D array instead: {caller} takes [n, d]. Reshape your data with "
            "X.reshape(1, -1) if it is a single row, or X.reshape(-1, 1) if it is a single feature."
        )
    if array.shape[1] == 0:
        raise InputError(f"{caller} got 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if columns is not None and array.shape[1] != columns:
        raise InputError(f"X has {array.shape[1]} features, but {caller} is expecting {columns} features as input.")
    if len(array) < min_rows:
        raise InputError(
            f"Found array with {len(array)} sample(s) (shape={array.shape}) while a minimum of {min_rows} is required "
            f"by {caller}."
        )
    return array


def column_values(column: RowsLike) -> Any:
    """The values of a column of NumPy, pandas, polars, Arrow or datasets as a list; other objects unchanged.

    InputError for a column of a stream of datasets, which may be shuffled: another column would be of other rows.
    """
    if type(column).__name__ == "IterableColumn":
        raise InputError("A column of a stream may be in another order each time: pass the stream, or list(stream).")
    for name in ("tolist", "to_pylist", "to_list"):
        if hasattr(column, name):
            return getattr(column, name)()
    return column


def work_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which rows are computed: float32 for float32 and all 8- and 16-bit types, float64 for the rest."""
    return np.dtype(np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64)


def resolution(dtype: np.dtype) -> float:
    """The relative spacing of a dtype's numbers; that of float64 for integers, and at least that."""
    floats = dtype.kind == "f" or dtype in _DEVICE_DTYPES
    return max(float(ml_dtypes.finfo(dtype).eps) if floats else 0.0, float(np.finfo(np.float64).eps))


def device_block(block: np.ndarray) -> np.ndarray:
    """The block in a dtype that JAX takes; integers and foreign byte orders are copied to `work_dtype`."""
    if block.dtype in _DEVICE_DTYPES:
        return block
    return block.astype(work_dtype(block.dtype))


def release_pages(block: np.ndarray) -> None:
    """Unmaps the pages of rows of a file that is mapped read-only; other arrays are not touched.

    The rows can still be read: the system loads them again. Without this, a file that is read once counts as resident
    memory while there is room. A fit of a 1.5 GB file was measured to peak at 1.9 GB without it, and at 0.7 GB with it.
    """
    owner: Any = block
    while isinstance(owner, np.ndarray):
        owner = owner.base
    read_only = isinstance(owner, mmap.mmap) and block.flags.c_contiguous and not block.flags.writeable
    if not read_only or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = block.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (begin + block.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)


def first_nonfinite_row(block: np.ndarray) -> int | None:
    """Index of the first row that contains NaN or infinity, or None."""
    if block.dtype.kind in "iub":
        return None
    bad = ~np.isfinite(block).all(axis=1)
    if bad.any():
        return int(np.argmax(bad))
    return None


def check_finite(X: np.ndarray, first: int = 0, what: str = "input") -> None:
    """Raises NonFiniteError for a row that holds NaN or an infinity; its message counts rows from `first`."""
    for part in blocks(len(X), block_rows(X.shape[1], X.dtype.itemsize)):
        row = first_nonfinite_row(X[part])
        if row is not None:
            raise NonFiniteError.of_row(first + part.start + row, what)


def row_bucket(n: int, full: int, multiple: int = 1) -> int:
    """n rounded up to one of few sizes (2^i and 3·2^i), so that few programs are compiled."""
    size = 8
    while size < n:
        size = size * 3 // 2 if size & size - 1 == 0 else size * 4 // 3
    return -(-min(size, max(full, n)) // multiple) * multiple


def pad_rows(block: np.ndarray, rows: int) -> np.ndarray:
    """The block, padded with rows of zeros to `rows` rows."""
    missing = rows - len(block)
    if missing:
        return np.concatenate([block, np.zeros((missing, *block.shape[1:]), block.dtype)])
    return block


def blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows that cover `range(n)`."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def one_ahead(dispatched: Iterable[T]) -> Iterator[T]:
    """Yields each item after the next one is produced, so that a device computes while the host fetches.

    `dispatched` is a lazy iterable that dispatches work when the next item is requested. At most two items are held.
    """
    items = iter(dispatched)
    for waiting in items:
        for item in items:
            yield waiting
            waiting = item
        yield waiting


def block_rows(d: int, itemsize: int, budget: int = BLOCK_BYTES) -> int:
    """Rows of a full block: the largest power of two within the byte budget, at least 8."""
    return max(8, 1 << (max(1, budget // (d * itemsize)).bit_length() - 1))


def normalize(x: RowsLike) -> Float[np.ndarray, "*batch d"]:
    """Scales vectors [..., d] to unit length, in float32 or float64; zeros stay zero, codes are decoded.

    >>> normalize(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])

    Raises:
      InputError: Bytes without their code.
      NonFiniteError: A vector holds NaN or an infinity; the message names its row.
    """
    x = as_floats(x)
    x = x.astype(work_dtype(x.dtype), copy=False)
    rows = x.reshape(-1, x.shape[-1])
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
    limits = np.finfo(x.dtype)
    usual = (squares > limits.tiny / limits.eps) & (squares <= limits.max)
    if not usual.all():  # zero, not finite, or squares outside the range: scale by a power of two first
        odd = np.flatnonzero(~usual)
        largest = np.abs(rows[odd]).max(axis=1, initial=0.0)
        if not np.isfinite(largest).all():
            raise NonFiniteError.of_row(int(odd[np.argmax(~np.isfinite(largest))]))
        rows = rows.copy()
        rows[odd] = np.ldexp(rows[odd], -np.frexp(largest)[1][:, None])
        squares[odd] = np.einsum("ij,ij->i", rows[odd], rows[odd])
        squares[squares == 0] = 1
    return (rows / np.sqrt(squares)[:, None]).reshape(x.shape)


def is_of_jax(x: RowsLike) -> bool:
    """Whether x is an array of JAX, also inside a compiled function; JAX is not imported for this."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def normalize_on_device(x: Float[AnyArray, "*batch d"]) -> Float[AnyArray, "*batch d"]:
    """`normalize` in JAX, usable inside a compiled function: zero vectors stay zero, with finite gradients.

    A row with a NaN or an infinity holds NaN afterwards, because a compiled function cannot raise.
    """
    import jax
    import jax.numpy as jnp

    # A power of two near the largest entry changes no digit, and keeps squares within the range of float32.
    exponent = jnp.frexp(jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True)))[1]
    scaled = x * jnp.ldexp(jnp.ones((), x.dtype), -jnp.clip(exponent, -126, 126))
    squares = jnp.sum(scaled * scaled, axis=-1, keepdims=True)
    zero = squares == 0
    return jnp.where(zero, 0.0, scaled * jax.lax.rsqrt(jnp.where(zero, 1.0, squares)))


def column_of(vectors: np.ndarray, valid: np.ndarray | None = None) -> Any:
    """An Arrow column of vectors, as lists of fixed size, or of codes, as bytes of fixed size.

    `valid` is False where the column has a null between the vectors.
    """
    import pyarrow as pa

    if getattr(vectors, "code", None) is not None:
        buffers = [None, pa.py_buffer(vectors.tobytes())]
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(vectors.shape[1]), len(vectors), buffers)
    else:
        column = pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(vectors).reshape(-1)), vectors.shape[1]
        )
    if valid is None:
        return column
    return column.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
