"""Vectors on disk, so that a text is encoded once for any number of settings.

Each space has a SQLite file, named by a key over everything that vectors depend on except the texts: weights,
configuration and tokenizer (the encoder's fingerprint), pooling, prompt, max_length, dtype and engine. Its rows are
found by a hash of the text, and have a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import blocks
from jaxwhiten.errors import FormatError, InputError, NonFiniteError, OutputError, warn
from jaxwhiten.head.head import contents_in, pooling_names
from jaxwhiten.store import SQLite, replacing
from jaxwhiten.terminal import counted, interrupts, note
from jaxwhiten.text import TextList, Texts, as_texts
from jaxwhiten.types import Json
from jaxwhiten.vectors import with_space
from jaxwhiten.views import View
from jaxwhiten.views.stream import BLOCK
from jaxwhiten.views.view import together

if TYPE_CHECKING:
    from jaxwhiten.encoding.encoder import Encoder

T = TypeVar("T")
# Changed whenever the encoder's arithmetic changes, so that vectors of older versions are not read.
VERSION = 2
_SECONDS = 5.0  # between two writes: the most that a killed run loses
_KIND = 0x6A775631  # the `application_id` of such a file
_NAMES = ("model", "fingerprint", "head", "pooling", "prompts")  # fields of a space that are kept in another form


class EmbeddingStore:
    """A folder of vectors. Processes and threads may share it.

    >>> encoder, store = Encoder.from_pretrained("jaxwhiten-tiny"), EmbeddingStore("cache")
    >>> np.array_equal(store.encode(encoder, ["It rains."]), encoder.encode(["It rains."]))
    True

    Args:
      folder: The folder; by default `embeddings` in the cache folder (`jaxwhiten.io.cache_dir`).
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None):
        if folder is not None:
            self.folder = Path(folder)
        else:
            self.folder = io.cache_dir("embeddings")

    def encode(
        self,
        encoder: Encoder | View,
        sentences: Texts,
        *,
        pooling: Any = None,
        prompt: str | None = None,
        show_progress: Any = None,
    ) -> Any:
        """`Encoder.encode` with a cache: vectors are read from the store, and missing ones are computed and stored.

        Missing poolings are computed together, in one forward pass. After Ctrl-C or a kill, which loses the work of 5
        seconds, the next call resumes, and a note says so.

        Args:
          encoder: An `Encoder`, or a view.
          sentences, pooling, prompt, show_progress: As in `Encoder.encode`.

        Returns:
          A read-only array in the order of the sentences, float32 [n, d], or codes [n, bytes] if the head ends with a
          code; for several poolings a dict by name.
        """
        default = encoder if isinstance(encoder, View) else encoder.view
        names, single = pooling_names(pooling, default.head.name)
        views = {name: default.with_pooling(name) for name in names}
        if prompt is not None:
            views = {name: view.with_prompt(prompt) for name, view in views.items()}
        sentences = as_texts(sentences)
        if not sentences:
            raise InputError("No sentences to encode.")
        number: dict[str, int] = {}  # of each text, among those that differ
        numbers = np.array([number.setdefault(text, len(number)) for text in sentences])
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16] for text in number]
        spaces = {name: _Space(self.folder, view, keys) for name, view in views.items()}
        lacking = {name: space for name, space in spaces.items() if not space.known.all()}
        if lacking:
            _finish({name: views[name] for name in lacking}, lacking, sentences, numbers, show_progress)
        else:
            _count_cut(views[names[0]], sentences)
        results = {
            name: with_space(stored.vectors_of(numbers), views[name].space, views[name].code)
            for name, stored in spaces.items()
        }
        return results[names[0]] if single else results


def space_key(view: View) -> Json:
    """Everything that the vectors of texts depend on but the texts; equal for equal vectors."""
    record = view.space.record()
    return {
        **{name: value for name, value in record.items() if name not in _NAMES},
        "store_version": VERSION,
        "encoder": view.core.digest,
        "steps": io.hashed(contents_in(view.head.steps, view.core.config)),
        "form": repr(view.head.form.with_prompt("")),
        "dimension": view.dimension,
        "stored": np.dtype(view.head.dtype).str,
        "unit": view.unit,
    }


