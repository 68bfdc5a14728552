"""An index folder that other processes may change: its documents, as they are now."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from jaxwhiten import search
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike
from jaxwhiten.search.header import HEADER
from jaxwhiten.search.text import of_index
from jaxwhiten.search.upgraded import read_upgrade
from jaxwhiten.serving.batching import Way


class Documents:
    """The index of a folder; MismatchError if another encoder encoded its texts."""

    def __init__(self, folder: PathLike, encoder: Encoder):
        self.folder, self._encoder, self._reading = Path(folder), encoder, threading.Lock()
        self._seen: tuple[int, ...] = ()
        if read_upgrade(folder, self.current().encoding):
            raise InputError(f"{folder}: is being upgraded: finish it with `jaxwhiten upgrade`.")

    def _stamp(self) -> tuple[int, ...]:
        found = os.stat(self.folder / HEADER)
        return found.st_mtime_ns, found.st_ino, found.st_size

    def current(self) -> search.Index:
        """The index, read again if the folder has changed."""
        with self._reading:
            if (stamp := self._stamp()) != self._seen:
                self._index = search.load_index(self.folder)
                self.query, self.document = self._way("query"), self._way("document")
                self._seen = stamp  # of before, so that a change meanwhile is noticed
            return self._index

    def _way(self, role: str) -> Way:
        encoder, pooling = of_index(self._index, self._encoder, role)
        return Way(encoder, encoder.prompt_for(role), pooling)

    def change(self, name: str, how: dict[str, Any]) -> int:
        """`Index.add`, `update` or `remove`, saved while other writers wait; returns the number of documents."""
        with search.locked(self.folder):
            index = self.current()
            self._seen = ()  # if this raises, what is in memory may not be what is on disk
            getattr(index, name)(**how)
            index.save(self.folder)
            self._index, self._seen = index, self._stamp()
        return index.size
