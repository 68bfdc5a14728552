"""Vectors that know their space, and codes that know their code.

vectors = encoder.encode(texts)  # float32 [n, d], with `vectors.space`
codes = encoder.encode(texts)    # uint8 [n, bytes] of an encoder that ends with a code, with `codes.code`
codes.decode()                   # float32 [n, d]: vectors of the space that was coded
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.space import Space, check_space
from jaxwhiten.types import Float, RowsLike


class Vectors(np.ndarray):
    """Vectors [n, d], or one vector [d], that know their space; or codes of them, uint8 or int8 [n, bytes].

    Rows, slices of rows, copies, pickles and concatenations of rows of one space know it, too. What else is made of
    them are plain arrays.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    >>> SpectrumCode(bytes=4).fit(rows).encode(rows)[:2].decode().shape
    (2, 8)

    Attributes:
      space: The space of the vectors, or of those that the codes represent; None if it is unknown.
      code: The fitted `jaxwhiten.codes.Code` of codes; None for vectors.
    """

    space: Space | None = None
    code: Any = None

    def __getitem__(self, key: Any) -> Any:
        result = super().__getitem__(key)
        alone = isinstance(key, int | np.integer) and self.ndim == 2
        if alone or (isinstance(key, slice | list | np.ndarray) and self.ndim == result.ndim == 2):
            return with_space(result, self.space, self.code)
        return np.asarray(result) if isinstance(result, Vectors) else result

    def __repr__(self) -> str:
        with np.printoptions(threshold=50, edgeitems=2, linewidth=120):
            return super().__repr__()

    def copy(self, order: Any = "C") -> Any:
        return with_space(super().copy(order), self.space, self.code)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return with_space, (np.array(self), self.space, self.code)

    def __array_wrap__(self, array: Any, context: object = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = function(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        whole_rows = function in (np.concatenate, np.vstack) and len(args) == 1 and not kwargs and result.ndim == 2
        own = self.space, self.code
        if whole_rows and all(isinstance(part, Vectors) and (part.space, part.code) == own for part in args[0]):
            return with_space(result, *own)
        return result

    def decode(self) -> Float[np.ndarray, "*n d"]:
        """The vectors that codes represent, see `Code.decode`; InputError if these are no codes."""
        if self.code is None:
            raise InputError(f"{self.dtype} vectors without a code: only codes are decoded.")
        decoded: np.ndarray = self.code.decode(with_space(self.reshape(-1, self.shape[-1]), self.space, self.code))
        return decoded.reshape(*self.shape[:-1], decoded.shape[-1])


def _plain(x: Any) -> Any:
    if isinstance(x, list | tuple) and any(isinstance(part, Vectors) for part in x):
        return [*map(_plain, x)]
    return x.view(np.ndarray) if isinstance(x, Vectors) else x


def with_space(array: np.ndarray, space: Space | None, code: Any = None) -> np.ndarray:
    """A view of vectors or codes that knows their space and code; the array itself if both are None."""
    if space is None and code is None:
        return array
    result = array.view(Vectors)
    result.space = space
    result.code = code
    return result


def space_of(vectors: RowsLike) -> Space | None:
    """The space of vectors or codes, or of a list of rows; of codes that do not know it, that of the fit of the code.

    Raises:
      MismatchError: The rows of a list are in different spaces.
    """
    if isinstance(vectors, Vectors):
        if vectors.space is None and vectors.code is not None:
            space: Space | None = vectors.code.space
            return space
        return vectors.space
    if not isinstance(vectors, list | tuple) or not any(isinstance(row, Vectors) for row in vectors):
        return None
    spaces = [*{id(space): space for space in map(space_of, vectors)}.values()]
    known = [space for space in spaces if space is not None]
    for space in known[1:]:
        check_space("the first vectors", known[0], space, "compare vectors of one encoder", role="query")
    return known[0] if len(known) == len(spaces) else None


def check_comparable(a: RowsLike, b: RowsLike) -> None:
    """Raises MismatchError if both sides know their spaces, and these differ; queries fit their documents."""
    check_space("the first vectors", space_of(a), space_of(b), "compare vectors of one encoder", role="query")
