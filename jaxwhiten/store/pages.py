"""Arrays in pages: rows that are only appended, in blocks of about 256 KB, each with a checksum."""

from __future__ import annotations

import json
import sqlite3
import zlib
from typing import NamedTuple

import numpy as np

from jaxwhiten.errors import FormatError
from jaxwhiten.types import Shaped

SCHEMA = (
    "CREATE TABLE arrays (name TEXT PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL, rows INTEGER NOT NULL)",
    "CREATE TABLE pages (name TEXT, number INTEGER, checksum INTEGER NOT NULL, data BLOB NOT NULL,"
    " PRIMARY KEY (name, number))",
)
_BYTES = 1 << 18  # of a page
_SLACK = 8  # the inverse of the share of an array that is left free for rows to come


class Pages(NamedTuple):
    """An array in a database, by its name. Its methods are for use in a transaction."""

    connection: sqlite3.Connection
    name: str

    def write(self, array: Shaped[np.ndarray, "n ..."]) -> None:
        """Replaces the array."""
        self.connection.execute("DELETE FROM pages WHERE name = ?", [self.name])
        record = self.name, array.dtype.str, json.dumps(array.shape[1:]), 0
        self.connection.execute("INSERT OR REPLACE INTO arrays VALUES (?, ?, ?, ?)", record)
        self.append(array)

    def append(self, rows: Shaped[np.ndarray, "m ..."]) -> None:
        """Adds rows; those of the last page are written again with them."""
        row, count, each = self._layout()
        first = count // each
        start = count - first * each  # rows of the last page
        whole = np.asarray(rows, row.base)
        if start:
            last = np.frombuffer(self._page(first), row).reshape(start, *row.shape)
            whole = np.concatenate([last, whole], dtype=row.base)
        blocks = (np.ascontiguousarray(whole[at : at + each]).tobytes() for at in range(0, len(whole), each))
        pages = ((self.name, first + number, zlib.crc32(block), block) for number, block in enumerate(blocks))
        self.connection.executemany("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", pages)
        self.connection.execute("UPDATE arrays SET rows = ? WHERE name = ?", [count + len(rows), self.name])

    def read(self, first: int = 0) -> Shaped[np.ndarray, "n ..."]:
        """The rows from `first` on, in an array that has room for more.

        FormatError if a page is missing or was damaged.
        """
        row, count, each = self._layout()
        select = "SELECT number FROM pages WHERE name = ?"
        there = {number for (number,) in self.connection.execute(select, [self.name]).fetchall()}
        if (missing := next((n for n in range(-(-count // each)) if n not in there), None)) is not None:
            raise self._damaged(missing)  # before room is made for what a damaged number of rows would be
        room = np.empty((count - first + count // _SLACK + 1, *row.shape), row.base)
        start = first // each * each
        flat = room.reshape(-1).view(np.uint8)
        size = row.itemsize
        for number in range(first // each, -(-count // each)):
            data = self._page(number)
            if len(data) != size * min(each, count - start):
                raise self._damaged(number)
            skipped = max(0, first - start)
            at = size * (start + skipped - first)
            part = np.frombuffer(data, np.uint8)[size * skipped :]
            flat[at : at + len(part)] = part
            start += each
        return room[: count - first]

    def __len__(self) -> int:
        return self._layout()[1]

    def _layout(self) -> tuple[np.dtype, int, int]:
        """The type of a row, the number of rows, and that of a page."""
        select = "SELECT dtype, shape, rows FROM arrays WHERE name = ?"
        layouts = self.connection.execute(select, [self.name]).fetchall()
        if not layouts:
            raise self._error(f"contains no array {self.name!r}")
        try:
            [[dtype, shape, rows]] = layouts
            row = np.dtype((np.dtype(dtype), tuple(json.loads(shape))))
            return row, int(rows), max(1, _BYTES // row.itemsize)
        except (ValueError, TypeError) as error:
            raise self._error(f"{self.name} cannot be read ({error})") from error

    def _page(self, number: int) -> bytes:
        where = [self.name, number]
        page = self.connection.execute("SELECT checksum, data FROM pages WHERE name = ? AND number = ?", where)
        [[checksum, data]] = page.fetchall() or [(None, b"")]
        if zlib.crc32(data) != checksum:
            raise self._damaged(number)
        return bytes(data)

    def _damaged(self, number: int) -> FormatError:
        return self._error(f"page {number} of {self.name} is missing, or was damaged after it was written")

    def _error(self, what: str) -> FormatError:
        [_, _, path] = self.connection.execute("PRAGMA database_list").fetchone()
        return FormatError(f"{path or 'the index in memory'}: {what}. Rebuild it.")


def appended(array: Shaped[np.ndarray, "n ..."], rows: Shaped[np.ndarray, "m ..."]) -> Shaped[np.ndarray, "l ..."]:
    """An array that this module made, and more rows: where it has room, they are written behind it.

    >>> appended(np.zeros((2, 1)), np.ones((1, 1))).tolist()
    [[0.0], [0.0], [1.0]]
    """
    end = len(array) + len(rows)
    room = array.base
    if not isinstance(room, np.ndarray) or not _begins(room, array) or len(room) < end:
        room = np.empty((end + end // _SLACK + 1, *array.shape[1:]), array.dtype)
        room[: len(array)] = array
    room[len(array) : end] = rows
    return room[:end]


def _begins(room: np.ndarray, array: np.ndarray) -> bool:
    """Whether an array is the first rows of another, which may be written to."""
    if not room.flags.writeable:
        return False
    return (room.ctypes.data, room.shape[1:], room.dtype) == (array.ctypes.data, array.shape[1:], array.dtype)
