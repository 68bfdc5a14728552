"""An index folder that other processes may change: searches and changes of its documents, as they are now."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Gauge
from starlette.responses import Response

from jaxwhiten import search
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike, identity
from jaxwhiten.search.header import HEADER
from jaxwhiten.search.text import Change, change_folder, view_for, without_blank
from jaxwhiten.serving.batching import Batcher
from jaxwhiten.serving.protocol import Add, Refused, Remove, Search, Update, answer
from jaxwhiten.text import ROLES
from jaxwhiten.views import View

_CHANGES = 16  # that may wait


@dataclass(frozen=True)
class Current:
    """The index as it was read, and what encodes texts for it."""

    index: search.Index
    query: View
    document: View
    stamp: tuple[int, ...]  # of the folder, before it was read


class Documents:
    """The index of a folder, with a method for each path; MismatchError if another encoder encoded its texts.

    Changes wait in a queue of their own, and are carried out one after another, while searches go on. A change whose
    caller goes away before it begins is dropped; begun, it is carried out.
    """

    def __init__(self, folder: PathLike, encoder: Encoder, batcher: Batcher, registry: CollectorRegistry):
        self.folder = Path(folder)
        self._encoder = encoder
        self._batcher = batcher
        self._reading = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "changes")
        self._changes = 0
        self._seen: Current | None = None
        gauge = Gauge("jaxwhiten_changes", "Changes of the index that wait or are carried out", registry=registry)
        gauge.set_function(lambda: self._changes)
        self.current()

    def current(self) -> Current:
        """The index, read again if the folder has changed."""
        with self._reading:
            stamp = self._stamp()
            if self._seen is None or stamp != self._seen.stamp:
                self._seen = self._of(search.load_index(self.folder), stamp)
            return self._seen

    def _stamp(self) -> tuple[int, ...]:
        return identity(self.folder / HEADER)

    def _of(self, index: search.Index, stamp: tuple[int, ...]) -> Current:
        """How texts are encoded for an index; MismatchError if another encoder encoded its texts."""
        query, document = (view_for(index, self._encoder, role) for role in ROLES)
        return Current(index, query, document, stamp)

    async def search(self, asked: Search) -> Response:
        """The documents nearest to a text or a vector, of all or among some IDs; IDs that are not there are counted."""
        current = await asyncio.to_thread(self.current)
        index = current.index
        if (asked.text is None) == (asked.vector is None):
            raise InputError("Specify either `text` or `vector`.")
        if asked.text is not None:
            rows = (await self._batcher.encode(current.query, [asked.text]))[0]
        else:
            with np.errstate(over="ignore"):  # infinities are rejected
                rows = np.array([asked.vector], np.float32)
        if asked.among is None:
            (hits,) = await asyncio.to_thread(index.hits, rows, asked.k or 10)
            return answer({"hits": [hit.record() for hit in hits]})
        distinct = dict.fromkeys(asked.among)
        among = [id for id in distinct if id in index.table]
        (hits,) = await asyncio.to_thread(index.hits, rows, asked.k or 10, among) if among else [[]]
        return answer({"hits": [hit.record() for hit in hits], "unknown": len(distinct) - len(among)})

    async def add(self, asked: Add) -> Response:
        """Adds documents, with or without IDs of their own. With them, a request may be repeated."""
        return await self._changed("add", "added", asked)

    async def update(self, asked: Update) -> Response:
        """Replaces the documents of IDs."""
        return await self._changed("update", "replaced", asked)

    async def remove(self, asked: Remove) -> Response:
        """Removes the documents of IDs."""
        return await self._changed("remove", "removed", asked)

    async def _changed(self, name: str, done: str, asked: Add | Update | Remove) -> Response:
        """Does a change, and answers how many documents were changed and skipped, and how many there are."""
        if self._changes == _CHANGES:
            raise Refused(429, "Too many changes wait: retry later.", wait=5)
        self._changes += 1
        try:
            skipped = 0
            texts = list[str]()
            change = Change(name, asked.ids)
            if not isinstance(asked, Remove):
                texts, ids, metadata, skipped = without_blank(asked.texts, asked.ids, asked.metadata)
                if not texts:
                    raise Refused(422, "texts: all of them are blank.", "texts")
                current = await asyncio.to_thread(self.current)
                current.index.check_kept(metadata=metadata)
                vectors = (await self._batcher.encode(current.document, texts))[0]
                change = Change(name, ids, texts, vectors, current.document.space, metadata)
            loop = asyncio.get_running_loop()
            size, count = await loop.run_in_executor(self._thread, self._change, change)
        finally:
            self._changes -= 1
        facts = {"documents": size, done: count, "skipped": skipped}
        if name == "add":
            facts["present"] = len(texts) - count
        return answer(facts)

    def _change(self, change: Change) -> tuple[int, int]:
        """The number of documents after a change, and of those that it changed."""
        index, count = change_folder(self.folder, change, repeated=True)  # a copy: searches go on in the index before
        stamp = self._stamp()
        if index.is_in(self.folder):  # or another process has changed it since
            with self._reading:
                self._seen = self._of(index, stamp)
        return index.size, count