class _Space:
    """The vectors of some texts in one space, and the file that keeps them."""

    def __init__(self, folder: Path, view: View, keys: Sequence[bytes]):
        self.key = json.dumps(space_key(view), sort_keys=True)
        self.path = folder / f"{io.content_key(self.key)}.db"
        self.keys = keys
        self.vectors = np.empty((len(keys), view.dimension), view.head.dtype)
        self.known, self._kept = np.zeros((2, len(keys)), bool)  # whether a vector is here, and in the file
        if damaged := self._with_file(self._read):
            warn(f"{self.path}: {counted(damaged, 'damaged vectors')}: recomputing.")

    def put(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Takes the vectors of some rows, which `save` writes; those that are known stay."""
        new = ~self.known[rows]
        self.vectors[rows[new]] = vectors[new]
        self.known[rows] = True

    def save(self) -> None:
        """Writes what the file lacks."""
        self._with_file(self._write)

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of rows, read-only."""
        vectors = self.vectors if len(rows) == len(self.keys) else self.vectors[rows]
        vectors.flags.writeable = False
        return vectors

    def _with_file(self, work: Callable[[SQLite], T], again: bool = True) -> T:
        """Works with the file; one that is damaged is removed, and begun anew."""
        try:
            with io.writing(self.path, OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(SQLite(self.path, kind=_KIND, create=True)) as database:
                database.rows("PRAGMA synchronous = OFF")  # damage is found, and mended
                if not database.rows("SELECT name FROM sqlite_master"):
                    database.change(self._begin)
                if database.rows("SELECT key FROM header") != [(self.key,)]:
                    raise FormatError("a different key")
                return work(database)
        except FormatError as error:
            if not again:
                raise
            warn(f"{self.path}: damaged embeddings ({error.__cause__ or error}): recomputing.")
        with io.writing(self.path, OSError), replacing(self.path):
            self.path.unlink(missing_ok=True)
        self._kept[:] = False
        return self._with_file(work, again=False)

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS header (key TEXT PRIMARY KEY)")
        connection.execute("INSERT OR IGNORE INTO header VALUES (?)", [self.key])
        connection.execute(
            "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, checksum INTEGER NOT NULL, data BLOB NOT NULL)"
        )

    def _read(self, database: SQLite) -> int:
        """Reads what is there; the number of damaged vectors."""
        row_of = {key: row for row, key in enumerate(self.keys)}
        damaged = 0
        for part in blocks(len(self.keys), BLOCK):
            select = "SELECT text, checksum, data FROM vectors WHERE text IN"
            for key, checksum, data in database.rows_of(select, self.keys[part]):
                row = row_of.get(key)
                whole = row is not None and type(data) is bytes and len(data) == self.vectors[row].nbytes
                if whole and _checksum(key, data) == checksum:
                    self.vectors[row] = np.frombuffer(data, self.vectors.dtype)
                    self.known[row] = self._kept[row] = True
                else:
                    damaged += 1
        return damaged

    def _write(self, database: SQLite) -> None:
        rows = np.flatnonzero(self.known & ~self._kept)
        pairs = ((self.keys[row], self.vectors[row].tobytes()) for row in rows.tolist())
        records = ((key, _checksum(key, data), data) for key, data in pairs)
        insert = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)"
        database.change(lambda connection: connection.executemany(insert, records))
        self._kept[rows] = True


def _checksum(key: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(key))


def _finish(
    views: Mapping[str, View], spaces: Mapping[str, _Space], sentences: TextList, numbers: np.ndarray, bar: Any
) -> None:
    """Encodes what spaces lack, and saves it every few seconds and at the end.

    `numbers` are those of the sentences among the sentences that differ.
    """
    last = time.monotonic()
    total = counted(len(sentences), "texts")

    def known() -> np.ndarray:
        return np.logical_and.reduce([space.known for space in spaces.values()])

    def save() -> None:
        nonlocal last
        for space in spaces.values():
            space.save()
        last = time.monotonic()
        done = f"{known()[numbers].sum():,} of {total} are encoded"
        interrupts.kept = f"{done}, and the same command resumes there"

    def keep(rows: np.ndarray, vectors: Mapping[str, np.ndarray]) -> None:
        for name, x in vectors.items():
            spaces[name].put(missing[rows], x)
        if time.monotonic() - last >= _SECONDS:
            save()

    missing = np.flatnonzero(~known())
    if known().any():
        note(f"resumed: {known()[numbers].sum():,} of {total} were encoded before")
    lacking = np.unique(numbers, return_index=True)[1][missing]
    others = np.setdiff1d(np.arange(len(sentences)), lacking)
    _count_cut(next(iter(views.values())), [sentences[row] for row in others])
    try:
        for _ in together(views, [sentences[row] for row in lacking], BLOCK, None, bar, keep):
            pass
    except BaseException as error:
        with contextlib.suppress(OutputError):
            save()
        if not isinstance(error, NonFiniteError):
            raise
        rows = np.flatnonzero(np.isin(numbers, missing[list(error.rows)]))
        raise NonFiniteError.of_texts(rows.tolist(), sentences) from None
    save()
    io.trim_cache()
    interrupts.kept = ""


def _count_cut(view: View, sentences: list[str]) -> None:
    """Tokenizes what is not encoded: what a command says of texts that were cut must not depend on the cache."""
    for part in blocks(len(sentences), BLOCK):
        view.tokens(sentences[part])
