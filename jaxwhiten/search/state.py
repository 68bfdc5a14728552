"""What an index has in memory of one version of its database, and how the database gets and gives it."""

from __future__ import annotations

import dataclasses
import secrets
import sqlite3
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jaxwhiten.errors import REASON, FormatError, turning
from jaxwhiten.io import same, within
from jaxwhiten.search.backends import store_of
from jaxwhiten.search.header import ROWS, Header
from jaxwhiten.search.store import Arrays, Chosen, Ranking, Store
from jaxwhiten.store import Pages, appended
from jaxwhiten.types import Bool, Float32, Int64

_FEW = 256  # positions that may be dead before they are given up
_MOST = 0.25  # of the positions
_INVALID = (LookupError, ArithmeticError, ValueError, TypeError, RuntimeError)


@dataclass(frozen=True, eq=False)
class State:
    """The store of an index, and the document of each of its positions.

    A change only appends: the positions of documents that were removed or replaced are dead, until they are a quarter
    of all.
    """

    store: Store
    alive: Bool[np.ndarray, " n"]
    rows: Int64[np.ndarray, " n"] | None  # the document's row in the database by position; None if they are equal
    next: int  # the row of the next new document
    version: int = 0  # changes with every change
    generation: int = 0  # changes when positions do
    removed: int = 0  # entries of the table of removed positions

    @classmethod
    def of(cls, store: Store) -> State:
        """That of a new index, whose rows are its positions."""
        return cls(store, np.ones(store.size, bool), None, store.size, _number(), _number())

    @cached_property
    def size(self) -> int:
        """The number of documents."""
        return int(np.count_nonzero(self.alive))

    def rows_at(self, positions: Int64[np.ndarray, ...]) -> Int64[np.ndarray, ...]:
        """The rows at positions; −1 stays."""
        if self.rows is None:
            return positions
        return np.where(positions < 0, -1, self.rows[positions])

    @property
    def living(self) -> Int64[np.ndarray, " size"]:
        """The rows of all documents, in ascending order."""
        return np.sort(self.rows_at(np.flatnonzero(self.alive)))

    @cached_property
    def _sorted(self) -> tuple[Int64[np.ndarray, " size"], Int64[np.ndarray, " size"]]:
        """The rows of all documents, in ascending order, and their positions."""
        positions = np.flatnonzero(self.alive)
        rows = self.rows_at(positions)
        order = np.argsort(rows, kind="stable")
        return rows[order], positions[order]

    def positions(self, rows: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " l"]:
        """The positions of rows, as far as there are documents, in ascending order."""
        if self.rows is None:
            rows = rows[(rows >= 0) & (rows < len(self.alive))]
            return _ascending(rows[self.alive[rows]])
        known, positions = self._sorted
        places = np.minimum(np.searchsorted(known, rows), len(known) - 1)
        return _ascending(positions[places[known[places] == rows]])

    def plus(self, arrays: Arrays, rows: Int64[np.ndarray, " m"]) -> State:
        """With more documents, which have these rows; those that had them are replaced."""
        before = self.without(rows)
        start = len(self.alive)
        end = start + len(rows)
        numbers = self.rows
        if numbers is not None or not np.array_equal(rows, np.arange(start, end)):
            numbers = appended(np.arange(start) if numbers is None else numbers, rows)
        alive = np.concatenate([before.alive, np.ones(len(rows), bool)])
        store = self.store.extended(arrays)
        return self._changed(store=store, alive=alive, rows=numbers, next=max(self.next, int(rows.max()) + 1))

    def without(self, rows: Int64[np.ndarray, " m"]) -> State:
        """Without the documents of rows."""
        dead = self.positions(rows)
        if not len(dead):
            return self
        alive = self.alive.copy()
        alive[dead] = False
        return self._changed(alive=alive)

    def compact(self) -> State:
        """Without dead positions, if they are many."""
        if len(self.alive) - self.size <= max(_FEW, _MOST * len(self.alive)):
            return self
        positions = np.flatnonzero(self.alive)
        return self._changed(
            store=self.store.taken(positions),
            alive=np.ones(len(positions), bool),
            rows=self.rows_at(positions),
            generation=_number(),
            removed=0,
        )

    def _changed(self, **fields: object) -> State:
        return dataclasses.replace(self, version=_number(), **fields)  # type: ignore[arg-type]

    def search(self, queries: Float32[np.ndarray, "q d"], k: int, among: Chosen = None) -> Ranking:
        """`Store.search` among positions that are alive."""
        count = len(self.alive)
        dead = count - self.size
        if among is not None or not dead:
            return self.store.search(queries, k, among)
        wide = k + min(k, dead)
        while True:
            scores, positions = self.store.search(queries, wide)
            useful = self.alive[positions]
            useful &= positions >= 0
            if wide >= k + dead or (useful.sum(axis=1) >= k).all():
                break
            wide = min(2 * wide, k + dead)
        best = np.argsort(~useful, axis=1, kind="stable")[:, :k]
        missing = ~np.take_along_axis(useful, best, axis=1)
        scores = np.take_along_axis(scores, best, axis=1)
        positions = np.take_along_axis(positions, best, axis=1)
        scores[missing] = -np.inf
        positions[missing] = -1
        return scores, positions

    def write_version(self, connection: sqlite3.Connection) -> None:
        """Writes by what the state is known."""
        record = {"version": self.version, "generation": self.generation, "next": self.next}
        connection.executemany("INSERT OR REPLACE INTO header VALUES (?, ?)", record.items())

    def write(self, connection: sqlite3.Connection, before: State | None) -> State:
        """Writes what the database has not, if it has the state before; the state as it is written."""
        self.write_version(connection)
        if before is None or before.generation != self.generation:
            connection.execute("DELETE FROM removed")
            for name, array in self.store.arrays.items():
                Pages(connection, name).write(array)
            known = 0
            dead = np.flatnonzero(~self.alive)
        else:
            known = len(before.alive)
            for name, array in self.store.arrays.items():
                if known < len(array):
                    Pages(connection, name).append(array[known:])
            dead = np.flatnonzero(before.alive & ~self.alive[:known])
        if self.rows is not None:
            rows = Pages(connection, ROWS)
            if known and before is not None and before.rows is not None:
                rows.append(self.rows[known:])
            else:
                rows.write(self.rows)
        start = self.removed
        values = enumerate(dead.tolist(), start + 1)
        connection.executemany("INSERT INTO removed VALUES (?, ?)", values)
        return dataclasses.replace(self, removed=start + len(dead))

    @classmethod
    def read(cls, connection: sqlite3.Connection, header: Header, where: str, before: State | None = None) -> State:
        """The state of a database, of which the state `before` is known; FormatError if it contradicts itself."""
        with turning(FormatError, f"{where}: the index cannot be read ({REASON}). Rebuild it.", *_INVALID):
            facts = _facts(connection)
            names = [name for (name,) in connection.execute("SELECT name FROM arrays")]
            if before is None:
                known = removed = 0
                store = store_of(
                    header, {name: Pages(connection, name).read() for name in names if name != ROWS}, where
                )
            else:
                known = len(before.alive)
                removed = before.removed
                kept = before.store.arrays
                [[latest]] = connection.execute("SELECT coalesce(max(number), 0) FROM removed")
                count = len(Pages(connection, next(iter(kept))))
                if facts["generation"] != before.generation or count < known or latest < removed:
                    return cls.read(connection, header, where)  # it has other positions, or is of before
                store = before.store
                if count > known:
                    store = store.extended({name: Pages(connection, name).read(known) for name in kept})
            rows = None
            if ROWS in names:
                if before is None or before.rows is None:
                    rows = Pages(connection, ROWS).read()
                else:
                    rows = appended(before.rows, Pages(connection, ROWS).read(known))
                same("rows of documents", rows.shape, (store.size,))
                within("rows of documents", rows, 0, facts["next"] - 1)
            dead = connection.execute("SELECT position FROM removed WHERE number > ?", [removed]).fetchall()
            positions = [position for (position,) in dead]
            within("removed positions", positions, 0, store.size - 1)
            alive = np.ones(store.size, bool)
            if before is not None:
                alive[:known] = before.alive
            alive[positions] = False
            if not alive.any():
                raise ValueError("no documents")
            same("numbers of the next row", rows is not None or facts["next"] >= store.size, True)
            return cls(store, alive, rows, **facts, removed=removed + len(dead))


def _facts(connection: sqlite3.Connection) -> dict[str, int]:
    names = ("version", "generation", "next")
    facts = dict(connection.execute("SELECT name, value FROM header WHERE name <> 'index'").fetchall())
    return {name: int(facts[name]) for name in names}


def _ascending(positions: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " l"]:
    """Positions in ascending order, each once; NumPy's `unique` imports masked arrays, for a tenth of a load's time."""
    positions = np.sort(positions)
    return positions[np.diff(positions, prepend=-1) > 0]


def _number() -> int:
    """A number that no other state has."""
    return secrets.randbits(62)
