"""An index folder that other processes may change: searches and changes of its documents, as they are now."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
from starlette.responses import Response

from jaxwhiten import search
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.stream import Run
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike, identity
from jaxwhiten.search.header import HEADER
from jaxwhiten.search.text import of_index
from jaxwhiten.search.upgraded import read_upgrade
from jaxwhiten.serving.batching import Batcher
from jaxwhiten.serving.protocol import Add, Remove, Search, Update, answer
from jaxwhiten.text import ROLES


class Documents:
    """The index of a folder, with a method for each path; MismatchError if another encoder encoded its texts."""

    def __init__(self, folder: PathLike, encoder: Encoder, batcher: Batcher):
        self.folder, self._encoder, self._batcher = Path(folder), encoder, batcher
        self._reading, self._seen = threading.Lock(), tuple[int, ...]()
        if read_upgrade(folder, self.current().encoding):
            raise InputError(f"{folder}: is being upgraded: finish it with `jaxwhiten upgrade`.")

    def current(self) -> search.Index:
        """The index, read again if the folder has changed."""
        with self._reading:
            if (stamp := self._stamp()) != self._seen:  # of before it is read, so that a change meanwhile is noticed
                self._keep(search.load_index(self.folder), stamp)
            return self._index

    def _stamp(self) -> tuple[int, ...]:
        return identity(self.folder / HEADER)

    def _keep(self, index: search.Index, stamp: tuple[int, ...]) -> None:
        self._index = index
        self.query, self.document = (self._run(role) for role in ROLES)
        self._seen = stamp

    def _run(self, role: str) -> Run:
        """How texts of a role are encoded."""
        encoder, pooling = of_index(self._index, self._encoder, role)
        return encoder.run_of(pooling, encoder.prompt_for(role))

    async def search(self, asked: Search) -> Response:
        """The documents nearest to a text or a vector."""
        index = await asyncio.to_thread(self.current)
        if (asked.text is None) == (asked.vector is None):
            raise InputError("Specify either `text` or `vector`.")
        if asked.text is not None:
            rows = (await self._batcher.encode(self.query, [asked.text]))[0]
        else:
            with np.errstate(over="ignore"):  # infinities are rejected
                rows = np.array([asked.vector], np.float32)
        (hits,) = await asyncio.to_thread(lambda: index.hits(rows, min(asked.k, index.size)))
        return answer({"hits": [hit._asdict() for hit in hits]})

    async def add(self, asked: Add) -> Response:
        """Adds documents, with or without IDs of their own."""
        return await self._changed("add", asked.ids, asked.texts)

    async def update(self, asked: Update) -> Response:
        """Replaces the documents of IDs."""
        return await self._changed("update", asked.ids, asked.texts)

    async def remove(self, asked: Remove) -> Response:
        """Removes the documents of IDs."""
        return await self._changed("remove", asked.ids)

    async def _changed(self, name: str, ids: Any, texts: list[str] | None = None) -> Response:
        how = {"ids": ids}
        await asyncio.to_thread(self.current)
        if texts:
            how |= {"vectors": (await self._batcher.encode(self.document, texts))[0], "documents": texts}
        return answer({"documents": await asyncio.to_thread(self._change, name, how)})

    def _change(self, name: str, how: dict[str, Any]) -> int:
        """`Index.add`, `update` or `remove`, saved while other writers wait; returns the number of documents."""
        with search.locked(self.folder):
            index = search.load_index(self.folder)  # a copy of its own: searches go on in the one that is kept
            getattr(index, name)(**how)
            index.save(self.folder)
            with self._reading:
                self._keep(index, self._stamp())
        return index.size
