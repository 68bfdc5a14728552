"""Coded vectors: bytes that know their code, and the one place that turns them into comparable vectors.

codes = encoder.encode(texts)  # an encoder that ends with a code gives uint8 [n, bytes]
codes.decode()                 # float32 [n, d]: vectors of the space that was coded
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.errors import REASON, InputError, NonFiniteError, turning
from jaxwhiten.marked import MarkedArray, marked
from jaxwhiten.space import Origin, VectorSpace, check_origin, origin_of
from jaxwhiten.types import Float, RowsLike

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


class _Mark(NamedTuple):
    """What codes know: their code, and where the vectors come from that they represent."""

    code: Any
    origin: Origin | None


class CodedArray(MarkedArray):
    """Codes [n, bytes] or one code [bytes], in uint8 or int8, with the fitted `jaxwhiten.codes.Code` as `code`.

    Rows, copies, pickles and stacks of rows of one code and one space keep both. What else is made of them does not,
    and nor do they after something was written into them.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    >>> SpectrumCode(bytes=4).fit(rows).encode(rows)[:2].decode().shape
    (2, 8)
    """

    @property
    def code(self) -> Any:
        """The code, or None."""
        return None if self.mark is None else self.mark.code

    @property
    def origin(self) -> Origin | None:
        """Where the vectors come from that the codes represent, if that is known."""
        return None if self.mark is None else self.mark.origin

    @property
    def space(self) -> VectorSpace | None:
        """The space of the vectors that the codes represent, if it is known."""
        return self.known_space()

    def known_space(self, judged: bool = False) -> VectorSpace | None:
        """`space`; if `judged`, with the encoder's answer whether it is fine-tuned for similarity."""
        origin = self.origin
        width = None if origin is None else self.code.n_features_in_
        if origin is None:
            return None
        return dataclasses.replace(origin.space(judged), dimension=width)

    def _holds(self, dtype: np.dtype) -> bool:
        return dtype in _BYTES

    @staticmethod
    def _equal(mark: _Mark, other: _Mark) -> bool:
        if mark.code is not other.code:
            return False
        if mark.origin is None or other.origin is None:
            return mark.origin is other.origin
        return mark.origin.is_like(other.origin)

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        result = np.ndarray.astype(self, *args, **kwargs)
        if result.dtype == self.dtype:
            return self._pass_on(result)
        return result

    def view(self, *args: Any, **kwargs: Any) -> Any:
        result = super().view(*args, **kwargs)
        if result.shape == self.shape:
            return self._pass_on(result)
        return result

    def __reduce__(self) -> Any:
        plain = np.array(self)
        mark = self.mark
        if mark is None:
            return plain.__reduce__()
        return with_code, (plain, *mark) if mark.origin is not None else (plain, mark.code)

    def decode(self) -> Float[np.ndarray, "*n d"]:
        """The vectors that the codes represent, see `Code.decode`."""
        decoded: np.ndarray = self.code.decode(self.reshape(-1, self.shape[-1]))
        if self.ndim == 2:
            return decoded
        return decoded.reshape(*self.shape[:-1], -1)


def with_code(array: np.ndarray, code: Any, origin: Origin | None = None) -> np.ndarray:
    """A view of an array of bytes that knows its code, and the origin of its vectors; the array if the code is None."""
    if code is None:
        return array
    return marked(array, CodedArray, _Mark(code, origin))


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
        if isinstance(x, pa.Array):
            row = x.is_null().to_numpy(zero_copy_only=False).argmax()
        else:
            row = x.is_null().index(True)
        raise NonFiniteError(f"Row {row} is missing: remove or fill it.")
    return vectors_of(x)


def as_floats(x: RowsLike) -> np.ndarray:
    """Array-like vectors as numbers: coded vectors are decoded, other numbers kept.

    InputError for bytes alone, masks, missing values, dates, and other objects that are no numbers; MismatchError for a
    list of vectors in different spaces.
    """
    if type(x) is np.ndarray and x.dtype.kind == "f":
        return x
    if isinstance(x, CodedArray) and x.code is not None:
        return x.decode()
    if isinstance(x, list | tuple):
        origin_of(x)
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


def check_comparable(a: RowsLike, b: RowsLike) -> None:
    """Raises MismatchError if vectors or codes of both sides know their spaces and these differ."""
    check_origin("the first vectors", _origin_of(a), _origin_of(b), "compare vectors of one encoder")


def _origin_of(x: RowsLike) -> Origin | None:
    """Where vectors come from; of codes that do not know it, where those of the fit come from."""
    origin = origin_of(x)
    code = getattr(x, "code", None)
    fitted_on: Origin | None = None if code is None else code.origin
    return fitted_on if origin is None else origin
