"""The index: built from vectors, searched, changed, saved to one file and loaded, with a record of how it was made.

A saved index is a SQLite file: a header, the vectors or codes in pages with checksums, the copies to rescore by, and a
table of the documents. A change is a transaction of it, whoever makes it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxwhiten.codes import Code, load_fitted
from jaxwhiten.errors import (
    REASON,
    FormatError,
    InputError,
    MismatchError,
    ModelError,
    check_counts,
    turning,
    warn,
)
from jaxwhiten.io import PathLike, atomic_path
from jaxwhiten.options import Rule, check_options
from jaxwhiten.search.documents import Document, Documents, Entries, as_ids, unique_ids
from jaxwhiten.search.header import (
    FITTED,
    KIND,
    Header,
    check_index_file,
    create,
    get_file,
    put_file,
    read_header,
)
from jaxwhiten.search.hits import Hit, Hits, Searches, are_texts
from jaxwhiten.search.prepare import check_vectors
from jaxwhiten.search.rescore import WIDER, Rescoring
from jaxwhiten.search.state import State
from jaxwhiten.search.store import Chosen, Ranking, Store, unranked
from jaxwhiten.search.where import Where, rows_where
from jaxwhiten.search.words import (
    BY_WORDS,
    NEAREST,
    TABLES,
    Frequencies,
    bm25,
    fused,
    has_words,
    rows_with,
)
from jaxwhiten.space import Space, check_space
from jaxwhiten.store import Pages, SQLite, replacing
from jaxwhiten.terminal import SHOWN, as_html, counted, one_line
from jaxwhiten.text import Texts, as_texts
from jaxwhiten.types import Float32, IdsLike, RowsLike, Shaped
from jaxwhiten.vectors import space_of
from jaxwhiten.whitening import Whitening
from jaxwhiten.whitening.affine import Affine

if TYPE_CHECKING:
    from jaxwhiten.views import View

_VERSION = "SELECT value FROM header WHERE name = 'version'"
_RULES = (
    Rule(("ids",), "The index numbers its documents itself: omit `ids`.", beside=("numbered",)),
    Rule(("documents",), "The documents of this index have their own IDs: pass `ids`.", without=("ids", "numbered")),
)


class Location(NamedTuple):
    """Where an index was loaded from, and its encoder: the current `model`, if it has moved, and another engine."""

    path: PathLike
    model: str | None = None
    engine: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Index(Header, Searches):
    """An index of document vectors, made by `build_index` or `load_index`. A number is never given to another document.

    It lives in its database: in a temporary one until it is saved, and then in its file, which every change changes. A
    change that raises or is interrupted changes nothing. Threads may share an index, and processes its file: searches
    run in parallel, changes wait for each other, and every search sees the changes of all.

    >>> index = build_index(np.eye(4, dtype=np.float32), ids=["a", "b", "c", "d"])
    >>> index.remove(["a"])
    1
    >>> index.ids.tolist()
    ['b', 'c', 'd']
    """

    database: SQLite
    state: State  # of the database when it was last asked
    location: Location | None = None  # from which it was loaded
    _written: State | None = field(default=None, init=False)  # by the last change, which an interrupt may have hidden

    def __reduce__(self) -> Any:
        raise InputError("An index cannot be pickled or deep-copied: save it, and call load_index there.")

    def __repr__(self) -> str:
        return f"Index({counted(self.size, 'documents')}, {self.stored}, {self.nbytes / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        rows = [[str(document.id), one_line(document.text)] for document in itertools.islice(self, SHOWN)]
        return as_html([["id", "text"], *rows], repr(self))

    def __len__(self) -> int:
        return self.size

    def __contains__(self, id: object) -> bool:
        return bool(self.known([id]))

    def known(self, ids: Sequence[Any]) -> list[Any]:
        """The ids among these that are in the index."""
        rows = self._rows_in(self._current(), ids)
        return [id for id in ids if id in rows]

    def __getitem__(self, id: int | str) -> Document:
        """The document of an id; KeyError if it is not in the index."""
        return self.get([id])[id]

    def get(self, ids: Sequence[Any]) -> dict[Any, Document]:
        """The documents of ids, as far as they are there."""
        documents = self.documents.fetch([*self._rows_in(self._current(), ids).values()])
        return {document.id: document for document in documents.values()}

    def __iter__(self) -> Iterator[Document]:
        """The documents, in the order in which they came."""
        if self.lists_documents:
            return self.documents.all()
        return map(Document, self.ids.tolist())

    @functools.cached_property
    def view(self) -> View:
        """The view of the encoder, for texts; InputError if the index was built of vectors.

        A loaded index reads the model that it records when it is first used: MismatchError if it records none,
        ModelError if the model has moved.
        """
        if self.location is None:
            raise InputError("This index has no encoder: pass vectors, or use Encoder.index or jaxwhiten.load_index.")
        from jaxwhiten.views.loading import reopened  # not needed for vectors alone

        path, model, engine = self.location
        if self.space is None:
            raise MismatchError(
                f"{path}: does not record its encoder, so queries cannot be encoded. Rebuild it with `jaxwhiten index`."
            )
        if model is None and self.folder is not None:
            name = str(self.space.model)
            places = (Path(name), Path(path).resolve().parent / name, Path(self.folder))
            model = next((str(place) for place in places if place.is_dir()), None)
            if model is None:
                advice = "specify its location with `model`"
                raise ModelError(f"{self.folder}: the model of the index {path} was not found: {advice}.")
        view, _ = reopened(self.space, model=model, engine=engine)
        self.check_fits(view.queries.space)
        return view

    @functools.cached_property
    def fitted(self) -> Whitening | Code | None:
        """What was fitted on the vectors, for their code; read from the file when it is first used."""
        load = functools.partial(load_fitted, kinds=(Whitening, Code))
        with turning(
            FormatError, f"{self.database.name}: the index cannot be read ({REASON}). Rebuild it.", ValueError
        ):
            return self.database.reading(lambda connection: get_file(connection, FITTED, load))

    @functools.cached_property
    def rescoring(self) -> Rescoring | None:
        """The copy by which candidates are scored again, if there is one."""
        if self.rescore is None:
            return None
        unit_length = self.normalize or self.codes is not None  # of codes, the copy alone has unit length
        return Rescoring(self.prepare.in_float32(unit_length=unit_length))

    @property
    def documents(self) -> Documents:
        """The table of documents."""
        return Documents(self.database, self)

    @functools.cached_property
    def frequencies(self) -> Frequencies:
        """In how many documents words are."""
        return Frequencies()

    @property
    def store(self) -> Store:
        """What it holds of vectors in memory."""
        return self.state.store

    @property
    def size(self) -> int:
        """The number of documents."""
        return self._current().size

    @property
    def removed(self) -> int:
        """Vectors of documents that were removed or replaced, which are dropped when they are a quarter of all."""
        return len(self.state.alive) - self.size

    @property
    def stored(self) -> str:
        """What is stored of a document, and by which backend."""
        codes = self.codes and f"{self.codes.name} codes of {self.codes.bytes} bytes"
        return f"{codes or f'{self.dimension} dimensions'}, {self.backend}"

    @property
    def ids(self) -> Shaped[np.ndarray, " n"]:
        """The ids of all documents, in the order in which they came: int64, or strings as objects."""
        if self.id_type is None:
            return self._current().living
        return np.array(self.documents.every_id(), np.int64 if self.id_type == "integer" else object)

    @property
    def prepare(self) -> Affine:
        """The map applied to a raw vector before it is stored or searched for."""
        return self.store.prepare

    @property
    def path(self) -> Path | None:
        """The file that it lives in, or None."""
        return self.database.path

    def _current(self) -> State:
        """The state of the database now; MismatchError if another index has replaced the file."""
        state = self.state
        if self.database.rows(_VERSION) != [(state.version,)] or self.database.replaced:
            self.state = state = self.database.reading(self._refreshed)
        return state

    def _refreshed(self, connection: sqlite3.Connection) -> State:
        """The state of the database, in a transaction."""
        if self.database.replaced:
            raise MismatchError(f"{self.database.name}: was replaced after the index was loaded: load it again.")
        [[version]] = connection.execute(_VERSION)
        for state in (self.state, self._written):
            if state is not None and state.version == version:
                return state
        return State.read(connection, self, self.database.name, self.state)

    def _change(self, work: Any) -> State:
        """Brings the database to the state that `work` makes of its state, and the index after it."""

        def changed(connection: sqlite3.Connection) -> State:
            before = self._refreshed(connection)
            after = work(connection, before)
            if after is not before:
                after = after.compact()
                if self.path is not None:
                    after = after.write(connection, before)
                else:
                    after.write_version(connection)
            self._written = after
            return after

        with self.database.lock:
            self.state = self.database.change(changed)
            return self.state

    def add(
        self,
        vectors: RowsLike,
        *,
        documents: Texts | None = None,
        ids: IdsLike = None,
        metadata: Any = None,
    ) -> None:
        """Adds texts, which the index encodes, or raw vectors [n, d], encoded like the others, with their texts.

        >>> index = Encoder.from_pretrained("jaxwhiten-tiny").index(["A dog runs."])
        >>> index.add(["It rains."])
        >>> [document.text for document in index]
        ['A dog runs.', 'It rains.']

        `documents` are the texts of vectors. They and `metadata` are required if the index keeps them, `ids` if the
        other documents brought theirs; otherwise the index assigns the next numbers. Those of the index are for
        `update` and `upsert`. Fitted and trained parts do not change.

        Raises:
          InputError: An id exists already, an argument does not fit the index, or it has no encoder for texts.
          MismatchError: What `Encoder.encode` returned is of another space than the documents.
        """
        self._put("add", vectors, ids, documents, metadata)

    def update(self, ids: IdsLike, vectors: RowsLike, *, documents: Texts | None = None, metadata: Any = None) -> None:
        """Replaces the documents of existing ids with new texts, or raw vectors and their texts, see `add`.

        New ids are for `add` and `upsert`: an `InputError` names the first unknown one, and says how many there are.
        """
        self._put("update", vectors, ids, documents, metadata)

    def upsert(self, ids: IdsLike, vectors: RowsLike, *, documents: Texts | None = None, metadata: Any = None) -> int:
        """Adds documents, see `add`, replaces those whose ids exist, and returns how many it replaced.

        An index that numbers its documents has no new ids: those that it does not have are an `InputError`.
        """
        return self._put("upsert", vectors, ids, documents, metadata)

    def _put(self, change: str, vectors: RowsLike, ids: IdsLike, documents: Texts | None, metadata: Any) -> int:
        """Adds or replaces documents, and returns how many it replaced."""
        if are_texts(vectors) and len(vectors):
            if documents is not None:
                raise InputError("`documents`: texts were passed in place of vectors: omit it.")
            documents = as_texts([vectors] if isinstance(vectors, str) else vectors, "document")
            self.check_ids(change, ids, len(documents))  # before they are encoded
            vectors = self.view.float_documents(documents)
        self._check_space(vectors, "document")
        vectors = check_vectors("document vectors", vectors, self.input_dimension)
        self.check_kept(documents=documents, metadata=metadata)
        own = self._own(change, ids, len(vectors))
        entries = Entries.of(vectors, own, documents, metadata)
        arrays = self.store.kept(vectors, self.store.coding)
        replaced = 0

        def put(connection: sqlite3.Connection, state: State) -> State:
            nonlocal replaced
            known = self._checked(change, own, state)
            replaced = len(known)
            new = iter(range(state.next, state.next + len(vectors)))
            rows = [*new] if own is None else [known[id] if id in known else next(new) for id in own]
            self.documents.remove(connection, [*known.values()])
            self.documents.put(connection, rows, entries)
            if self.rescoring is not None:
                self.rescoring.put(connection, np.array(rows), vectors)
            return state.plus(arrays, np.array(rows))

        self._change(put)
        return replaced

    def check_ids(self, change: str, ids: IdsLike, n: int) -> None:
        """Raises `InputError` unless ids fit a change of n documents: `"add"`, `"update"` or `"upsert"`."""
        self._checked(change, self._own(change, ids, n), self._current())

    def _own(self, change: str, ids: IdsLike, n: int) -> list[Any] | None:
        """The ids of n documents for a change."""
        numbered = self.id_type is None and change == "add"
        check_options(_RULES, {"ids": ids, "numbered": numbered, "documents": True})
        if ids is None:
            return None
        own = unique_ids(ids, n)
        kind = str if self.id_type == "string" else int
        if type(own[0]) is not kind:
            expected = "strings" if kind is str else "integers"
            raise InputError(f"The IDs of this index are {expected}, got {own[0]!r:.80}.")
        return own

    def _checked(self, change: str, ids: list[Any] | None, state: State) -> dict[Any, int]:
        """The rows of the ids that are there; InputError if the change expects that others are."""
        if ids is None:
            return {}
        known = self._rows_in(state, ids)
        if change == "add" and known:
            present = next(id for id in ids if id in known)
            raise InputError(
                f"Document {present!r:.80} is already in the index: use `update` or `upsert` to replace it."
            )
        if change == "update" or (change == "upsert" and self.id_type is None):
            _check_known(ids, known)
        return known

    def _rows_in(self, state: State, ids: Sequence[Any]) -> dict[Any, int]:
        """The rows of ids in a state that the database has."""
        if self.id_type is not None:
            return self.documents.rows_of(ids)
        numbers = np.array([id for id in ids if isinstance(id, int)], np.int64)
        rows = state.rows_at(state.positions(numbers))
        return {row: row for row in rows.tolist()}

    def remove(self, ids: IdsLike, *, strict: bool = False) -> int:
        """Removes the documents of a list of ids, and returns how many there were. Numbers are not used again.

        At least one document must remain.

        Raises:
          InputError: An id does not exist, and `strict` is set; or no document would remain.
        """
        own = list(dict.fromkeys(as_ids(ids)))
        count = 0

        def removed(connection: sqlite3.Connection, state: State) -> State:
            nonlocal count
            known = self._rows_in(state, own)
            if strict:
                _check_known(own, known)
            count = len(known)
            rows = [*known.values()]
            if count == state.size:
                raise InputError("This would remove every document; an index holds at least one.")
            self.documents.remove(connection, rows)
            connection.executemany("DELETE FROM copies WHERE row = ?", zip(rows))
            return state.without(np.array(rows, np.int64))

        self._change(removed)
        return count

    def check_kept(self, **given: object) -> None:
        """Raises `InputError` unless `documents` and `metadata` are given as the index keeps them."""
        kept = {"documents": self.has_texts, "metadata": self.has_metadata}
        for name, value in given.items():
            if value is None and kept[name]:
                raise InputError(f"The index stores {name}: pass `{name}`.")
            if value is not None and not kept[name]:
                raise InputError(f"The index stores no {name}: omit `{name}`.")

    def _nearest(self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None) -> Ranking:
        state = self._current()
        scores, rows = self._ranked(state, queries, k, self._chosen(state, among, where))
        return scores, self.documents.ids(rows)

    def _hits(
        self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None, texts: Sequence[str] | None
    ) -> list[Hits]:
        if texts is not None:
            if not self.has_words:
                raise InputError("`hybrid`: the index has no words: build it with texts and words=True, or omit it.")
            check_counts("texts", len(texts), "queries", len(queries))
        while True:
            state = self._current()
            chosen = self._chosen(state, among, where)
            if texts is None:
                found = [array.tolist() for array in self._ranked(state, queries, k, chosen)]
                results = list(zip(*found, strict=True))
            else:
                results = self._hybrid(state, queries, texts, k, chosen)
            documents = self.documents.fetch(sorted({row for _, rows in results for row in rows} - {-1}))
            if self._current() is state:  # else a document may be gone
                break
        return [
            Hits(
                Hit(document.id, score, document.text, document.metadata)
                for score, row in zip(*result, strict=True)
                if (document := documents.get(row)) is not None
            )
            for result in results
        ]

    def _hybrid(
        self,
        state: State,
        queries: Float32[np.ndarray, "q d"],
        texts: Sequence[str],
        k: int,
        chosen: Chosen,
    ) -> list[tuple[list[float], list[int]]]:
        """The best scores and rows of each checked query by vectors and words, among positions."""
        near = self._ranked(state, queries, max(NEAREST, k), chosen)[1]
        allowed = None if chosen is None else state.rows_at(chosen)
        results = []
        for number, text in enumerate(texts):
            frequencies = self.frequencies.of(self.database, text, state.size, len(state.alive))
            more = rows_with(self.database, frequencies, state.size, BY_WORDS if allowed is None else None)
            if allowed is not None:
                more = more[np.isin(more, allowed)]
            positions = state.positions(np.concatenate([near[number][near[number] >= 0], more[:BY_WORDS]]))
            [cosines], [rows] = self._ranked(state, queries[number : number + 1], len(positions), positions)
            documents = self.documents.fetch(rows.tolist())
            there = np.isin(rows, [*documents])
            rows = rows[there]
            words = bm25(frequencies, state.size, [documents[row] for row in rows.tolist()])
            scores = fused(cosines[there], words)
            best = np.argsort(-scores, kind="stable")[:k]
            results.append((scores[best].tolist(), rows[best].tolist()))
        return results

    def query_rows(self, queries: RowsLike) -> Float32[np.ndarray, "q d"]:
        """Queries, checked."""
        self._check_space(queries, "query")
        queries = check_vectors("query vectors", queries, self.input_dimension)
        return np.ascontiguousarray(queries, np.float32)

    def _ranked(
        self,
        state: State,
        queries: Float32[np.ndarray, "q d"],
        k: int,
        chosen: Chosen,
    ) -> Ranking:
        """Scores and rows of checked queries among positions."""
        k = min(int(k), state.size)
        if chosen is not None and not len(chosen):
            return unranked(len(queries), k)
        if self.rescoring is None:
            scores, positions = state.search(queries, k, chosen)
            rows = state.rows_at(positions)
        else:
            candidates = state.rows_at(state.search(queries, min(state.size, WIDER * k), chosen)[1])
            scores, rows = self.rescoring.best(self.database, queries, candidates, k)
        scores[rows < 0] = -np.inf
        ties = scores[:, 1:] == scores[:, :-1]
        if ties.any():
            tied = np.flatnonzero(ties.any(axis=1))
            rows[tied] = np.take_along_axis(rows[tied], np.lexsort((rows[tied], -scores[tied])), axis=1)
        return scores, rows

    def _chosen(self, state: State, among: IdsLike, where: Where | None) -> Chosen:
        """The positions to search, ascending; None for all."""
        if among is None and where is None:
            return None
        chosen = None
        if among is not None:
            ids = as_ids(among)
            if not ids:
                raise InputError("`among` contains no IDs: omit it to search all documents.")
            known = self._rows_in(state, ids)
            if absent := [id for id in ids if id not in known]:
                of = f"{len(absent)} of the {len(ids)} IDs"
                warn(f"`among`: {of} are not in the index, and are left out; the first is {absent[0]!r:.80}.")
            chosen = state.positions(np.array([*known.values()], np.int64))
        if where is not None:
            if not self.lists_documents:
                raise InputError("`where`: the index keeps no texts, IDs or metadata to filter by: omit it.")
            holds = state.positions(rows_where(self.database, where))
            chosen = holds if chosen is None else np.intersect1d(chosen, holds)
        return chosen

    def check_fits(self, space: Space, role: str = "query") -> None:
        """Raises `MismatchError` unless vectors of a space can be compared with the documents.

        A `"query"` needs the same set of prompts, another `"document"` the same prompt (`Space.differences`).
        """
        if self.space is None:
            raise MismatchError(
                "The index does not record its encoder, so these queries cannot be checked."
                " Rebuild it with space=encoder.view.space."
            )
        check_space("the index", self.space, space, "rebuild the index", role=role, strict=True)

    def _check_space(self, vectors: RowsLike, role: str) -> None:
        """Raises `MismatchError` for vectors that know their space, if it is not that of the documents."""
        check_space("the index", self.space, space_of(vectors), "rebuild the index", role=role)

    @property
    def nbytes(self) -> int:
        """Size in bytes of vectors or codes and copies for rescoring, without texts and fit."""
        copies = 0 if self.rescoring is None else self.size * self.rescoring.nbytes
        return self.store.nbytes + copies

    def save(self, path: PathLike) -> None:
        """Writes the index to a file, and replaces the index there, if any, which stays whole until then.

        From then on the index lives in this file, and changes change it; to the file that it lives in, nothing is
        written.

        Raises:
          OutputError: The file cannot be written, or the disk is full; an index already there is intact.
        """
        file = check_index_file(path)
        if file == self.path and not self.database.replaced:
            return
        with self.database.lock:
            state = self._current()
            with replacing(file), atomic_path(file) as temporary:
                new = SQLite(temporary, kind=KIND, create=True)
                try:
                    self.database.copy_to(new)
                    if self.path is None:
                        state = new.change(lambda connection: state.write(connection, None))
                finally:
                    new.close()
            vars(self).update(database=SQLite(path, kind=KIND), state=state, _written=None)


def _check_known(ids: Sequence[Any], known: Mapping[Any, int]) -> None:
    """Raises InputError if one of the ids is not there."""
    absent = [id for id in ids if id not in known]
    if absent:
        more = f" ({len(absent)} of the {len(ids)} IDs are unknown)" if len(ids) > 1 else ""
        raise InputError(f"No document {absent[0]!r:.80} in the index{more}.")


def new_index(
    header: Header,
    store: Store,
    entries: Entries,
    *,
    fitted: Whitening | Code | None,
    view: View | None = None,
) -> Index:
    """An index in a temporary database, of a store of vectors and their documents."""
    database = SQLite(None, kind=KIND)
    if header.has_words and not has_words(database):
        note = "Python's SQLite has no FTS5: the words of texts are not indexed, and there is no hybrid search."
        header = dataclasses.replace(header, has_words=False, notes=[*header.notes, note])
    index = Index(**vars(header), database=database, state=State.of(store))
    if view is not None:
        index.view = view

    def fill(connection: sqlite3.Connection) -> None:
        create(connection, header, [Documents.table(header), *(TABLES if header.has_words else ())])
        index.state.write_version(connection)
        index.documents.put(connection, range(store.size), entries)
        if header.has_words:
            connection.execute("INSERT INTO words (words) VALUES ('optimize')")  # or the first changes would merge them
        for name, tensor in store.coding.tensors.items():
            Pages(connection, name).write(tensor)
        if fitted is not None:
            put_file(connection, FITTED, fitted.save)
        if index.rescoring is not None:
            index.rescoring.put(connection, np.arange(store.size), entries.vectors)

    database.change(fill)
    return index


def open_index_file(path: PathLike, *, model: str | None, engine: str | None, read_only: bool) -> Index:
    """`load_index` of one file."""
    if Path(path).is_dir():
        raise FormatError(f"{path}: is a folder; expected the file of an index.")
    database = SQLite(path, kind=KIND, read_only=read_only)
    location = Location(path, model, engine)

    def load(connection: sqlite3.Connection) -> Index:
        where = database.name
        header = read_header(connection, where)
        state = State.read(connection, header, where)
        return Index(**vars(header), database=database, state=state, location=location)

    try:
        return database.reading(load)
    except BaseException:
        database.close()  # whoever keeps the error does not keep the file
        raise
