"""Coded vectors: bytes that know their code, and the one place where bytes become vectors that can be compared.

codes = encoder.encode(texts)  # of an encoder that ends with a code: uint8 [n, bytes]
codes.decode()                 # float32 [n, k]: what the bytes stand for
as_floats(codes)               # the same; floats stay as they are, bytes without a code are refused
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxwhiten.errors import InputError, MismatchError

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


class CodedArray(np.ndarray):
    """uint8 or int8 codes [n, bytes], or one code [bytes], with the fitted code that they are of.

    Rows, copies, pickles and stacks of codes keep `code`. Arithmetic, other dtypes and `np.asarray` give plain numbers.

    Attributes:
      code: A fitted `jaxwhiten.codes.Code`.
    """

    code: Any

    def __array_finalize__(self, source: Any) -> None:
        self.code = getattr(source, "code", None) if self.dtype in _BYTES else None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = super().__array_function__(function, types, args, kwargs)
        if function is np.concatenate:
            codes = {id(code := code_of(part)): code for part in args[0]}
            out = with_code(out, *codes.values()) if len(codes) == 1 else out
        return out

    def __reduce__(self) -> Any:
        parts: Any = super().__reduce__()
        make, arguments, state = parts
        return make, arguments, (state, self.code)

    def __setstate__(self, state: Any) -> None:
        array, self.code = state
        super().__setstate__(array)

    def decode(self) -> Float[np.ndarray, "*n k"]:
        """What the codes stand for, see `Code.decode`."""
        found: np.ndarray = self.code.decode(self.reshape(-1, self.shape[-1]))
        return found.reshape(*self.shape[:-1], -1) if self.size else found


def with_code(array: np.ndarray, code: Any) -> np.ndarray:
    """An array of bytes, not copied, as codes of a fitted code; the array itself where the code is None."""
    if code is None:
        return array
    codes = array.view(CodedArray)
    codes.code = code
    return codes


def code_of(x: Any) -> Any:
    """The code of coded vectors; None for floats, and for bytes whose code nobody knows."""
    return x.code if isinstance(x, CodedArray) else None


def as_floats(x: Any) -> np.ndarray:
    """Array-like vectors as numbers that can be compared: coded ones decoded, others as they are.

    Raises:
      InputError: Bytes whose code nobody knows.
    """
    if code_of(x) is not None:
        return x.decode()
    array = np.asarray(x)
    if array.dtype in _BYTES:
        raise InputError(
            f"These are bytes ({array.dtype} of shape {array.shape}) without their code, so nobody knows what they"
            " stand for: pass the array that `encode` gave, or code.decode(codes)."
        )
    return array


def comparable(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two sides of a comparison as floats of one space; of floats and codes the floats are mapped as the codes were.

    Floats beside codes are raw vectors, which `code.transform` maps, or vectors that it has mapped, such as those of
    `Encoder.without_code`: their width says which.

    Raises:
      InputError: Bytes whose code nobody knows.
      MismatchError: Codes that map vectors differently, or floats of neither width, or of both.
    """
    first, second, codes = as_floats(a), as_floats(b), (code_of(a), code_of(b))
    if None not in codes and codes[0] is not codes[1] and codes[0].affine.hash() != codes[1].affine.hash():
        raise MismatchError("The two sides were coded by codes that map vectors differently: code both with one code.")
    if codes[0] is None and codes[1] is not None:
        return _mapped(first, codes[1]), second
    if codes[1] is None and codes[0] is not None:
        return first, _mapped(second, codes[0])
    return first, second


def _mapped(x: np.ndarray, code: Any) -> np.ndarray:
    """Floats in the space of what the codes of a code stand for."""
    raw, mapped, width = code.n_features_in_, code.affine.outputs, x.shape[-1]
    if code.affine.matrix is None and width == raw:
        return x
    if width not in (raw, mapped) or raw == mapped:
        takes = f"The code takes raw vectors of {raw} dimensions and maps them to {mapped}"
        which = "the floats may be of either kind" if width == raw else f"the floats have {width}"
        raise MismatchError(f"{takes}; {which}. Compare code.transform(raw vectors) with codes.decode().")
    return x if width == mapped else np.asarray(code.transform(np.atleast_2d(x)))
