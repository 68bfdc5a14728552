"""Embeddings on disk, so that a sentence is encoded once for any number of settings.

An entry is a folder named by a key over everything that the vectors depend on: weights, configuration and tokenizer
(the encoder's fingerprint), pooling, prompt, max_length, dtype, engine, and the sentences in their order. While an
entry is made, it holds shards, and parts of the shard at work, each written atomically, so that a killed run resumes
where it stopped. A finished entry is one memory-mapped `.npy` file, with a JSON sidecar that holds the key and a
checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxwhiten import interrupts, io
from jaxwhiten.arrays import blocks
from jaxwhiten.coded import with_code
from jaxwhiten.errors import InputError, NonFiniteError, OutputError, check_integer, warn
from jaxwhiten.head.head import pooling_names
from jaxwhiten.space import JUDGED
from jaxwhiten.terminal import counted, note
from jaxwhiten.text import Texts, as_texts, text_fingerprint
from jaxwhiten.types import Fields, Json
from jaxwhiten.views import View
from jaxwhiten.views.stream import BLOCK
from jaxwhiten.views.view import together

if TYPE_CHECKING:
    from jaxwhiten.encoding.encoder import Encoder

# Changed whenever the encoder's arithmetic changes, so that vectors of older versions are not read.
VERSION = 1
SHARD_ROWS = 8192
_SECONDS = 5.0  # between two parts of a shard: the most that a killed run loses
_ARRAY = "embeddings.npy"
_SIDECAR = "embeddings.json"


class EmbeddingStore:
    """A folder of embeddings.

    >>> encoder, store = Encoder.from_pretrained("jaxwhiten-tiny"), EmbeddingStore("cache")
    >>> np.array_equal(store.encode(encoder, ["It rains."]), encoder.encode(["It rains."]))
    True

    Args:
      folder: The folder; by default `embeddings` in the cache folder (`jaxwhiten.io.cache_dir`).
      shard_rows: Sentences of a shard. A killed run loses the work of 5 seconds, or of a shard if that takes less.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, shard_rows: int = SHARD_ROWS):
        check_integer("shard_rows", shard_rows, least=1)
        if folder is not None:
            self.folder = Path(folder)
        else:
            self.folder = io.cache_dir("embeddings")
        self.shard_rows = shard_rows

    def encode(
        self,
        encoder: Encoder | View,
        sentences: Texts,
        *,
        pooling: Any = None,
        prompt: str | None = None,
        show_progress: Any = None,
    ) -> Any:
        """`Encoder.encode` with a cache: results are read from the store, and missing ones are computed and stored.

        Missing poolings are computed together, in one forward pass. After Ctrl-C or a kill the next call goes on, and a
        note says so.

        Args:
          encoder: An `Encoder`, or a view.
          sentences, pooling, prompt, show_progress: As in `Encoder.encode`.

        Returns:
          A read-only memory map in the order of the sentences, float32 [n, d], or a `CodedArray` [n, bytes] if the head
          ends with a code; for several poolings a dict by name.
        """
        default = encoder if isinstance(encoder, View) else encoder.view
        names, single = pooling_names(pooling, default.head.name)
        views = {name: default.with_pooling(name) for name in names}
        if prompt is not None:
            views = {name: view.with_prompt(prompt) for name, view in views.items()}
        sentences = as_texts(sentences)
        if not sentences:
            raise InputError("No sentences to encode.")
        text = text_fingerprint(sentences)
        entries = {
            name: _Entry(self.folder, entry_key(view, text, len(sentences)), self.shard_rows)
            for name, view in views.items()
        }
        opened: dict[str, Any] = {name: entry.open() for name, entry in entries.items()}
        missing = {name: entries[name] for name, array in opened.items() if array is None}
        if not missing:
            _count_cut(views[names[0]], sentences)
        first = True
        while missing:
            shards = _Shards(missing)
            lacking = shards.rows
            texts = [sentences[row] for row in lacking]
            if first and shards.done:
                note(f"resumed: {shards.done:,} of {counted(len(sentences), 'texts')} were encoded before")
                stored = np.setdiff1d(np.arange(len(sentences)), lacking)
                _count_cut(views[names[0]], [sentences[row] for row in stored])
            first = False
            some = {name: views[name] for name in missing}
            try:
                for block in together(some, texts, shards.sizes, None, show_progress, shards.keep):
                    shards.put(block)
            except KeyboardInterrupt:
                with contextlib.suppress(OutputError):
                    shards.save()
                raise
            except NonFiniteError as error:  # its rows are among the texts that were missing
                raise NonFiniteError.of_texts([int(lacking[row]) for row in error.rows], sentences) from None
            opened |= {name: entry.join() for name, entry in missing.items()}
            missing = {name: entry for name, entry in missing.items() if opened[name] is None}
        interrupts.kept = ""
        opened = {name: with_code(array, views[name].code) for name, array in opened.items()}
        if single:
            return opened[names[0]]
        return opened


