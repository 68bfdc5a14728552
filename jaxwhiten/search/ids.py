"""The ids of stored rows: the index numbers documents and never reuses a number, or documents bring their own ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import column_values
from jaxwhiten.errors import REASON, FormatError, InputError, MismatchError, check_counts, turning
from jaxwhiten.io import map_array, same, take, within
from jaxwhiten.options import Rule, check_options
from jaxwhiten.search.header import ID_ENDS, NUMBERS, STRINGS, Files
from jaxwhiten.search.strings import Lines, Strings, write_lines
from jaxwhiten.types import IdsLike, Int64, Shaped

_REMEDY = "Rebuild the index."
_SURROGATE = re.compile("[\ud800-\udfff]")
_RULES = (
    Rule(("ids",), "The index numbers its documents itself: omit `ids`.", beside=("numbered",)),
    Rule(("documents",), "The documents of this index have their own IDs: pass `ids`.", without=("ids", "numbered")),
)


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of rows 0 to n − 1. It is immutable; a change returns new ids."""

    kept: range | Int64[np.ndarray, " n"] | Strings  # a range while ids equal rows
    next: int | None  # the number of the next document, or None if documents bring their own ids

    @classmethod
    def of(cls, ids: IdsLike, n: int) -> Ids:
        """Ids for n documents: their own, or numbers if `ids` is None."""
        if ids is None:
            return cls(range(n), n)
        return cls(_kept(unique_ids(ids, n)), None)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def strings(self) -> bool:
        return isinstance(self.kept, Strings)

    @property
    def array(self) -> Shaped[np.ndarray, " n"]:
        """The id of each row: int64, or strings as objects."""
        if isinstance(self.kept, Strings):
            return np.array(list(self.kept), object)
        return np.asarray(self.kept)

    @cached_property
    def _row(self) -> Mapping[Any, int] | range:
        if isinstance(self.kept, range):
            return self.kept
        return {id: row for row, id in enumerate(self.kept if self.strings else self.array.tolist())}

    def at(self, rows: Int64[np.ndarray, "q k"]) -> Shaped[np.ndarray, "q k"]:
        """The ids of rows. Row −1 has the id −1, or None if ids are strings."""
        if isinstance(self.kept, range):
            return rows
        if isinstance(self.kept, Strings):
            ids = np.full(rows.shape, None, object)
            for place, row in np.ndenumerate(rows):
                if row >= 0:
                    ids[place] = self.kept[int(row)]
            return ids
        return np.where(rows < 0, -1, self.kept[rows])

    def rows(self, ids: IdsLike) -> Int64[np.ndarray, " m"]:
        """The rows of ids; InputError if an id is missing."""
        rows, absent = self.known(ids)
        if absent:
            more = (
                f" ({len(absent)} of the {len(absent) + len(rows)} IDs are unknown)" if len(rows) or absent[1:] else ""
            )
            raise InputError(f"No document {absent[0]!r:.80} in the index{more}.")
        return rows

    def known(self, ids: IdsLike) -> tuple[Int64[np.ndarray, " m"], list[Any]]:
        """The rows of the ids that are there, and the others."""
        requested = as_ids(ids)
        rows = [self._row[id] for id in requested if id in self._row]
        return np.array(rows, np.int64), [id for id in requested if id not in self._row]

    def __contains__(self, id: object) -> bool:
        return id in self._row

    def taken(self, rows: Int64[np.ndarray, " m"]) -> Ids:
        """The ids of the given rows, in this order."""
        if isinstance(self.kept, Strings):
            return Ids(self.kept.taken(rows), self.next)
        return Ids(np.asarray(self.kept)[rows], self.next)

    def plus(self, ids: IdsLike, n: int) -> Ids:
        """These ids and those of n more rows."""
        check_options(_RULES, {"ids": ids, "numbered": self.next is not None, "documents": True})
        if self.next is not None:
            new = range(self.next, self.next + n)
            end = self.next + n
            return Ids(range(end) if isinstance(self.kept, range) else np.concatenate([self.array, new]), end)
        new_ids = unique_ids(ids, n)
        if isinstance(new_ids[0], str) != self.strings:
            kind = "strings" if self.strings else "integers"
            raise InputError(f"The IDs of this index are {kind}, got {new_ids[0]!r:.80}.")
        if (present := next((id for id in new_ids if id in self._row), None)) is not None:
            raise InputError(f"Document {present!r:.80} is already in the index: use `update` to replace it.")
        more = (
            self.kept.plus(new_ids) if isinstance(self.kept, Strings) else np.concatenate([self.array, _kept(new_ids)])
        )
        result = Ids(more, None)
        numbers = range(len(self.kept), len(self.kept) + n)
        row_of = dict(self._row) if isinstance(self._row, Mapping) else {}
        vars(result)["_row"] = row_of | dict(zip(new_ids, numbers, strict=True))  # not read again from a file
        return result

    def write(self, folder: Path, first: int = 0) -> None:
        """Writes the ids of the rows from `first` on; there is no file while ids equal rows."""
        if isinstance(self.kept, Strings):
            rows = self.kept if first == 0 else self.kept[first:]
            write_lines(folder / STRINGS, rows, folder / ID_ENDS)
        elif isinstance(self.kept, np.ndarray):
            np.save(folder / NUMBERS, self.kept[first:])

    @classmethod
    def read(cls, files: Files, size: int, next_number: int | None) -> Ids:
        """Reads ids from the files that `write` made."""
        parts = list[Any]()
        start = 0
        for part, rows in files.parts:
            parts.append(_of_part(part, rows, range(start, start + rows)))
            start += rows
        where = f"{files.folder}: not readable as the ids of {size} documents"
        kinds = {isinstance(ids, Sequence) and not isinstance(ids, range) for ids in parts}
        if len(kinds) > 1:
            raise FormatError(f"{where} (numbers and strings). {_REMEDY}")
        if kinds == {True}:
            strings = Strings(parts, files.places)
            if files.several and len(set(strings)) < size:
                twice = Counter(strings).most_common(1)[0][0]
                raise MismatchError(f"The ID {twice!r:.80} is in more than one of these indexes.")
            return cls(strings, None)
        if all(isinstance(ids, range) for ids in parts) and files.places is None:
            return cls(range(size), size)
        numbers = np.concatenate([np.asarray(ids, np.int64) for ids in parts])
        if files.places is not None:
            numbers = numbers[files.places]
        ascends = bool((np.diff(numbers) > 0).all())
        different = size if ascends else len(np.unique(numbers))
        if files.several and different < size:
            raise MismatchError("An ID is in more than one of these indexes.")
        with turning(FormatError, f"{where} ({REASON}). {_REMEDY}", ValueError):
            within("numbers", numbers, 0)
            same("different numbers", different, size)
            if next_number is not None:
                within("the next number", next_number, int(numbers.max()) + 1)
        return cls(numbers, next_number)


