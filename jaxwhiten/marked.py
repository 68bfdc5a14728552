"""Arrays whose rows carry a mark, such as their space. Only operations that are known to keep rows whole pass it on.

Every other operation gives an array without a mark, and whoever writes into marked memory takes the mark away: a mark
may be lost, but it is never wrong. Writing through a plain view (`np.asarray`, a `memoryview`, another library) is not
noticed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from jaxwhiten.types import RowsLike

M = TypeVar("M", bound="MarkedArray")

_WRITERS = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}
# Functions of NumPy that write to a third or later argument without calling a ufunc.
_LATE_OUTPUTS = {np.dot, np.take, np.compress, np.choose, np.trace, np.concatenate}


class _Memory:
    """The mark of the rows in a piece of memory. All marked views share it, so that a write takes it from all."""

    __slots__ = ("mark",)

    def __init__(self, mark: object):
        self.mark = mark


class MarkedArray(np.ndarray):
    """The base of arrays of vectors [..., d] whose rows carry a mark.

    Rows (by numbers, slices or masks), copies, further leading axes, and concatenations of rows with equal marks are
    marked. Results of ufuncs are plain arrays.
    """

    _memory: _Memory | None = None
    _layout: tuple[Any, ...] | None = None  # None in views of something else than whole rows

    def __array_finalize__(self, source: object) -> None:
        if isinstance(source, MarkedArray) and self.base is not None:
            self._memory = source._memory

    @property
    def mark(self) -> Any:
        """What the rows carry, or None."""
        if self._layout is None or self._layout != _layout(self) or self._memory is None:
            return None
        return self._memory.mark

    def _holds(self, dtype: np.dtype) -> bool:
        """Whether rows of another dtype have the same mark."""
        raise NotImplementedError

    @staticmethod
    def _equal(mark: Any, other: Any) -> bool:
        """Whether two marks are equal."""
        raise NotImplementedError

    def _pass_on(self: M, result: Any, *, copied: bool = False) -> Any:
        """A result that consists of whole rows of this array, marked like them; `copied` if they are in new memory."""
        mark = self.mark
        if mark is not None and result is not self and type(result) is type(self) and self._holds(result.dtype):
            if copied or result.base is None:
                result._memory = _Memory(mark)
            else:
                result._memory = self._memory
            result._layout = _layout(result)
        return result

    def _forget(self) -> None:
        """Takes the mark from all views of this memory, before something is written to it."""
        if self._memory is not None:
            self._memory.mark = None

    def __getitem__(self, key: Any) -> Any:
        result = super().__getitem__(key)
        if not _takes_rows(key, self.ndim):
            return result
        parts = key if isinstance(key, tuple) else (key,)
        return self._pass_on(result, copied=any(isinstance(part, list | np.ndarray) for part in parts))

    def copy(self: M, order: Any = "C") -> M:
        result: M = self._pass_on(super().copy(order))
        return result

    def __copy__(self: M) -> M:
        return self.copy()

    def __deepcopy__(self: M, memo: object) -> M:
        return self.copy()

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        return self._pass_on(super().astype(*args, **kwargs))

    def reshape(self, *shape: Any, order: Any = "C", **kwargs: Any) -> Any:
        result = super().reshape(*shape, order=order, **kwargs)
        same = order == "C" and result.shape[-1:] == self.shape[-1:]
        if same:
            return self._pass_on(result)
        return result

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        result = super().repeat(repeats, axis)
        if axis == 0 and self.ndim > 1:
            return self._pass_on(result)
        return result

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        _forget_all(out)
        result = super().take(indices, axis, out, mode)
        if axis == 0 and self.ndim > 1 and out is None:
            return self._pass_on(result)
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        self._forget()
        super().__setitem__(key, value)

    def _get_flat(self) -> Any:
        self._forget()
        return np.asarray(self).flat

    def _set_flat(self, value: object) -> None:
        self._forget()
        np.asarray(self).flat[:] = value

    # The iterator of NumPy can also write.
    flat = property(_get_flat, _set_flat)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        _forget_all(out)
        if method == "at":
            _forget_all(inputs[:1])
        if out:
            kwargs["out"] = tuple(map(_plain, out))
        kwargs = {name: _plain(value) for name, value in kwargs.items()}
        result = getattr(ufunc, method)(*map(_plain, inputs), **kwargs)
        if not out:
            return result
        results = result if isinstance(result, tuple) else (result,)
        results = tuple(new if pairs is None else pairs for new, pairs in zip(results, out, strict=True))
        if isinstance(result, tuple):
            return results
        return results[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _forget_all(kwargs.get("out"))
        if function in _WRITERS:
            _forget_all((*args, *kwargs.values())[:1])
        if function in _LATE_OUTPUTS:
            _forget_all(args[2:])
        result = super().__array_function__(function, types, args, kwargs)
        if function is np.concatenate:
            return self._joined(result, *args, **kwargs)
        return result

    def _joined(self, result: Any, arrays: Any, axis: Any = 0, out: Any = None, **_: Any) -> Any:
        """The result of a concatenation, which is marked if all parts have the mark of this array."""
        rows = axis == 0 and self.ndim > 1 and out is None and self._holds(result.dtype)
        if rows and all(type(part) is type(self) and self._is_like(part) for part in arrays):
            return marked(result, type(self), self.mark)
        return result

    def _is_like(self, other: MarkedArray) -> bool:
        mark = self.mark
        others = other.mark
        return mark is not None and others is not None and (mark is others or self._equal(mark, others))


def _writing(name: str) -> Any:
    """A method of NumPy's arrays that writes in place."""

    def method(self: MarkedArray, *args: Any, **kwargs: Any) -> Any:
        self._forget()
        return getattr(np.ndarray, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in ("sort", "partition", "fill", "put", "resize", "byteswap", "setfield"):
    setattr(MarkedArray, _name, _writing(_name))


def marked(array: np.ndarray, kind: type[M], mark: object) -> M:
    """A view of rows that carries a mark."""
    view = array.view(kind)
    view._memory = _Memory(mark)
    view._layout = _layout(view)
    return view


def _layout(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape[-1:], array.dtype, array.strides[-1:]


def _plain(x: RowsLike) -> Any:
    if isinstance(x, MarkedArray):
        return x.view(np.ndarray)
    return x


def _forget_all(arrays: Any) -> None:
    for array in arrays if isinstance(arrays, tuple) else (arrays,):
        if isinstance(array, MarkedArray):
            array._forget()


def _takes_rows(key: object, ndim: int) -> bool:
    """Whether an index of an array with so many axes leaves the last axis whole and last."""
    if ndim > 1 and type(key) in (int, slice):
        return True
    parts = key if isinstance(key, tuple) else (key,)
    counts = [_axes(part) for part in parts]
    if not parts or any(count is None for count in counts):
        return not parts
    last = parts[-1]
    if isinstance(last, slice) and last == slice(None):
        return True
    at_end = last is Ellipsis or all(part is not Ellipsis for part in parts)
    return at_end and sum(filter(None, counts)) < ndim


def _axes(part: Any) -> int | None:
    """How many axes a part of an index takes, if it is of a kind that can take rows."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, slice):
        return 1
    if isinstance(part, bool | np.bool) or not isinstance(part, int | np.integer | list | np.ndarray):
        return None
    numbers = np.asarray(part)
    rows = numbers.dtype.kind in "iu" or (numbers.dtype.kind == "b" and numbers.ndim == 1)
    return 1 if rows else None
