"""The file of an index: what it says of itself, and the tables of the rest."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.errors import FormatError, InputError
from jaxwhiten.options import bounded
from jaxwhiten.space import Space
from jaxwhiten.store import SCHEMA
from jaxwhiten.types import Json

T = TypeVar("T")
KIND = 0x6A787769  # the application ID of the file: "jxwi"
# Arrays that backends keep of documents, and the documents' numbers.
CODES = "codes"
LISTS = "lists"
VECTORS = "vectors"
ROWS = "rows"
COPY = "float16"  # the type of the copies to rescore by
# Files in the file.
FITTED = "fitted.safetensors"
_AGAIN = "Rebuild the index."
_NEEDED = ("model", "fingerprint", "pooling", "max_length")  # fields of `space`
_TABLES = (
    *SCHEMA,
    "CREATE TABLE header (name TEXT PRIMARY KEY, value)",
    "CREATE TABLE files (name TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE copies (row INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE removed (number INTEGER PRIMARY KEY, position INTEGER NOT NULL)",
)


@dataclass(frozen=True)
class Codes:
    """The codes of an index."""

    name: str
    bytes: int = bounded(MISSING, 1)  # per document
    length: float = bounded(MISSING, 0.0, 1e9, above=True, below=True)  # root mean square of those of decoded documents


@dataclass(kw_only=True)
class Header:
    """The description of an index, in memory and in its file."""

    backend: str
    options: Json  # of the backend, as used
    input_dimension: int = bounded(MISSING, 1)  # of a raw vector
    dimension: int = bounded(MISSING, 1)  # of a stored vector
    normalize: bool  # whether vectors are scaled to unit length
    space: Space | None  # of the documents
    folder: str | None  # the absolute path of the model of the space, if it is a local folder
    whitening: Json | None  # hash, dimension and provenance of the one inside the index
    codes: Codes | None  # the code of the documents; None for float32
    rescore: str | None  # the type of the copy by which candidates of a search are scored again: `COPY` or None
    id_type: str | None  # of the documents' own IDs: "string" or "integer"; None if the index numbers them
    has_texts: bool
    has_words: bool  # whether the words of texts are indexed, for hybrid search
    names: list[str] | None  # of the metadata that has columns, in documents that say no more; None without metadata
    columns: Json = field(default_factory=dict)  # of the table that the documents are of: `id`, and a list `keep`
    notes: list[str] = field(default_factory=list)  # for the user: an option was lowered, a sample was taken
    build_seconds: float = bounded(MISSING, 0.0)

    @property
    def has_metadata(self) -> bool:
        """Whether documents have metadata."""
        return self.names is not None

    @property
    def lists_documents(self) -> bool:
        """Whether the table of documents has a row for each; otherwise there are but numbers."""
        return self.has_texts or self.has_metadata or self.id_type is not None


def create(connection: sqlite3.Connection, header: Header, documents: Sequence[str]) -> None:
    """Makes the tables, those of documents by these statements, and writes the header."""
    for statement in (*_TABLES, *documents, f"PRAGMA user_version = {io.FORMAT_VERSION}"):
        connection.execute(statement)
    text = json.dumps(io.seal({"jaxwhiten_version": __version__, **io.to_json(header)}), ensure_ascii=False)
    connection.execute("INSERT INTO header VALUES ('index', ?)", [text])


def read_header(connection: sqlite3.Connection, where: str) -> Header:
    """The header of an index; FormatError if it is missing, damaged or of another version."""
    [[version]] = connection.execute("PRAGMA user_version").fetchall()
    io.check_version(where, {"format_version": version})
    texts = [str(text) for (text,) in connection.execute("SELECT value FROM header WHERE name = 'index'").fetchall()]
    if not texts:
        raise FormatError(f"{where}: contains no header. {_AGAIN}")
    record = io.parse_json(texts[0], dict[str, Any], where, _AGAIN)
    io.check_seal(where, record)
    header: Header = io.from_json(Header, record, where, _AGAIN)
    if header.space is not None and (lacking := [name for name in _NEEDED if getattr(header.space, name) is None]):
        raise FormatError(f"{where}: space: {lacking[0]}: missing. {_AGAIN}")
    return header


def put_file(connection: sqlite3.Connection, name: str, save: Callable[[Path], None]) -> None:
    """Puts the file that `save` writes into the file of an index."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        save(path)
        connection.execute("INSERT INTO files VALUES (?, ?)", [name, path.read_bytes()])


def get_file(connection: sqlite3.Connection, name: str, load: Callable[[Path], T]) -> T | None:
    """What `load` makes of a file in the file of an index; None if there is no such file.

    ValueError for a FormatError: `load` compares its checksum.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        for (data,) in connection.execute("SELECT data FROM files WHERE name = ?", [name]).fetchall():
            path.write_bytes(data)
            try:
                return load(path)
            except FormatError as error:
                raise ValueError(str(error).removeprefix(f"{folder}{os.sep}")) from error
    return None


def check_index_file(path: os.PathLike[str] | str) -> Path:
    """The real path of a file that `Index.save` may write; InputError if it is read-only or another kind of file."""
    file = io.replaceable(path)
    if os.fspath(path).endswith(os.sep):
        raise InputError(f"{path}: is the name of a folder; an index is a file, such as docs.db.")
    str(file).encode()  # UnicodeEncodeError: a name that is not UTF-8
    if file.is_dir():
        raise InputError(f"{path}: is a folder; an index is a file, such as {Path(path).name}.db.")
    if file.exists() and file.stat().st_size and not is_index(file):
        raise InputError(f"{path}: is a file of another kind, not an index; nothing was written. Specify a new file.")
    return file


def is_index(path: os.PathLike[str] | str) -> bool:
    """Whether a file is one of an index; SQLite reads it, because to close it elsewhere would release its locks."""
    if not os.path.isfile(path):
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(os.fspath(path))}?mode=rw", uri=True)) as connection:
            return bool(connection.execute("PRAGMA application_id").fetchall() == [(KIND,)])
    except sqlite3.Error:  # it is damaged, or no database
        with open(path, "rb") as file:
            return int.from_bytes(file.read(72)[68:], "big") == KIND