def as_ids(ids: IdsLike) -> list[Any]:
    """Ids as strings or as integers; InputError for other types, mixed types, or a single string."""
    values = column_values(ids)
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"ids={ids!r:.80}: expected a list of IDs.")
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kind = str if values and isinstance(values[0], str) else int
    for value in values:
        if type(value) is not kind or value == "" or (kind is int and not 0 <= int(value) < 2**63):
            raise InputError(f"Expected IDs that are all strings or all integers of at least 0, got {value!r:.80}.")
        if isinstance(value, str) and _SURROGATE.search(value):
            raise InputError(f"The ID {value!r:.80} has a lone surrogate, which no file can store: replace it.")
    return values


def unique_ids(ids: IdsLike, n: int) -> list[Any]:
    """The ids of n documents; InputError if their number is wrong or an id is repeated."""
    values = as_ids(ids)
    check_counts("ids", len(values), "documents", n)
    if len(set(values)) < n:
        twice = Counter(values).most_common(1)[0][0]
        raise InputError(f"The ID {twice!r:.80} occurs twice: each document needs its own ID.")
    return values


def _kept(ids: list[Any]) -> Int64[np.ndarray, " n"] | Strings:
    if ids and isinstance(ids[0], str):
        return Strings([ids])
    return np.array(ids, np.int64)


def _of_part(part: Mapping[str, Path], rows: int, otherwise: range) -> Any:
    """The ids of one part of an index."""
    if STRINGS in part:
        return Lines(part[STRINGS], rows, part[ID_ENDS])
    if NUMBERS not in part:
        return otherwise
    with turning(FormatError, f"{part[NUMBERS]}: not readable as ids ({REASON}). {_REMEDY}", ValueError, OSError):
        [ids] = take({"ids": map_array(part[NUMBERS])}, "int64", ids=(rows,))
    return np.asarray(ids)
