"""What a folder holds of an index in memory, so that `save` writes only what has changed since."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxwhiten.search.header import Header, Tail
from jaxwhiten.types import Int64

_FEW = 256  # rows that are written anew with every change
_MOST = 0.25  # of the rows in a folder that may be removed or new before all are written anew


@dataclass(frozen=True)
class Saved:
    """The header of a folder, and which of its rows an index has."""

    header: Header
    places: Int64[np.ndarray, " m"] | None  # of the first `count` rows in the folder; None while these are its rows
    count: int  # rows of the index that are in the folder; they come first

    @classmethod
    def whole(cls, header: Header, places: Int64[np.ndarray, " m"] | None = None) -> Saved:
        """That of an index whose rows are all in the folder."""
        return cls(header, places, header.size)

    def replaced(self) -> Saved:
        """That of another index, which replaces this one in the folder."""
        return Saved(self.header, None, 0)

    def taken(self, rows: Int64[np.ndarray, " n"]) -> Saved:
        """That of the index with these rows alone, in ascending order."""
        rows = rows[: np.searchsorted(rows, self.count)]
        if len(rows) == self.count:
            return self
        return Saved(self.header, rows if self.places is None else self.places[rows], len(rows))

    def tail(self, folder: Path, size: int) -> Tail | None:
        """What stays in the folder when an index of `size` rows is saved; None if all is to be written anew.

        New rows are written with the segments before them that have at most twice as many rows. So segments become
        shorter from one to the next, and few, and a row is written again a few times only.
        """
        parts = list(self.header.parts)
        end = sum(part["rows"] for part in parts)
        first = self.count
        while len(parts) > 1 and parts[-1]["rows"] <= 2 * (size - first):
            end -= parts.pop()["rows"]
            first = self.count if self.places is None else int(np.searchsorted(self.places, end))
            first = min(first, end)
        if end <= _FEW or max(end - first, size - first) > _MOST * end:
            return None
        files = [file for part in parts for file in part["files"].values()]
        if any(_size(folder / file["name"]) != file["bytes"] for file in files):
            return None
        absent = np.ones(end, bool)
        absent[slice(first) if self.places is None else self.places[:first]] = False
        return Tail(parts[0]["files"], parts[0]["rows"], parts[1:], first, np.flatnonzero(absent))

    def after(self, header: Header, tail: Tail | None) -> Saved:
        """That of the same index once it is saved with this header."""
        if tail is None or header.removed is None:
            return Saved.whole(header)
        end = tail.first + len(tail.removed)
        old = np.arange(tail.first) if self.places is None else self.places[: tail.first]
        new = np.arange(end, end + header.size - tail.first)
        return Saved.whole(header, np.concatenate([old, new]))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
