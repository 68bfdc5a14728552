"""One SQLite file, whose changes are transactions, and whose errors are those of this library."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from jaxwhiten.errors import FormatError, InputError, OutputError
from jaxwhiten.io import PathLike, identity

T = TypeVar("T")
_SECONDS = 600.0  # that a writer waits for another
_VALUES = 900  # of a statement at a time; older builds of SQLite take 999
# A statement of this library is an error, or a text is not UTF-8, only where the file has other bytes.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR)
_ROLLED_BACK = "nothing was changed"


class SQLite:
    """A SQLite file, or a temporary one. Threads may share it: changes take turns, and none keeps others from reading.

    >>> database = SQLite(None, kind=1)
    >>> database.change(lambda connection: connection.execute("CREATE TABLE words (word)"))  # doctest: +ELLIPSIS
    <sqlite3.Cursor object at ...>
    >>> database.rows("SELECT count(*) FROM words")
    [(0,)]

    Args:
      path: The file; None makes a temporary one.
      kind: The `application_id` by which files of this kind are known.
      create: Whether a file that is missing or empty becomes such a file; who creates it flushes it to the disk.
      read_only: Whether changes are refused.

    Raises:
      FormatError: The file is missing, of another kind, or damaged.
      OutputError: The file cannot be opened.
    """

    def __init__(self, path: PathLike | None, *, kind: int, create: bool = False, read_only: bool = False):
        self.path = None if path is None else Path(os.path.realpath(path))
        self.name = "the index in memory" if path is None else os.fspath(path)
        self.read_only = read_only
        self.lock = self._reading = threading.RLock()
        self._changing = 0  # the thread that changes the file
        name = ""
        if self.path is not None:
            if not create and not self.path.is_file():
                raise FormatError(f"{path}: no such file; expected an index.")
            mode = "rwc" if create else "rw"  # also to be read only: what a killed writer has left is to be ended
            name = f"file:{quote(os.fspath(self.path))}?mode={mode}"
        with self.turning():
            self._connection = self._reader = self._connected(name)
            if create or path is None:
                self._connection.execute("PRAGMA synchronous = OFF")
            empty = self.rows("PRAGMA page_count") == [(0,)]  # before another makes it
            if self.rows("PRAGMA application_id") != [(kind,)]:
                if not (empty and (create or path is None)):
                    raise FormatError(f"{path}: a SQLite file, but not one that jaxwhiten wrote.")
                self._connection.execute(f"PRAGMA application_id = {kind}")
            if read_only:
                self._connection.execute("PRAGMA query_only = 1")
            elif self.path is not None:
                self._reader = self._connected(name)
                self._reading = threading.RLock()
        self._identity = () if self.path is None else identity(self.path)[3:]

    def _connected(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(name, timeout=_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        weakref.finalize(self, connection.close)
        return connection

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """A connection to read by, which waits for no change: in a change, that of the change."""
        own = self._changing == threading.get_ident()
        with self.lock if own else self._reading:
            yield self._connection if own else self._reader

    @property
    def replaced(self) -> bool:
        """Whether another file has taken the place of the one that is open."""
        try:
            return self.path is not None and identity(self.path)[3:] != self._identity
        except OSError:
            return True

    @contextlib.contextmanager
    def turning(self) -> Iterator[None]:
        """Turns errors of SQLite in the block into FormatError or OutputError, which name the file."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            code = extended & 0xFF
            damaged = code in _DAMAGED or extended == sqlite3.SQLITE_IOERR_SHORT_READ  # the file was cut
            if damaged and not isinstance(error, sqlite3.ProgrammingError):
                raise FormatError(
                    f"{self.name}: cannot be read ({error}). It is damaged, or another kind of file: rebuild it."
                ) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                reason = f"another writer has not ended within {_SECONDS:.0f} s"
            elif code == sqlite3.SQLITE_FULL:
                reason = "No space left on device"
            else:
                reason = str(error)
            advice = " Free some space." if code == sqlite3.SQLITE_FULL else ""
            raise OutputError(f"{self.name}: could not be written ({reason}); {_ROLLED_BACK}.{advice}") from error

    def rows(self, statement: str, values: Sequence[Any] = (), *, named: bool = False) -> list[Any]:
        """The rows that a statement selects: tuples or, if `named`, `sqlite3.Row`s."""
        with self.turning(), self._read() as connection:
            cursor = connection.cursor()
            cursor.row_factory = sqlite3.Row if named else None
            return cursor.execute(statement, values).fetchall()

    def rows_of(self, statement: str, values: Sequence[Any], *, named: bool = False) -> list[Any]:
        """The rows that a statement selects which ends with `IN`, for any number of values."""
        rows = list[Any]()
        for start in range(0, len(values), _VALUES):
            some = values[start : start + _VALUES]
            rows += self.rows(f"{statement} ({', '.join('?' * len(some))})", some, named=named)
        return rows

    def guarded(
        self,
        statement: str,
        values: Sequence[Any],
        allowed: Callable[..., int],
        progress: tuple[Callable[[], bool], int],
    ) -> list[Any]:
        """`rows` of a statement by a user: an authorizer sees what it does, and a callback may end it.

        sqlite3.Error for one that is refused, ended or wrong.
        """
        with self._read() as connection:
            try:
                connection.set_authorizer(allowed)
                connection.set_progress_handler(*progress)
                return connection.execute(statement, values).fetchall()
            finally:
                connection.set_progress_handler(None, 0)
                connection.set_authorizer(None)

    def reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` reads from one state of the file."""
        with self.turning(), self._read() as connection:
            return _transaction(connection, "BEGIN", work)

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Does what `work` does as a whole or, if it raises or is interrupted, not at all. Other writers wait.

        Raises:
          InputError: The file was opened to be read only.
          OutputError: The disk is full, the file cannot be written to, or another writer does not end.
        """
        if self.read_only:
            raise InputError(f"{self.name}: was loaded with read_only=True: load it without, to change it.")
        with self.lock, self.turning():
            try:
                self._changing = threading.get_ident()
                return _transaction(self._connection, "BEGIN IMMEDIATE", work)
            finally:
                self._changing = 0

    def copy_to(self, other: SQLite) -> None:
        """Makes another database, which is empty, a copy of this one."""
        with self.lock, other.lock, other.turning():
            self._connection.backup(other._connection)

    def check(self) -> str:
        """Reads the whole file; FormatError, with the first fault, if SQLite finds one."""
        [[answer]] = self.rows("PRAGMA integrity_check(1)")
        if answer != "ok":
            raise FormatError(f"{self.name}: was damaged after it was written ({answer}). Rebuild it.")
        return "the whole file"

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
        self._reader.close()


def _transaction(connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        connection.rollback()  # what an interrupt has left
        connection.execute(begin)
        result = work(connection)
        connection.commit()
        return result
    except BaseException:
        connection.rollback()
        raise


def quoted(name: str) -> str:
    """A name as SQL has it, whatever it contains.

    >>> quoted('6" pipe')
    '"6"" pipe"'
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[None]:
    """Keeps other processes from a SQLite file while the block puts another in its place."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(sqlite3.Error):  # there is none, or it is damaged
            if path.is_file():
                connection = sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)
                held.callback(connection.close)
                connection.execute("BEGIN EXCLUSIVE")  # which also ends what a killed writer has left
        yield
        Path(f"{path}-journal").unlink(missing_ok=True)
