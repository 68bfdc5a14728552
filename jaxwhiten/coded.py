"""Coded vectors: bytes that know their code, and the one place that turns them into comparable vectors.

codes = encoder.encode(texts)  # an encoder that ends with a code gives uint8 [n, bytes]
codes.decode()                 # float32 [n, k]: the vectors that the bytes represent
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.errors import InputError, MismatchError, NonFiniteError
from jaxwhiten.marked import MarkedArray, marked
from jaxwhiten.shapes import Float
from jaxwhiten.space import Origin, VectorSpace, check_origin, origin_of

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
        width = None if origin is None else self.code.affine.outputs
        return None if origin is None else dataclasses.replace(origin.space(judged), dimension=width)

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
        return self._pass_on(result) if result.dtype == self.dtype else result

    def view(self, *args: Any, **kwargs: Any) -> Any:
        result = super().view(*args, **kwargs)
        return self._pass_on(result) if result.shape == self.shape else result

    def __reduce__(self) -> Any:
        plain, mark = np.array(self), self.mark
        if mark is None:
            return plain.__reduce__()
        return with_code, (plain, *mark) if mark.origin is not None else (plain, mark.code)

    def decode(self) -> Float[np.ndarray, "*n k"]:
        """The vectors that the codes represent, see `Code.decode`."""
        decoded: np.ndarray = self.code.decode(self.reshape(-1, self.shape[-1]))
        return decoded if self.ndim == 2 else decoded.reshape(*self.shape[:-1], -1)


def with_code(array: np.ndarray, code: Any, origin: Origin | None = None) -> np.ndarray:
    """A view of an array of bytes that knows its code, and the origin of its vectors; the array if the code is None."""
    return array if code is None else marked(array, CodedArray, _Mark(code, origin))


def check_collected(x: Any) -> None:
    """Raises InputError for a table that is not computed yet, such as a LazyFrame of polars."""
    if hasattr(x, "collect") and (hasattr(x, "collect_schema") or hasattr(x, "columns")):
        kind = type(x).__name__
        raise InputError(f"Expected values, got a {kind}, which is not computed yet: pass the result of its collect().")


def as_floats(x: Any) -> np.ndarray:
    """Array-like vectors as numbers: coded vectors are decoded, other numbers kept.

    InputError for bytes alone, masks, missing values, dates, and other objects that are no numbers; MismatchError for a
    list of vectors in different spaces.
    """
    if isinstance(x, CodedArray) and x.code is not None:
        return x.decode()
    if isinstance(x, list | tuple):
        origin_of(x)
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


class _NotANumberError(InputError, TypeError):
    """Also a TypeError, which scikit-learn expects of estimators."""


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
                    value = value.item() if isinstance(value, np.generic) else value
                    what = f"got the {type(value).__name__} {value!r:.60} in row {row}"
                    raise _NotANumberError(
                        f"Expected rows of numbers, {what}: convert or drop it ({error})."
                    ) from error
        raise InputError(f"Expected rows of numbers, got dtype {array.dtype}: {error}.") from error


def comparable(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of vectors as floats in one space: if only one side is coded, the floats are mapped by its code.

    By their width, the floats are raw vectors or already mapped (`Encoder.without_code`). MismatchError if both sides
    know their spaces and these differ, if the two codes map vectors differently, if the floats have neither width, or
    if both widths are equal, so that they do not decide. Queries may be compared with documents.
    """
    first, second = as_floats(a), as_floats(b)
    mine: Any = getattr(a, "code", None)
    other: Any = getattr(b, "code", None)
    check_comparable(a, b)
    if mine is None and other is not None:
        first = _mapped(first, other)
    elif other is None and mine is not None:
        second = _mapped(second, mine)
    elif mine is not other and mine.affine.hash() != other.affine.hash():
        raise MismatchError("The two sides have codes that map vectors differently: code both sides with one code.")
    return first, second


def check_comparable(a: Any, b: Any) -> None:
    """Raises MismatchError if vectors or codes of both sides know their spaces and these differ.

    Beside codes, floats are raw vectors, in the space of the code's fit, or of the space that the codes represent.
    """
    advice = "compare vectors of one encoder"
    code, origin = getattr(b, "code", None), origin_of(b)
    before, first = getattr(a, "code", None), origin_of(a)
    if code is not None and before is not None and code is not before:
        check_origin("the first codes", before.origin, code.origin, advice)
    elif code is not None and before is None:
        origin = code.origin if _is_raw(a, code) else origin
    elif before is not None and code is None:
        first = before.origin if _is_raw(b, before) else first
    check_origin("the first vectors", first, origin, advice)


def _is_raw(x: Any, code: Any) -> bool:
    """Whether floats beside codes are raw vectors, which the code still maps."""
    return code.affine.matrix is not None and np.shape(x)[-1:] == (code.n_features_in_,)


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
