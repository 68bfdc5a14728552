"""The index: built from vectors, searched, saved to a folder and loaded, with a record of how it was made.

A saved index is a folder: `header.json`, the vectors or codes, and the texts if there are any. The
header names each file with its size and SHA-256. It is replaced last, so that it always points to complete files. What
is added to it later is in files of its own, and the numbers of removed rows are in one more.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from jaxwhiten.coded import CodedArray
from jaxwhiten.codes import Code, load_fitted
from jaxwhiten.errors import REASON, FormatError, InputError, MismatchError, check_counts, check_integer, turning, warn
from jaxwhiten.io import PathLike, writing
from jaxwhiten.locks import SharedLock, locked
from jaxwhiten.records import from_json
from jaxwhiten.search import faiss, jax_flat  # noqa: F401 (backends, which add themselves to BACKENDS)
from jaxwhiten.search.backend import BACKENDS
from jaxwhiten.search.encoders import Location
from jaxwhiten.search.header import (
    COPY,
    DOCUMENTS,
    ENDS,
    FITTED,
    HEADER,
    METADATA,
    METADATA_ENDS,
    REMOVED,
    About,
    Files,
    Header,
    Tail,
    check_index_folder,
    joined,
    read_header,
    replace_files,
)
from jaxwhiten.search.ids import Ids, unique_ids
from jaxwhiten.search.prepare import Rows, check_vectors
from jaxwhiten.search.rescore import WIDER, Rescoring
from jaxwhiten.search.saved import Saved
from jaxwhiten.search.store import Store
from jaxwhiten.search.strings import Strings, as_json, write_lines
from jaxwhiten.space import EncodedArray, Origin, VectorSpace, check_space
from jaxwhiten.terminal import counted
from jaxwhiten.text import TextList, Texts, as_texts
from jaxwhiten.types import Fields, Float32, IdsLike, Int64, Json, MetadataLike, RowsLike, Shaped
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import Affine

if TYPE_CHECKING:
    from jaxwhiten.views import Views


_OF_ROWS = ("store", "table", "documents", "metadata", "rescoring")  # what an index keeps of each document


class Hit(NamedTuple):
    """One result: the document's id, its score (a cosine), and its text and metadata if the index keeps them.

    >>> Hit(id=3, score=0.9, text="A dog runs.").text
    'A dog runs.'
    """

    id: int | str
    score: float
    text: str | None
    metadata: Json | None = None

    def record(self) -> Json:
        """The result as a dictionary, without metadata if the index keeps none."""
        record = self._asdict()
        if self.metadata is None:
            del record["metadata"]
        return record


@dataclass(kw_only=True, eq=False, repr=False)
class Index(About):
    """An index of document vectors, made by `build_index` or `load_index`. An id is never given to another document.

    Threads may share it. Searches run in parallel; a change waits for searches and other changes. A change that raises
    leaves the index unchanged.

    >>> index = build_index(np.eye(4, dtype=np.float32), ids=["a", "b", "c", "d"])
    >>> index.remove(["a"])
    >>> index.ids.tolist()
    ['b', 'c', 'd']
    """

    store: Store  # holds the vectors
    table: Ids  # maps rows to ids
    documents: Strings | None = None  # the texts by row
    metadata: Strings | None = None  # an object of JSON for each row
    fitted: Whitening | Code | None = None  # on the vectors, for their code
    rescoring: Rescoring | None = None  # the copy by which candidates are scored again
    location: Location | None = None  # from which it was loaded
    _threads: SharedLock = field(default_factory=SharedLock, init=False)
    _saved: dict[Path, Saved] = field(default_factory=dict, init=False)  # what each folder holds of it
    _fitting: dict[str, tuple[Origin, int]] = field(default_factory=dict, init=False)  # what was last checked, by role

    def __reduce__(self) -> Any:
        raise InputError("An index cannot be pickled or deep-copied: save it, and call load_index there.")

    def __repr__(self) -> str:
        return f"Index({counted(self.size, 'documents')}, {self.stored}, {self.nbytes / 1e6:.1f} MB)"

    @functools.cached_property
    def views(self) -> Views | None:
        """The views of texts for this index; None if it was built of vectors.

        A loaded index reads the model that it records when they are first used.
        """
        if self.location is None:
            return None
        views = self.location.views(self.encoding)
        self.check_encoding(views.queries.space)
        return views

    @property
    def size(self) -> int:
        """The number of documents."""
        return self.store.size

    @property
    def stored(self) -> str:
        """What is stored of a document, and by which backend."""
        codes = self.codes and f"{self.codes['name']} codes of {self.codes['bytes']} bytes"
        return f"{codes or f'{self.dimension} dimensions'}, {self.backend}"

    @property
    def ids(self) -> Shaped[np.ndarray, " n"]:
        """The id of each stored row: int64, or strings as objects."""
        return self.table.array

    def text_of(self, id: int | str) -> str | None:
        """The text of a document; None if the index keeps no texts. InputError if it does not have the id."""
        if self.documents is None:
            return None
        return self.documents[int(self.table.rows([id])[0])]

    def metadata_of(self, id: int | str) -> Json | None:
        """The metadata of a document; None if the index keeps none. InputError if it does not have the id."""
        if self.metadata is None:
            return None
        return dict(self.metadata[int(self.table.rows([id])[0])])

    @property
    def prepare(self) -> Affine:
        """The map applied to a raw vector before it is stored or searched for."""
        return self.store.prepare

    def add(
        self,
        vectors: RowsLike,
        *,
        documents: Texts | None = None,
        ids: IdsLike = None,
        metadata: MetadataLike = None,
    ) -> None:
        """Adds raw vectors [n, d], encoded like the others, with texts and metadata if the index keeps them.

        `ids` are required if the other documents brought theirs; otherwise the index assigns the next numbers. Those
        of the index are for `update`. Fitted and trained parts do not change. `save` writes the changed index.

        Raises:
          InputError: An id exists already, or an argument does not fit the index.
          MismatchError: What `Encoder.encode` returned is of another space than the documents.
        """
        with self._threads.writing():
            vectors, checked = self._check(vectors, documents, metadata)
            grown = self._grown({name: getattr(self, name) for name in _OF_ROWS}, vectors, checked)
            self._become(grown | {"table": self.table.plus(ids, len(vectors))})

    def update(
        self,
        ids: IdsLike,
        vectors: RowsLike,
        *,
        documents: Texts | None = None,
        metadata: MetadataLike = None,
    ) -> None:
        """Replaces the documents of existing ids with new raw vectors, texts and metadata, see `add`.

        New ids are for `add`: an `InputError` names the first unknown one, and says how many there are.
        """
        with self._threads.writing():
            vectors, checked = self._check(vectors, documents, metadata)
            gone = self.table.rows(unique_ids(ids, len(vectors)))
            keep = np.delete(np.arange(self.size), gone)
            grown = self._grown(self._taken(keep), vectors, checked)
            self._become(grown | {"table": self.table.taken(np.concatenate([keep, gone]))})

    def remove(self, ids: IdsLike) -> None:
        """Removes the documents of a list of ids; the ids are not used again. At least one document must remain.

        Raises:
          InputError: An id does not exist.
        """
        with self._threads.writing():
            keep = np.delete(np.arange(self.size), self.table.rows(ids))
            if not len(keep):
                raise InputError("This would remove every document; an index holds at least one.")
            if len(keep) < self.size:
                self._become(self._taken(keep))

    def _check(
        self, vectors: RowsLike, documents: Texts | None, metadata: MetadataLike
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Vectors, and what the index keeps besides, by attribute."""
        self._check_space(vectors, "document")
        vectors = check_vectors("document vectors", vectors, self.input_dimension)
        self.check_kept(documents=documents, metadata=metadata)
        return vectors, {"documents": texts_of(documents, vectors), "metadata": rows_of(metadata, vectors)}

    def check_kept(self, **given: object) -> None:
        """Raises `InputError` unless `documents` and `metadata` are given as the index keeps them."""
        for name, value in given.items():
            if value is None and getattr(self, name) is not None:
                raise InputError(f"The index stores {name}: pass `{name}`.")
            if value is not None and getattr(self, name) is None:
                raise InputError(f"The index stores no {name}: omit `{name}`.")

    def _taken(self, rows: Int64[np.ndarray, " m"]) -> dict[str, Any]:
        """What the index keeps of the given rows, which ascend, by attribute."""
        kept = {name: part if (part := getattr(self, name)) is None else part.taken(rows) for name in _OF_ROWS}
        return kept | {"_saved": {folder: saved.taken(rows) for folder, saved in self._saved.items()}}

    def _grown(self, kept: Mapping[str, Any], vectors: np.ndarray, more: Mapping[str, Any]) -> dict[str, Any]:
        """What the index keeps, and checked vectors, texts and metadata after it, by attribute."""
        new = {"store": vectors, "rescoring": vectors, **more}
        return {**kept, **{name: kept[name].plus(part) for name, part in new.items() if kept[name] is not None}}

    def _become(self, kept: dict[str, Any]) -> None:
        """Replaces what the index keeps in one step of the interpreter: an interrupt leaves all of it old, or new."""
        vars(self).update(kept)

    @overload
    def search(self, queries: str, k: int = 10, *, among: IdsLike = None) -> list[Hit]: ...
    @overload
    def search(
        self, queries: list[str] | tuple[str, ...], k: int = 10, *, among: IdsLike = None
    ) -> list[list[Hit]]: ...
    @overload
    def search(
        self, queries: RowsLike, k: int = 10, *, prepared: bool = False, among: IdsLike = None
    ) -> tuple[Float32[np.ndarray, "q k"], Shaped[np.ndarray, "q k"]]: ...
    def search(self, queries: RowsLike, k: int = 10, *, prepared: bool = False, among: IdsLike = None) -> Any:
        """The k best documents of each query.

        Args:
          queries: A text or a list of texts, if the index is by `Encoder.index` or `jaxwhiten.load_index`. Or raw
            vectors, encoded like the documents; the index whitens and normalizes them. What `Encoder.encode`
            returned is checked; other rows of numbers do not know their space.
          k: The number of documents; an index of fewer gives all.
          prepared: Whether vectors are already whitened and normalized (`prepare`), as in the paper's timing. Their
            candidates are not rescored.
          among: The ids of the documents to search, in any order; None searches all. A set of fewer than k documents
            gives what there is; unknown ids are left out, with a warning.

        Returns:
          For a text, `Hit`s, best first; for several, a list of them each. For vectors, scores, best first, and ids:
          int64, or an object array of strings. Equal scores are sorted by row; if several documents tie for the k-th
          place, the backend decides which are returned. If an approximate index finds fewer than k, the rest have
          score −inf and id −1, or None if ids are strings.
        """
        if isinstance(queries, str) or (isinstance(queries, list | tuple) and not _are_rows(queries)):
            return self._of_texts(queries, k, among)
        with self._threads.reading():
            scores, rows = self._search(queries, k, prepared, among)
            return scores, self.table.at(rows)

    def _of_texts(self, queries: RowsLike, k: int, among: IdsLike) -> Any:
        texts = as_texts([queries] if isinstance(queries, str) else queries, "query")
        self.check_k(k)
        if self.views is None:
            raise InputError("This index has no encoder: pass vectors, or use Encoder.index or jaxwhiten.load_index.")
        hits = self.hits(self.views.queries(texts), k, among) if texts else []
        if isinstance(queries, str):
            return hits[0]
        return hits

    def hits(self, queries: RowsLike, k: int, among: IdsLike = None) -> list[list[Hit]]:
        """`search` with results as `Hit`s, which include the texts."""
        with self._threads.reading():
            scores, rows = self._search(queries, k, among=among)
            ids = self.table.at(rows)
            texts = self.documents
            metadata = self.metadata
        return [
            [
                Hit(id, score, None if texts is None else texts[row], None if metadata is None else metadata[row])
                for id, score, row in zip(*columns, strict=True)
                if row >= 0
            ]
            for columns in zip(ids.tolist(), scores.tolist(), rows.tolist(), strict=True)
        ]

    def _search(
        self, queries: RowsLike, k: int, prepared: bool = False, among: IdsLike = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and rows."""
        self.check_k(k)
        k = min(int(k), self.size)
        chosen = None if among is None else self._among(among)
        self._check_space(queries, "query")
        queries = check_vectors("query vectors", queries, self.dimension if prepared else self.input_dimension)
        queries = np.ascontiguousarray(queries, np.float32)
        if chosen is not None and not len(chosen):
            return np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
        if self.rescoring is None or prepared:
            scores, rows = self.store.search(queries, k, prepared, chosen)
        else:
            wide = min(self.size, WIDER * k)
            scores, rows = self.rescoring.best(queries, self.store.search(queries, wide, False, chosen)[1], k)
        scores[rows < 0] = -np.inf
        ties = scores[:, 1:] == scores[:, :-1]
        if ties.any():
            tied = np.flatnonzero(ties.any(axis=1))
            rows[tied] = np.take_along_axis(rows[tied], np.lexsort((rows[tied], -scores[tied])), axis=1)
        return scores, rows

    def _among(self, ids: IdsLike) -> Int64[np.ndarray, " m"]:
        """The rows of ids, ascending, without those of unknown ids, for which there is a warning."""
        rows, absent = self.table.known(ids)
        if absent:
            of = f"{len(absent)} of the {len(absent) + len(rows)} IDs"
            warn(f"`among`: {of} are not in the index, and are left out; the first is {absent[0]!r:.80}.")
        elif not len(rows):
            raise InputError("`among` contains no IDs: omit it to search all documents.")
        return np.unique(rows)

    def check_encoding(self, encoding: VectorSpace | Fields, role: str = "query") -> None:
        """Raises `MismatchError` unless a `"query"`, or another `"document"`, encoded this way fits the documents.

        Queries need the same set of prompts, other documents the same prompt (`VectorSpace.differences`).
        """
        if self.encoding is None:
            raise MismatchError(
                "The index does not record its encoder, so these queries cannot be checked."
                " Rebuild it with encoding=encoder.encoding()."
            )
        check_space("the index", self.encoding, encoding, "rebuild the index", role=role, strict=True)

    def check_documents(self, vectors: RowsLike, encoding: VectorSpace | Fields | None = None) -> None:
        """Raises `MismatchError` unless vectors that know their space, or are encoded so, fit the documents."""
        self._check_space(vectors, "document")
        if encoding is not None:
            self.check_encoding(encoding, "document")

    def _check_space(self, vectors: RowsLike, role: str) -> None:
        """`check_encoding` for vectors that know their space, which `Encoder.encode` returned."""
        if self.encoding is None or not isinstance(vectors, EncodedArray | CodedArray) or vectors.origin is None:
            return
        key = (vectors.origin, vectors.shape[-1])
        if self._fitting.get(role) != key:
            check_space("the index", self.encoding, vectors.space, "rebuild the index", role=role)
            self._fitting[role] = key

    def check_k(self, k: Any) -> None:
        """Raises `InputError` unless k is an integer of at least 1."""
        check_integer("k", k, 1)

    @property
    def nbytes(self) -> int:
        """Size in bytes of vectors and rescoring copy when saved, without header, texts and fit."""
        return self.store.nbytes + (0 if self.rescoring is None else self.rescoring.rows.nbytes)

    def is_in(self, path: str | os.PathLike[str]) -> bool:
        """Whether a folder still holds the index that was loaded from it or saved there."""
        folder = Path(path).resolve()
        return folder in self._saved and read_header(folder).checksum == self._saved[folder].header.checksum

    def save(self, path: str | os.PathLike[str], *, compact: bool = False) -> None:
        """Writes the index to a folder and replaces the index there, if any, which stays whole until then.

        Saved to the folder that it was loaded from or saved to last, an index writes only what is new, and the numbers
        of removed documents. Once a quarter has changed, or with `compact`, all is written.

        Raises:
          OutputError: The folder cannot be written to, or the disk is full; an index already there is intact.
          MismatchError: Another writer has changed the index in the folder since this one was loaded or saved there; or
            the parts of this one are of different lengths.
        """
        folder = check_index_folder(path)
        with writing(folder, OSError):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), self._threads.reading(), writing(folder, OSError):
            self._check_whole()
            saved = self._saved.get(folder.resolve())
            tail = None
            if saved is not None and not compact:
                tail = saved.tail(folder, self.size)
            fields = {name.name: getattr(self, name.name) for name in dataclasses.fields(About)}
            fields |= {"size": self.size, "normalize": self.prepare.unit_length}
            if not isinstance(self.table.kept, range):
                fields["next_id"] = self.table.next
            checksum = None if saved is None else saved.header.checksum
            header = replace_files(folder, fields, functools.partial(self._write_files, tail), checksum, tail)
            if saved is None:
                self._saved[folder.resolve()] = Saved.whole(header)
            else:
                self._saved[folder.resolve()] = saved.after(header, tail)

    def _check_whole(self) -> None:
        """Raises MismatchError unless there is of each document what the index keeps."""
        for name in _OF_ROWS:
            part = getattr(self, name)
            if part is not None and len(part) != self.size:
                raise MismatchError(
                    f"The index has {self.size} vectors, but {len(part)} rows in its {name}; nothing was written. Build"
                    " it again, or load it."
                )

    def _write_files(self, tail: Tail | None, folder: Path) -> None:
        """Writes everything except the header to an empty folder, or what does not stay in the folder of the index."""
        first = 0
        if tail is None:
            self.store.write(folder)
            if self.rescoring is not None:
                self.rescoring.write(folder)
            if self.fitted is not None:
                self.fitted.save(folder / FITTED)
        else:
            first = tail.first
            if len(tail.removed):
                np.save(folder / REMOVED, tail.removed)
        if first == self.size:
            return
        self.table.write(folder, first)
        copy = {} if self.rescoring is None else {COPY: self.rescoring.rows[first:]}
        for name, array in {**self.store.rows(first), **copy}.items():
            np.save(folder / name, array)
        lines = {DOCUMENTS: (self.documents, ENDS), METADATA: (self.metadata, METADATA_ENDS)}
        for name, (strings, ends) in lines.items():
            if strings is not None:
                write_lines(folder / name, strings if first == 0 else strings[first:], folder / ends)


def load_index(path: PathLike | Sequence[PathLike], *, model: str | None = None, engine: str | None = None) -> Index:
    """Loads an index folder of any backend. The index also searches for texts, by the encoder that it records.

    The encoder is loaded for the first text. Texts, string IDs and a copy for rescoring are read when they are needed.

    The size of every file and, except in memory-mapped files of more than 64 MB, its checksum are compared with the
    header before a backend reads it, so that damage is reported instead of crashing. `jaxwhiten inspect --check` reads
    all. This does not protect against an attacker who writes both header and files.

    >>> Encoder.from_pretrained("jaxwhiten-tiny").index(["A dog runs.", "It rains."]).save("idx")
    >>> load_index("idx").search("a dog", k=1)[0].text
    'A dog runs.'

    Args:
      path: The folder; or several folders of one code, or of the backend `jax` and one whitening, which become one
        index of all their documents. Documents without IDs of their own are numbered anew, in this order.
      model: The current location of the encoder, if it has moved.
      engine: The engine of the encoder; for float32 vectors any, by default the recorded one or the fastest.

    Raises:
      FormatError: The folder is missing, damaged, of another kind or from a newer version.
      MismatchError: Several folders cannot become one index.
      MissingDependencyError: The backend's package or device is missing.
    """
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    if not paths:
        raise InputError("Expected at least one index folder, got none.")
    headers = [read_header(folder) for folder in paths]
    while True:
        try:
            index = _load(paths, headers)
            index.location = Location(paths[0], model, engine)
            return index
        except (FormatError, OSError):
            before = headers
            headers = [read_header(folder) for folder in paths]
            if [header.checksum for header in headers] == [header.checksum for header in before]:
                raise


def _load(folders: list[Path], headers: list[Header]) -> Index:
    """The index of one or more headers; FormatError or OSError if a writer has replaced its files meanwhile."""
    folder = folders[0]
    header = headers[0] if len(headers) == 1 else joined(folders, headers)
    if header.backend not in BACKENDS:
        raise FormatError(
            f"{folder}: a {header.backend!r} index, which this jaxwhiten does not support: upgrade it, or rebuild."
        )
    kind = BACKENDS[header.backend]
    options = from_json(kind.Options, header.options, f"{folder / HEADER}: options", "Rebuild the index.")
    files = Files.joined([Files.of(one, its) for one, its in zip(folders, headers, strict=True)])
    fitted = load_fitted(files[FITTED], (Whitening, Code)) if FITTED in files else None
    rescoring = None
    kinds = (LookupError, ArithmeticError, OSError, EOFError, ValueError, TypeError, RuntimeError)
    with turning(FormatError, f"{folder}: the index cannot be read ({REASON}). Rebuild it.", *kinds):
        if header.rescore is not None:
            rescoring = Rescoring.read(files, header)
        documents = files.strings(DOCUMENTS, ENDS)
        metadata = files.strings(METADATA, METADATA_ENDS, dict[str, Any])
        table = Ids.read(files, header.size, header.next_id)
        store = kind.read(files, options, header)
    if header.whitening is not None and store.prepare.hash() != header.whitening.get("hash"):
        raise FormatError(f"{folder}: the whitening inside the index differs from the one in its header.")
    fields = {field.name: getattr(header, field.name) for field in dataclasses.fields(About)}
    index = Index(
        **fields,
        documents=documents,
        metadata=metadata,
        store=store,
        table=table,
        fitted=fitted,
        rescoring=rescoring,
    )
    if len(headers) == 1:
        index._saved[folder.resolve()] = Saved.whole(header, files.places)
    return index


def _are_rows(items: Sequence[Any]) -> bool:
    """Whether the items of a list are vectors."""
    first = items[0] if len(items) else ""
    listed = isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], int | float)
    return listed or getattr(first, "ndim", 0) == 1


def texts_of(documents: Texts | None, vectors: Rows) -> TextList | None:
    """The texts, one per vector, or None."""
    if documents is None:
        return None
    texts = as_texts(documents, "document")
    check_counts("documents", len(texts), "document vectors", len(vectors))
    return texts


def rows_of(metadata: MetadataLike, vectors: Sized) -> list[Json] | None:
    """The metadata, one object of JSON per vector, or None; InputError for others, with the row."""
    if metadata is None:
        return None
    rows = list(metadata)
    check_counts("rows of metadata", len(rows), "document vectors", len(vectors))
    checked = list[dict[str, Any]]()
    for number, row in enumerate(rows):
        what = f"metadata: row {number}"
        if not isinstance(row, Mapping):
            raise InputError(f"{what}: expected a dictionary, got {row!r:.80}.")
        with turning(InputError, f"{what}: cannot be stored as JSON ({REASON}).", ValueError):
            checked.append(as_json(row))
    return checked
