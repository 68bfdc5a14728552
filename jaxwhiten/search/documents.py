"""The table of documents: their IDs, texts and metadata, in the database of an index."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import column_values
from jaxwhiten.errors import REASON, FormatError, InputError, check_counts, turning
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import Rows
from jaxwhiten.store import SQLite, quoted
from jaxwhiten.text import TextList, Texts, as_texts
from jaxwhiten.types import IdsLike, Int64, Json, Shaped

_SURROGATE = re.compile("[\ud800-\udfff]")
_RESERVED = {"row", "id", "text", "json", "rowid", "oid", "_rowid_"}
_COLUMNS = 500  # of metadata at most; SQLite has up to 2,000
_DEEPEST = 100  # nesting of metadata, far below what readers of JSON take
_BLOCK = 1000  # documents that are read at a time


class Document(NamedTuple):
    """A document of an index, with its text and metadata if the index keeps them.

    >>> Document("a", "A dog runs.").text
    'A dog runs.'
    """

    id: int | str
    text: str | None = None
    metadata: Json | None = None


class Entries(NamedTuple):
    """Checked documents on their way into an index."""

    vectors: Rows
    ids: list[Any] | None
    texts: TextList | None
    metadata: list[Json] | None

    @classmethod
    def of(cls, vectors: Rows, ids: list[Any] | None, documents: Texts | None, metadata: Any) -> Entries:
        """Vectors and unique ids with their texts and metadata, of which there is one per vector.

        InputError for a value that JSON lacks, with the row.
        """
        texts = None if documents is None else as_texts(documents, "document")
        rows = None if metadata is None else [_checked(number, row) for number, row in enumerate(metadata)]
        for what, values in (("documents", texts), ("rows of metadata", rows)):
            if values is not None:
                check_counts(what, len(values), "document vectors", len(vectors))
        return cls(vectors, ids, texts, rows)

    @property
    def id_type(self) -> str | None:
        """The type of the documents' own ids."""
        if self.ids is None:
            return None
        return "string" if isinstance(self.ids[0], str) else "integer"