def _count_cut(view: View, sentences: list[str]) -> None:
    """Tokenizes what is not encoded: what a command says of texts that were cut must not depend on the cache."""
    for part in blocks(len(sentences), BLOCK):
        view.tokens(sentences[part])


def entry_key(view: View, text: str, rows: int) -> Json:
    """Everything that the vectors of an entry depend on; equal for equal vectors. `text` is the `text_fingerprint`."""
    record = view.space.record()
    dtype = np.dtype(view.head.dtype)
    return {
        **{name: value for name, value in record.items() if name not in ("model", "fingerprint", "prompts", *JUDGED)},
        "store_version": VERSION,
        "encoder": record["fingerprint"],
        "dimension": view.dimension,
        **({} if dtype == np.float32 else {"kept": dtype.str}),
        "rows": rows,
        "text": text,
    }


class _Shards:
    """The shards that some entries of the same texts lack, in their order, and what is already there of each."""

    def __init__(self, entries: Mapping[str, _Entry]):
        self.entries = entries
        self.count, self.shard_rows = next((entry.shape[0], entry.shard_rows) for entry in entries.values())
        self._left: list[tuple[int, np.ndarray]] = []  # number of a shard, and its rows that are not there
        self._parts: dict[int, dict[str, np.ndarray]] = {}
        for number in range(-(-self.count // self.shard_rows)):
            if all(entry.has(number) for entry in entries.values()):
                continue
            parts = {name: entry.parts(number) for name, entry in entries.items()}
            stored = np.logical_and.reduce([rows for rows, _ in parts.values()])
            if stored.any():
                self._parts[number] = {name: vectors for name, (_, vectors) in parts.items()}
            self._left.append((number, np.flatnonzero(~stored)))
        self._at = 0
        self._new: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        self._last = time.monotonic()
        self._pass_whole()
        self.done = self.count - sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The number of rows that each shard lacks."""
        return [len(rows) for _, rows in self._left[self._at :]]

    @property
    def rows(self) -> np.ndarray:
        """The rows that are not there, among those of all shards."""
        remaining = [number * self.shard_rows + rows for number, rows in self._left[self._at :]]
        return np.concatenate([np.zeros(0, np.int64), *remaining])

    def keep(self, rows: np.ndarray, vectors: dict[str, np.ndarray]) -> None:
        """Takes vectors of rows that the shard at work lacks, and writes them after some seconds."""
        if set(vectors) != set(self.entries):  # poolings that read different texts
            return
        self._new.append((self._left[self._at][1][rows], vectors))
        if time.monotonic() - self._last >= _SECONDS:
            self.save()

    def save(self) -> None:
        """Writes what was taken since the last time."""
        new = self._new
        self._new = []
        self._last = time.monotonic()
        if new:
            rows = np.concatenate([rows for rows, _ in new])
            for name, entry in self.entries.items():
                entry.put_part(self._left[self._at][0], rows, np.concatenate([vectors[name] for _, vectors in new]))
            self._say(len(rows))

    def put(self, block: Mapping[str, np.ndarray]) -> None:
        """Writes the shard at work, of which these rows were missing."""
        number, rows = self._left[self._at]
        before = self._parts.pop(number, {})
        for name, entry in self.entries.items():
            whole = block[name]
            if before:
                whole = before[name]
                whole[rows] = block[name]
            entry.put(number, whole)
        self._at += 1
        self._new = []
        self._last = time.monotonic()
        self.done = self.count - sum(self.sizes)
        self._say(0)

    def _pass_whole(self) -> None:
        """Writes shards of which all is there, in parts."""
        whole = [number for number, rows in self._left if not len(rows)]
        self._left = [(number, rows) for number, rows in self._left if len(rows)]
        for number in whole:
            parts = self._parts.pop(number)
            for name, entry in self.entries.items():
                entry.put(number, parts[name])

    def _say(self, more: int) -> None:
        self.done += more
        if self.done < self.count:
            texts = counted(self.count, "texts")
            interrupts.kept = f"{self.done:,} of {texts} are encoded, and the same command resumes there"


class _Entry:
    """One array, finished or being made."""

    def __init__(self, root: Path, key: Fields, shard_rows: int):
        self.key = dict(key)
        self.folder = root / io.content_key(self.key)
        self.shape = (key["rows"], key["dimension"])
        self.dtype = np.dtype(key.get("kept", np.float32))
        self.shard_rows = shard_rows

    def _shard(self, number: int, digest: str = "*") -> Path:
        """The path of a shard, whose name holds a digest of its bytes; of the shard that is there, without a digest."""
        name = f"shard-{self.shard_rows}-{number:06d}-{digest}.npy"
        if digest == "*":
            return next(self.folder.glob(name), self.folder / name)
        return self.folder / name

    def open(self) -> np.ndarray | None:
        """The finished array if it is there and intact; a damaged one is reported and made again."""
        sidecar = self.folder / _SIDECAR
        if not sidecar.is_file():
            return None
        try:
            header = json.loads(sidecar.read_text(encoding="utf-8"))
            io.same("key of its sidecar", header["key"], self.key)
            array = _map(self.folder / _ARRAY, self.shape, self.dtype)
            io.check_sha256(self.folder / _ARRAY, header["sha256"])
            self._clear()
            return array
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            warn(f"{self.folder}: damaged embeddings ({error}): recomputing.")
            sidecar.unlink(missing_ok=True)
            return None

    def has(self, number: int) -> bool:
        """Whether a shard is there as it was written; a damaged one is removed."""
        try:
            array = _map(path := self._shard(number), self._shard_shape(number), self.dtype)
            if _digest(array) == path.stem.rpartition("-")[2]:
                return True
        except OSError:  # there is none, or no folder for it
            return False
        except ValueError:
            pass
        path.unlink(missing_ok=True)
        return False

    def _shard_shape(self, number: int) -> tuple[int, int]:
        return min(self.shard_rows, self.shape[0] - number * self.shard_rows), self.shape[1]

    def put(self, number: int, block: np.ndarray) -> None:
        block = np.ascontiguousarray(block, self.dtype)
        io.save_array(self._shard(number, _digest(block)), block)
        for path in self._parts(number):
            path.unlink(missing_ok=True)

    def put_part(self, number: int, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Writes some rows of a shard."""
        part = np.empty(len(rows), self._part)
        part["row"] = rows
        part["vector"] = vectors
        io.save_array(self.folder / f"part-{self.shard_rows}-{number:06d}-{_digest(part)}.npy", part)

    def parts(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of a shard are there in parts, and a shard with their vectors; damaged parts are removed."""
        shape = self._shard_shape(number)
        stored = np.zeros(shape[0], bool)
        paths = self._parts(number)
        vectors = np.empty(shape if paths else (0, 0), self.dtype)
        for path in paths:
            try:
                part = np.array(io.map_array(path))
                if part.dtype != self._part or _digest(part) != path.stem.rpartition("-")[2]:
                    raise ValueError(path.name)
                vectors[part["row"]] = part["vector"]
                stored[part["row"]] = True
            except FileNotFoundError:  # of another process, which has written the shard
                continue
            except (OSError, ValueError, IndexError):
                path.unlink(missing_ok=True)
        return stored, vectors

    def _parts(self, number: int) -> list[Path]:
        return sorted(self.folder.glob(f"part-{self.shard_rows}-{number:06d}-*.npy"))

    @property
    def _part(self) -> np.dtype:
        """A row of a shard with its number."""
        return np.dtype([("row", "<i4"), ("vector", self.dtype, (self.shape[1],))])

    def join(self) -> np.ndarray | None:
        """Joins all shards into one array, removes them and maps the array.

        Another process may work on the same entry; if it finishes first, its array is used. None if it has removed
        shards and left no array.
        """
        try:
            array = self.open()
            if array is None:
                self._join_shards()
                array = _map(self.folder / _ARRAY, self.shape, self.dtype)
        except FileNotFoundError:
            return self.open()
        self._clear()
        return array

    def _clear(self) -> None:
        """Removes the shards of a finished array; a run killed just before this leaves all of them."""
        for path in (*self.folder.glob("shard-*.npy"), *self.folder.glob("part-*.npy")):
            path.unlink(missing_ok=True)
        io.remove_stale(self.folder)

    def _join_shards(self) -> None:
        shards = [self._shard(number) for number in range(-(-self.shape[0] // self.shard_rows))]
        with io.atomic_path(self.folder / _ARRAY) as temporary:
            with open(temporary, "wb") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
                )
                for number, path in enumerate(shards):
                    _map(path, self._shard_shape(number), self.dtype).tofile(file)
            digest = io.sha256_file(temporary)
        io.write_json(self.folder / _SIDECAR, {"key": self.key, "sha256": digest})


def _digest(block: np.ndarray) -> str:
    return hashlib.sha256(block.data).hexdigest()[:16]


def _map(path: Path, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    name = path.name
    [array] = io.take({name: io.map_array(path)}, str(dtype), finite=False, **{name: shape})
    return array
