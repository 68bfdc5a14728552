"""Texts, string IDs and metadata by row. Those of a saved index are read from their file when they are needed."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import mmap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.errors import REASON, FormatError, turning
from jaxwhiten.io import map_array, same, take, within
from jaxwhiten.records import parse
from jaxwhiten.types import Int64

_BLOCK = 1 << 16  # strings that are written or read at once
_NEWLINE = ord("\n")
_REMEDY = "Rebuild the index."
_DEEPEST = 100  # lists and objects in each other


class Lines(Sequence[Any]):
    """The strings, or the objects, in a file of JSON lines, which is memory-mapped.

    >>> write_lines(Path("words.jsonl"), ["A dog runs.", "It rains."], Path("ends.npy"))
    >>> Lines(Path("words.jsonl"), 2, Path("ends.npy"))[1]
    'It rains.'

    Raises:
      FormatError: The file does not have so many lines, now, or a line is not of this kind, when it is read.
    """

    def __init__(self, path: Path, size: int, ends: Path, kind: Any = str) -> None:
        """`ends` is the file with the end of each line."""
        self._path = path
        self._kind = kind
        with turning(FormatError, f"{ends}: not readable as the ends of lines ({REASON}). {_REMEDY}", ValueError):
            line_ends = np.asarray(map_array(ends))
        unlike = f"{path}: does not contain {size} lines, one per vector ({REASON}). {_REMEDY}"
        with turning(FormatError, unlike, ValueError, IndexError), open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            take({"ends": line_ends}, "int64", ends=(size,))
            within("ends of lines", line_ends, 1, ascending=True)
            same("end of the last line", int(line_ends[-1]), len(self._data))
        self._ends = line_ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        start = self._ends[row - 1] if row else 0
        return parse(self._data[start : self._ends[row]], self._kind, f"{self._path}, line {row + 1}", _REMEDY)

    def __iter__(self) -> Iterator[Any]:
        for part in blocks(len(self), _BLOCK):
            start = self._ends[part.start - 1] if part.start else 0
            lines = self._data[start : self._ends[part.stop - 1]].rstrip(b"\n").replace(b"\n", b",")
            yield from parse(b"[" + lines + b"]", types.GenericAlias(list, (self._kind,)), self._path, _REMEDY)


class Strings(Sequence[Any]):
    """Immutable strings, or objects of JSON, by row, of one part or of several; a change returns new ones.

    >>> Strings([["a", "b"]]).plus(["c"]).taken(np.array([0, 2]))
    Strings(['a', 'c'])
    """

    def __init__(self, parts: Iterable[Lines | list[Any]], places: Int64[np.ndarray, " n"] | None = None) -> None:
        """`places` are those of the rows among all strings of the parts; None takes all."""
        self._parts = tuple(parts)
        self._places = places
        self._starts = [0, *itertools.accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        if self._places is None:
            return self._starts[-1]
        return len(self._places)

    def __getitem__(self, row: int | slice) -> Any:
        rows = range(len(self))[row]  # IndexError for a row that is not there
        if isinstance(rows, range):
            return [self[number] for number in rows]
        place = rows if self._places is None else int(self._places[rows])
        part = bisect.bisect_right(self._starts, place) - 1
        return self._parts[part][place - self._starts[part]]

    def __iter__(self) -> Iterator[Any]:
        strings = itertools.chain.from_iterable(self._parts)
        if self._places is None:
            return strings
        if (np.diff(self._places) > 0).all():
            chosen = np.zeros(self._starts[-1], bool)
            chosen[self._places] = True
            return itertools.compress(strings, chosen.tolist())
        everything = list(strings)
        return (everything[place] for place in self._places.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Strings({list(itertools.islice(self, 10))}{', ...' if len(self) > 10 else ''})"

    def plus(self, strings: Sequence[Any]) -> Strings:
        """These and those of more rows."""
        end = self._starts[-1]
        parts = [*self._parts]
        more = list(strings)
        if parts and isinstance(parts[-1], list) and len(parts[-1]) <= len(more):
            more = [*parts.pop(), *more]
        parts.append(more)
        if self._places is None:
            return Strings(parts)
        return Strings(parts, np.concatenate([self._places, np.arange(end, end + len(strings))]))

    def taken(self, rows: Int64[np.ndarray, " m"]) -> Strings:
        """Those of the given rows, in this order."""
        return Strings(self._parts, rows if self._places is None else self._places[rows])


def as_json(value: object, depth: int = 0) -> Any:
    """A copy of a value that JSON has and that its readers read alike, with tuples as lists; ValueError for others.

    >>> as_json({"page": (1, 2)})
    {'page': [1, 2]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError: a lone surrogate
        return str(value)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if depth == _DEEPEST:
        raise ValueError(f"nested in more than {_DEEPEST} lists and objects")
    if isinstance(value, list | tuple):
        return [as_json(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {as_json(name): as_json(item, depth + 1) for name, item in value.items()}
    raise ValueError(f"{value!r:.80} is not a value of JSON of at most 64 bits")


def write_lines(path: Path, strings: Iterable[Any], ends: Path) -> None:
    """Writes strings, or objects, as JSON lines, and the end of each line to another file."""
    start = 0
    written = list[np.ndarray]()
    items = iter(strings)
    with open(path, "wb") as file:
        while block := list(itertools.islice(items, _BLOCK)):
            data = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in block).encode()
            file.write(data)
            written.append(start + 1 + np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE))  # JSON escapes others
            start += len(data)
    np.save(ends, np.concatenate(written))
