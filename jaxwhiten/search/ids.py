"""The ids of stored rows: the index numbers documents and never reuses a number, or documents bring their own ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jaxwhiten.arrays import column_values
from jaxwhiten.errors import FormatError, InputError
from jaxwhiten.records import read
from jaxwhiten.shapes import Int64, Shaped

FILE = "ids.json"


class _Record(TypedDict):
    next: int | None
    ids: list[Any]


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of rows 0 to n − 1. It is immutable; a change returns new ids."""

    kept: range | Shaped[np.ndarray, " n"]  # a range while ids equal rows; else int64, or strings as objects
    next: int | None  # the number of the next document, or None if documents bring their own ids

    @classmethod
    def of(cls, ids: Any, n: int) -> Ids:
        """Ids for n documents: their own, or numbers if `ids` is None."""
        return cls(range(n), n) if ids is None else cls(_array(unique_ids(ids, n)), None)

    @property
    def strings(self) -> bool:
        return isinstance(self.kept, np.ndarray) and self.kept.dtype == object

    @cached_property
    def _row(self) -> Mapping[Any, int] | range:
        if isinstance(self.kept, range):
            return self.kept
        return {id: row for row, id in enumerate(self.kept.tolist())}

    def at(self, rows: Int64[np.ndarray, "q k"]) -> Shaped[np.ndarray, "q k"]:
        """The ids of rows. Row −1 has the id −1, or None if ids are strings."""
        if isinstance(self.kept, range):
            return rows
        ids = self.kept[rows]
        ids[rows < 0] = None if self.strings else -1
        return ids

    def rows(self, ids: Any) -> Int64[np.ndarray, " m"]:
        """The rows of ids; InputError if an id is missing."""
        wanted = as_ids(ids)
        if (absent := next((id for id in wanted if id not in self._row), None)) is not None:
            raise InputError(f"No document {absent!r:.80} in the index.")
        return np.array([self._row[id] for id in wanted], np.int64)

    def __contains__(self, id: Any) -> bool:
        return id in self._row

    def taken(self, rows: Int64[np.ndarray, " m"]) -> Ids:
        """The ids of the given rows, in this order."""
        return Ids(np.asarray(self.kept)[rows], self.next)

    def plus(self, ids: Any, n: int) -> Ids:
        """These ids and those of n more rows."""
        if self.next is not None:
            if ids is not None:
                raise InputError("The index numbers its documents itself: omit `ids`.")
            new, end = range(self.next, self.next + n), self.next + n
            return Ids(range(end) if isinstance(self.kept, range) else np.concatenate([self.kept, new]), end)
        if ids is None:
            raise InputError("The documents of this index have their own IDs: pass `ids`.")
        wanted = unique_ids(ids, n)
        if isinstance(wanted[0], str) != self.strings:
            kind = "strings" if self.strings else "integers"
            raise InputError(f"The IDs of this index are {kind}, got {wanted[0]!r:.80}.")
        if (there := next((id for id in wanted if id in self._row), None)) is not None:
            raise InputError(f"Document {there!r:.80} is already in the index: use update to replace it.")
        return Ids(np.concatenate([self.kept, _array(wanted)]), None)

    def write(self, folder: Path) -> None:
        if not isinstance(self.kept, range):
            text = json.dumps({"next": self.next, "ids": self.kept.tolist()})
            (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path | None, size: int) -> Ids:
        """Reads ids from their file; there is no file while ids equal rows."""
        if path is None:
            return cls(range(size), size)
        record = read(path, _Record, "Rebuild the index.")
        try:
            kept = _array(unique_ids(record["ids"], size))
            last = record["next"]
            if last is not None and (kept.dtype == object or last <= kept.max()):
                raise InputError(f"{last!r:.80} as the next number")
        except InputError as error:
            raise FormatError(f"{path}: not readable as the ids of {size} documents ({error}).") from error
        return cls(kept, last)


def as_ids(ids: Any) -> list[Any]:
    """Ids as strings or as integers; InputError for other types, mixed types, or a single string."""
    values = column_values(ids)
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"ids={ids!r:.80}: expected a list of IDs.")
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kind = str if values and isinstance(values[0], str) else int
    for value in values:
        if type(value) is not kind or value == "" or (kind is int and not 0 <= int(value) < 2**63):
            raise InputError(f"Expected IDs that are all strings or all integers of at least 0, got {value!r:.80}.")
    return values


def unique_ids(ids: Any, n: int) -> list[Any]:
    """The ids of n documents; InputError if their number is wrong or an id is repeated."""
    values = as_ids(ids)
    if len(values) != n:
        raise InputError(f"{len(values)} ids but {n} documents.")
    if len(set(values)) < n:
        twice = Counter(values).most_common(1)[0][0]
        raise InputError(f"The ID {twice!r:.80} occurs twice: each document needs its own ID.")
    return values


def _array(ids: list[Any]) -> Shaped[np.ndarray, " n"]:
    return np.array(ids, object if ids and isinstance(ids[0], str) else np.int64)