class Documents:
    """The documents of an index by the numbers of their rows, which are their ids if the index numbers them."""

    def __init__(self, database: SQLite, header: Header) -> None:
        self._database = database
        self._header = header

    @staticmethod
    def table(header: Header) -> str:
        """The statement that makes the table."""
        kinds = {None: "id INTEGER GENERATED ALWAYS AS (row) VIRTUAL", "integer": "id INTEGER NOT NULL UNIQUE"}
        columns = ["row INTEGER PRIMARY KEY", kinds.get(header.id_type, "id TEXT NOT NULL UNIQUE")]
        if header.has_texts:
            columns.append("text TEXT NOT NULL")
        if header.names is not None:
            columns += ["json TEXT", *map(quoted, header.names)]
        return f"CREATE TABLE documents ({', '.join(columns)})"

    def put(self, connection: sqlite3.Connection, rows: Sequence[int], entries: Entries) -> None:
        """Writes documents of new rows."""
        if not self._header.lists_documents:
            return
        columns: dict[str, Sequence[Any]] = {"row": rows}
        if self._header.id_type is not None:
            assert entries.ids is not None
            columns["id"] = entries.ids
        if entries.texts is not None:
            columns["text"] = entries.texts
        if entries.metadata is not None:
            columns |= self._columns(entries.metadata, self._extended(connection, entries.metadata))
        names = ", ".join(map(quoted, columns))
        places = ", ".join("?" * len(columns))
        values = zip(*columns.values(), strict=True)
        connection.executemany(f"INSERT INTO documents ({names}) VALUES ({places})", values)

    def _extended(self, connection: sqlite3.Connection, metadata: Sequence[Json]) -> list[str]:
        """The names that have columns; new ones get one."""
        present = [name for _, name, *_ in connection.execute("PRAGMA table_xinfo(documents)").fetchall()]
        new = new_names(metadata, present)
        for name in new:
            connection.execute(f"ALTER TABLE documents ADD COLUMN {quoted(name)}")
        return [name for name in (*present, *new) if name not in _RESERVED]

    def _columns(self, metadata: Sequence[Json], names: Sequence[str]) -> dict[str, list[Any]]:
        """Metadata as columns: of these names, and of JSON where the usual ones do not say all."""
        usual = {*(self._header.names or ())}
        plain = [row.keys() == usual and all(map(_is_plain, row.values())) for row in metadata]
        pairs = zip(metadata, plain, strict=True)
        texts = [None if whole else json.dumps(row, ensure_ascii=False) for row, whole in pairs]
        return {"json": texts} | {name: [_as_column(row.get(name)) for row in metadata] for name in names}

    def remove(self, connection: sqlite3.Connection, rows: Sequence[int]) -> None:
        """Removes the documents of rows."""
        if self._header.lists_documents:
            connection.executemany("DELETE FROM documents WHERE row = ?", zip(rows))

    def fetch(self, rows: Sequence[int]) -> dict[int, Document]:
        """The documents of rows, as far as they are there."""
        if not self._header.lists_documents:
            return {row: Document(row) for row in rows}
        found = self._database.rows_of("SELECT * FROM documents WHERE row IN", rows, named=True)
        return {row[0]: self._document(row) for row in found}

    def _document(self, row: sqlite3.Row) -> Document:
        metadata = None
        if self._header.names is not None:
            if row["json"] is None:
                metadata = {name: row[name] for name in self._header.names}
            else:
                metadata = self._parsed(row["json"])
        if self._header.has_texts and not isinstance(row["text"], str):
            raise self._damaged("text", row["text"])
        return Document(row["id"], row["text"] if self._header.has_texts else None, metadata)

    def _parsed(self, text: Any) -> Json:
        try:
            metadata = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            metadata = None
        if not isinstance(metadata, dict):
            raise self._damaged("metadata", text)
        return metadata

    def _damaged(self, what: str, value: object) -> FormatError:
        return FormatError(f"{self._database.name}: {value!r:.80} is not the {what} of a document. Rebuild the index.")

    def all(self) -> Iterator[Document]:
        """The documents in the order of their rows."""
        last = -1
        while block := self._database.rows(
            "SELECT * FROM documents WHERE row > ? ORDER BY row LIMIT ?", [last, _BLOCK], named=True
        ):
            yield from map(self._document, block)
            last = block[-1][0]

    def ids(self, rows: Int64[np.ndarray, ...]) -> Shaped[np.ndarray, ...]:
        """The ids of rows that are there: int64, or strings as objects. Row −1 has the id −1, or None of strings."""
        if self._header.id_type is None:
            return rows
        wanted = sorted({*rows.ravel().tolist()} - {-1})
        found = dict(self._database.rows_of("SELECT row, id FROM documents WHERE row IN", wanted))
        dtype, missing = (np.int64, -1) if self._header.id_type == "integer" else (object, None)
        return np.array([found.get(row, missing) for row in rows.ravel().tolist()], dtype).reshape(rows.shape)

    def every_id(self) -> list[Any]:
        """The ids of all documents that have their own, in the order of their rows."""
        return [id for (id,) in self._database.rows("SELECT id FROM documents ORDER BY row")]

    def rows_of(self, ids: Sequence[Any]) -> dict[Any, int]:
        """The rows of the documents' own ids, as far as they are there."""
        kind = str if self._header.id_type == "string" else int
        wanted = [id for id in ids if type(id) is kind]
        return dict(self._database.rows_of("SELECT id, row FROM documents WHERE id IN", wanted))


def _checked(number: int, row: Any) -> Json:
    """A row of metadata; InputError for a value that JSON lacks."""
    what = f"metadata: row {number}"
    if not isinstance(row, Mapping):
        raise InputError(f"{what}: expected a dictionary, got {row!r:.80}.")
    with turning(InputError, f"{what}: cannot be stored as JSON ({REASON}).", ValueError):
        checked: Json = as_json(row)
    return checked


def new_names(metadata: Iterable[Json], present: Iterable[str] = ()) -> list[str]:
    """The names of metadata that can be columns beside those that are present; SQL does not tell their case apart."""
    known = {name.lower() for name in present} | _RESERVED
    new = list[str]()
    for name in dict.fromkeys(chain.from_iterable(metadata)):
        if name and "\0" not in name and name.lower() not in known and len(known) < _COLUMNS:
            known.add(name.lower())
            new.append(name)
    return new


def _is_plain(value: Any) -> bool:
    """Whether a column gives a value back as it is."""
    return value is None or type(value) in (str, float) or (type(value) is int and value < 2**63)


def _as_column(value: Any) -> Any:
    """A value for filters."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if type(value) is int and value >= 2**63:
        return float(value)
    return value


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
