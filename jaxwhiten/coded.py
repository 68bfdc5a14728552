"""Coded vectors: bytes that know their code, and the one place that turns them into comparable vectors.

codes = encoder.encode(texts)  # an encoder that ends with a code gives uint8 [n, bytes]
codes.decode()                 # float32 [n, k]: the vectors that the bytes represent
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from jaxwhiten.errors import InputError, MismatchError, NonFiniteError
from jaxwhiten.shapes import Float

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


class CodedArray(np.ndarray):
    """Codes [n, bytes] or one code [bytes], in uint8 or int8, with the fitted `jaxwhiten.codes.Code` as `code`.

    Rows, copies, stacks and pickles keep the code. Arithmetic, other dtypes and `np.asarray` give plain numbers.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    >>> SpectrumCode(bytes=4).fit(rows).encode(rows)[:2].decode().shape
    (2, 8)
    """

    code: Any

    def __array_finalize__(self, source: Any) -> None:
        whole = self.dtype in _BYTES and self.shape[-1:] == np.shape(source)[-1:]
        self.code = getattr(source, "code", None) if whole else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = super().__array_function__(function, types, args, kwargs)
        joined = args[0] if function is np.concatenate else ()
        return with_code(out, self.code) if {getattr(x, "code", None) for x in joined} == {self.code} else out

    def __reduce__(self) -> Any:
        return with_code, (np.array(self), self.code)

    def decode(self) -> Float[np.ndarray, "*n k"]:
        """The vectors that the codes represent, see `Code.decode`."""
        decoded: np.ndarray = self.code.decode(self.reshape(-1, self.shape[-1]))
        return decoded if self.ndim == 2 else decoded.reshape(*self.shape[:-1], -1)


def with_code(array: np.ndarray, code: Any) -> np.ndarray:
    """A view of an array of bytes that knows its code; the array itself if the code is None."""
    if code is not None:
        array = array.view(CodedArray)
        array.code = code  # type: ignore[attr-defined]
    return array


def check_collected(x: Any) -> None:
    """Raises InputError for a table that is not computed yet, such as a LazyFrame of polars."""
    if hasattr(x, "collect") and (hasattr(x, "collect_schema") or hasattr(x, "columns")):
        kind = type(x).__name__
        raise InputError(f"Expected values, got a {kind}, which is not computed yet: pass the result of its collect().")


def as_floats(x: Any) -> np.ndarray:
    """Array-like vectors as numbers: coded vectors are decoded, other numbers kept.

    InputError for bytes alone, masks, missing values, dates, and other objects that are no numbers.
    """
    if isinstance(x, CodedArray) and x.code is not None:
        return x.decode()
    if "numpy.ma" in sys.modules and np.ma.is_masked(x):  # its import takes as long as a batch
        raise InputError("Expected numbers, got masked entries: pass x.filled(value) or np.ma.compress_rows(x).")
    check_collected(x)
    try:
        array = np.asarray(x)
    except ValueError as error:  # the rows differ in length
        raise InputError(f"Expected rows of numbers, all of one length: {error}") from error
    if array.dtype.kind in "OUSmM":
        return _numbers(array)
    if array.dtype in _BYTES:
        raise InputError(
            f"These are bytes ({array.dtype} of shape {array.shape}) without their code, so they cannot be decoded:"
            " pass the array that `encode` returned, or code.decode(codes)."
        )
    return array


def _numbers(array: np.ndarray) -> np.ndarray:
    """Objects and strings in float64; InputError names the first one that is no number."""
    if array.dtype.kind in "mM":
        raise InputError(f"Expected numbers, got dates or times ({array.dtype}): convert or drop these columns.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        for row, values in enumerate(np.atleast_1d(array)):
            for value in np.ravel(values):
                try:
                    float(value)
                except (TypeError, ValueError):
                    if str(value) in ("<NA>", "NaT"):
                        missing = f"Row {row} contains the missing value {value!r}: remove or fill it."
                        raise NonFiniteError(missing) from error
                    what = f"got {type(value).__name__} {value!r:.60} in row {row}"
                    raise InputError(f"Expected rows of numbers, {what}: convert or drop it.") from error
        raise InputError(f"Expected rows of numbers, got dtype {array.dtype}: {error}.") from error


def comparable(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of vectors as floats in one space: if only one side is coded, the floats are mapped by its code.

    By their width, the floats are raw vectors or already mapped (`Encoder.without_code`). MismatchError if the two
    codes map vectors differently, if the floats have neither width, or if both widths are equal, so that they do not
    decide.
    """
    first, second = as_floats(a), as_floats(b)
    mine: Any = getattr(a, "code", None)
    other: Any = getattr(b, "code", None)
    if mine is None and other is not None:
        first = _mapped(first, other)
    elif other is None and mine is not None:
        second = _mapped(second, mine)
    elif mine is not other and mine.affine.hash() != other.affine.hash():
        raise MismatchError("The two sides have codes that map vectors differently: code both sides with one code.")
    return first, second


def _mapped(x: np.ndarray, code: Any) -> np.ndarray:
    raw, mapped, width = code.n_features_in_, code.affine.outputs, x.shape[-1]
    known = raw != mapped or code.affine.matrix is None
    if known and width == mapped:
        return x
    if known and width == raw:
        return np.asarray(code.transform(np.atleast_2d(x)))
    takes = f"The code maps raw vectors of {raw} dimensions to {mapped}"
    which = "the floats may be of either kind" if width == raw else f"the floats have {width}"
    raise MismatchError(f"{takes}; {which}. Compare code.transform(raw vectors) with codes.decode().")
