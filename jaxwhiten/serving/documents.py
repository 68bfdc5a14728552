"""An index that other processes may change: searches and changes of its documents, as they are now."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Gauge
from starlette.responses import Response

from jaxwhiten import search
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike
from jaxwhiten.search.text import view_for, without_blank
from jaxwhiten.serving.batching import Batcher
from jaxwhiten.serving.protocol import (
    AddRequest,
    Refused,
    RemoveRequest,
    SearchRequest,
    UpdateRequest,
    UpsertRequest,
    answer,
)
from jaxwhiten.text import ROLES
from jaxwhiten.views import View

_CHANGES = 16  # that may wait


@dataclass(frozen=True)
class Current:
    """The index, and what encodes texts for it."""

    index: search.Index
    query: View
    document: View


class ServedIndex:
    """The index in a file, with a method for each path; MismatchError if another encoder encoded its texts.

    Changes wait in a queue of their own, and are carried out one after another, while searches go on. A change whose
    caller goes away before it begins is dropped; begun, it is carried out.
    """

    def __init__(
        self, path: PathLike, encoder: Encoder, batcher: Batcher, registry: CollectorRegistry, *, writable: bool
    ):
        self.path = Path(path)
        self._writable = writable
        self._encoder = encoder
        self._batcher = batcher
        self._loading = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "changes")
        self._changes = 0
        self._loaded = self._load()
        gauge = Gauge("jaxwhiten_changes", "Changes of the index that wait or are carried out", registry=registry)
        gauge.set_function(lambda: self._changes)

    def _load(self) -> Current:
        index = search.load_index(self.path, read_only=not self._writable)
        query, document = (view_for(index, self._encoder.view, role) for role in ROLES)
        return Current(index, query, document)

    def current(self) -> Current:
        """The index, loaded again if another one has replaced it."""
        with self._loading:
            if self._loaded.index.database.replaced:
                self._loaded = self._load()
            return self._loaded

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """A place in the queue of changes."""
        if self._changes == _CHANGES:
            raise Refused(429, "Too many changes wait: retry later.", wait=5)
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1

    async def search(self, asked: SearchRequest) -> Response:
        """The documents nearest to a text or a vector, of all or of some; IDs that are not there are counted."""
        current = await asyncio.to_thread(self.current)
        if (asked.text is None) == (asked.vector is None):
            raise InputError("Specify either `text` or `vector`.")
        if asked.hybrid and asked.text is None:
            raise InputError("`hybrid` compares words: specify `text`.")
        if asked.text is not None:
            rows = (await self._batcher.encode(current.query, [asked.text]))[0]
        else:
            with np.errstate(over="ignore"):  # infinities are rejected
                rows = np.array([asked.vector], np.float32)
        return answer(await asyncio.to_thread(_found, current.index, rows, asked))

    async def add(self, asked: AddRequest) -> Response:
        """Adds documents, with or without IDs of their own. With them, a request may be repeated."""
        return await self._changed("add", "added", asked)

    async def update(self, asked: UpdateRequest) -> Response:
        """Replaces the documents of IDs."""
        return await self._changed("update", "replaced", asked)

    async def upsert(self, asked: UpsertRequest) -> Response:
        """Adds documents, and replaces those whose IDs are there."""
        return await self._changed("upsert", "added", asked)

    async def remove(self, asked: RemoveRequest) -> Response:
        """Removes the documents of IDs."""
        with self._turn():
            current = await asyncio.to_thread(self.current)
            loop = asyncio.get_running_loop()
            count = await loop.run_in_executor(self._thread, current.index.remove, asked.ids)
        unknown = len({*asked.ids}) - count
        return answer({"documents": current.index.size, "removed": count, "unknown": unknown})

    async def _changed(self, name: str, done: str, asked: AddRequest | UpdateRequest | UpsertRequest) -> Response:
        """Does a change, and answers how many documents were changed and skipped, and how many there are."""
        with self._turn():
            texts, ids, metadata, skipped = without_blank(asked.texts, asked.ids, asked.metadata)
            if not texts:
                raise Refused(422, "texts: all of them are blank.", "texts")
            current = await asyncio.to_thread(self.current)
            index = current.index
            index.check_kept(metadata=metadata)
            vectors = (await self._batcher.encode(current.document, texts))[0]

            def change() -> tuple[int, int, int]:
                """The numbers of documents that were changed, replaced, and that are there."""
                new = [*range(len(texts))]
                if name == "add" and ids is not None:
                    there = index.get(ids)
                    rows = enumerate(zip(ids, texts, metadata or [None] * len(ids), strict=True))
                    new = [number for number, row in rows if there.get(row[0]) != row]
                if not new:
                    return 0, 0, index.size
                some, own, fields = (part and [part[number] for number in new] for part in (texts, ids, metadata))
                replaced = getattr(index, name)(vectors=vectors[new], ids=own, documents=some, metadata=fields)
                return len(new), replaced or 0, index.size

            count, replaced, size = await asyncio.get_running_loop().run_in_executor(self._thread, change)
        facts = {"documents": size, done: count - replaced, "skipped": skipped}
        if name == "add":
            facts["present"] = len(texts) - count
        if name == "upsert":
            facts["replaced"] = replaced
        return answer(facts)


def _found(index: search.Index, rows: np.ndarray, asked: SearchRequest) -> dict[str, object]:
    """The hits of a search, and how many of the IDs are not there."""
    k = asked.k or 10
    texts = [asked.text] if asked.hybrid and asked.text is not None else None
    among = asked.among and index.known([*dict.fromkeys(asked.among)])
    [hits] = [search.Hits()] if among == [] else index.hits(rows, k, among, asked.where, texts)
    found: dict[str, object] = {"hits": [hit.record() for hit in hits]}
    if asked.among:
        found["unknown"] = len({*asked.among}) - len(among or ())
    return found
