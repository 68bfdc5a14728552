"""Search an existing index by another encoder, which embeds a text again only once the old index finds it for a query.

The new vectors lie in the folder `upgrade` of the index: a header that names both encoders, and parts. Each part is
written atomically and never changed, so that a kill loses only the texts being embedded. Vectors are keyed by a digest
of their text, so that concurrent processes, and documents added, replaced or removed meanwhile, need no special care.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import normalize
from jaxwhiten.coded import as_floats, with_code
from jaxwhiten.codes import Code, SpectrumCode
from jaxwhiten.counting import counted
from jaxwhiten.errors import FormatError, InputError, MismatchError, OutputError, check_integer, warn
from jaxwhiten.io import PathLike, load_tensors, save_tensors
from jaxwhiten.search.build import build_index, with_folder
from jaxwhiten.search.encoders import Encodes
from jaxwhiten.search.header import DOCUMENTS, ENDS, Files, Header
from jaxwhiten.search.index import Hit, Index
from jaxwhiten.search.text import search_text, view_for
from jaxwhiten.space import VectorSpace, check_space
from jaxwhiten.text import Texts, as_texts
from jaxwhiten.typing import Fields, IdsLike, Json

_FOLDER = "upgrade"
_HEADER = "header.safetensors"
_PARTS = "part-*.safetensors"
# bytes; most parts before they are joined; texts embedded between two searches
_DIGEST = 16
_MANY = 64
_AT_ONCE = 64


def read_upgrade(folder: PathLike, encoding: Fields | None) -> Json | None:
    """The header of an upgrade in an index folder: `old` and `new` encoding and `candidates`; None if there is none."""
    path = Path(folder) / _FOLDER / _HEADER
    upgrade = load_tensors(path, kind="upgrade")[1] if path.is_file() else None
    return None if upgrade is None or _same(upgrade["new"], encoding) else upgrade  # a kill may leave a finished one


def share_embedded(folder: PathLike, header: Header, upgrade: Fields) -> float:
    """`Upgraded.share` for an index in a folder, without loading the encoders."""
    texts = Files.of(Path(folder), header).strings(DOCUMENTS, ENDS) or ()
    slots = Vectors(Path(folder) / _FOLDER, upgrade["new"]["fingerprint"]).slots
    digests = set(map(_digest, texts))
    return len(digests & set(slots)) / len(digests)


def _same(a: Fields, b: Fields | None) -> bool:
    return not VectorSpace.of(a).differences(VectorSpace.of(b), strict=True)


def _digest(text: str | None) -> bytes:
    return hashlib.blake2b((text or "").encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


class Vectors:
    """New vectors by the digest of their text, in memory and, if a folder is given, in its parts."""

    def __init__(self, folder: Path | None, fingerprint: str) -> None:
        self.slots: dict[bytes, int] = {}
        self.near: Counter[bytes] = Counter()  # how often a text was found after the candidates
        self._rows: Any = np.empty((0, 0))  # with spare room at the end
        self._folder = folder
        self._fingerprint = fingerprint
        self._parts = set[Path]()
        while folder is not None and (unread := sorted(set(folder.glob(_PARTS)) - self._parts)):
            for path in unread:
                self._read(path)

    def rows(self, keys: Iterable[bytes]) -> Any:
        return self._rows[[self.slots[key] for key in keys]]

    def add(self, keys: list[bytes], rows: np.ndarray, near: list[bytes], *, stored: bool = True) -> None:
        """Adds vectors, at least one; after it they are on the disk, or an error was raised and nothing changed."""
        if self._folder is not None and stored:
            packed = {"keys": keys, "near": near}.items()
            tensors = {name: np.frombuffer(b"".join(x), np.uint8).reshape(-1, _DIGEST) for name, x in packed}
            path = self._folder / _PARTS.replace("*", hashlib.sha256(b"".join(keys)).hexdigest()[:24])
            tensors["rows"], header = np.asarray(rows), {"fingerprint": self._fingerprint}
            save_tensors(path, tensors, kind="upgrade part", header=header)
            self._parts.add(path)
        self._take(keys, rows, near)

    def join(self) -> None:
        """Joins many parts into one and then deletes them."""
        if len(many := set(self._parts)) > _MANY:
            self.add(list(self.slots), self.rows(self.slots), list(self.near.elements()))
            for path in many:
                path.unlink(missing_ok=True)

    def _take(self, keys: list[bytes], rows: np.ndarray, near: list[bytes]) -> None:
        new = {key: place for place, key in enumerate(keys) if key not in self.slots}
        size = len(self.slots)
        end = len(self.slots) + len(new)
        if end > len(self._rows):
            room = np.empty((max(end - size, size), rows.shape[1]), rows.dtype)
            if size:
                self._rows = np.concatenate([self._rows[:size], room])
            else:
                self._rows = room
        self._rows[size:end] = rows[list(new.values())]
        self.slots.update(zip(new, range(size, end), strict=True))
        self.near.update(key for key in near if key not in self.slots)
        for key in new:
            self.near.pop(key, None)

    def _read(self, path: Path) -> None:
        try:
            tensors, header = load_tensors(path, kind="upgrade part")
        except FormatError:
            if path.exists():
                raise
            return  # another process has made one part of several
        if header["fingerprint"] != self._fingerprint:
            raise FormatError(f"{path}: belongs to a different upgrade: delete it; its documents are re-embedded.")
        keys, near = ([key.tobytes() for key in tensors[name]] for name in ("keys", "near"))
        self._parts.add(path)
        self._take(keys, tensors["rows"], near)


class Upgraded:
    """Searches an index by another encoder than its own, without embedding the whole corpus again.

    The old index finds candidates; the new encoder embeds the candidates that it has not embedded yet and ranks them by
    cosine. Embedded texts are kept. Threads may share it. docs/evidence/upgrade.md says when to keep the old encoder.

    >>> old, new = (Encoder.from_pretrained("jaxwhiten-tiny", pooling=pooling) for pooling in ("cls", "mean"))
    >>> upgraded = Upgraded(old.index(["A dog runs.", "It rains."]), old, new, candidates=2)
    >>> upgraded.search(["a dog"], k=1)[0][0].id, upgraded.share
    (0, 1.0)

    Args:
      index: An index that keeps texts, of any backend and any code.
      old: The encoder of its documents.
      new: The encoder to search by; if it ends with a code, codes are kept.
      candidates: Documents of the old index that the new encoder ranks for a query; at least the number of results.
      folder: The folder of the index, where new vectors are stored and found again. None keeps them in memory.

    Raises:
      MismatchError: The index keeps no texts or was not made by `old`, or an upgrade with other encoders has begun.
    """

    def __init__(
        self, index: Index, old: Encodes, new: Encodes, candidates: int = 100, *, folder: PathLike | None = None
    ) -> None:
        check_integer("candidates", candidates, least=1)
        if index.documents is None:
            raise MismatchError(
                "The index stores no documents, which the new encoder reads: rebuild it with documents."
            )
        view_for(index, old)
        self.index = index
        self.old = old
        self.new = new
        self.candidates = int(candidates)
        encoding = new.documents.record()
        if _same(encoding, index.encoding):
            raise InputError(f"The index already uses the encoder {encoding['model']!r}: nothing to upgrade.")
        self.folder = None if folder is None else Path(folder) / _FOLDER
        if self.folder is not None:
            self._begin(self.folder, {"old": index.encoding, "new": with_folder(encoding), "candidates": candidates})
        self.vectors = Vectors(self.folder, encoding["fingerprint"])
        with contextlib.suppress(OutputError):  # a search needs no write access
            self.vectors.join()
        self._turn = threading.RLock()
        self._documents: Sequence[str] | None = None
        self._finished: Index | None = None

    def _begin(self, folder: Path, header: Json) -> None:
        """Begins an upgrade in a folder, or resumes the one that is there."""
        upgrade = read_upgrade(folder.parent, header["old"])
        if upgrade is None:
            shutil.rmtree(folder, ignore_errors=True)
            return save_tensors(folder / _HEADER, {}, kind="upgrade", header=header)
        for which in ("old", "new"):
            advice = "remove the folder: the index is unchanged"
            check_space(f"the {which} encoder in {folder}", upgrade[which], header[which], advice)
        if any(upgrade[name] != value for name, value in header.items()):  # an encoder may have moved
            with contextlib.suppress(OutputError):
                save_tensors(folder / _HEADER, {}, kind="upgrade", header=header)

    def _pending(self) -> dict[bytes, str]:
        """The texts that are not embedded yet. If the index has changed, its texts are read again."""
        with self._turn:
            with self.index._threads.reading():
                documents = self.index.documents
                table = self.index.table
            if documents is not self._documents:  # each change makes a new list
                self._documents = documents
                self._table = table
                self._finished = None
                self._texts = {_digest(text): text for text in documents or ()}
                self._left = {key: text for key, text in self._texts.items() if key not in self.vectors.slots}
            return self._left

    @property
    def share(self) -> float:
        """The share of the corpus, in distinct texts, that the new encoder has embedded, 0 to 1."""
        return 1 - len(self._pending()) / len(self._texts)

    def search(self, queries: Texts, k: int = 10, *, among: IdsLike = None) -> list[list[Hit]]:
        """The k best documents of each sentence by the new encoder, like `search_text`; queries share candidates."""
        if (alone := self._alone()) is not None:
            return search_text(alone, self.new, queries, k, among=among)
        self.index.check_k(k)
        queries = as_texts(queries, "query")
        depth = min(self.index.size, max(k, self.candidates))
        by_old = search_text(self.index, self.old, queries, min(self.index.size, 2 * depth), among=among)
        if not by_old:
            return []
        near = [hit.text for hits in by_old for hit in hits[depth:]]
        self._embed([hit.text for hits in by_old for hit in hits[:depth]], near, searching=True)
        results = []
        vectors = normalize(self.new.queries(queries))
        for query, hits in zip(vectors, by_old, strict=True):
            scores = normalize(self._floats(hit.text for hit in hits[:depth])) @ query
            best = np.argsort(-scores, kind="stable")[:k].tolist()
            results.append([hits[place]._replace(score=float(scores[place])) for place in best])
        return results

    def fill(self, count: int | None = None) -> int:
        """Embeds `count` more texts, or all, most used first, and returns how many; searches may run meanwhile."""
        done = 0
        while self._pending() and (count is None or done < count):
            most = _AT_ONCE if count is None else min(_AT_ONCE, count - done)
            with self._turn:
                used = [key for key, _ in self.vectors.near.most_common(most) if key in self._left]
                keys = list(dict.fromkeys([*used, *itertools.islice(self._left, most)]))[:most]
                texts = [self._texts[key] for key in keys]
            done += self._embed(texts, [])
        return done

    def finished(self) -> Index:
        """The index of the new encoder alone, once all texts are embedded; built like the old one, with its code."""
        if (alone := self._alone()) is None:
            raise InputError(f"Not embedded yet: {counted(len(self._left), 'documents')}. Call fill() first.")
        return alone

    def _alone(self) -> Index | None:
        """`finished`, or None while texts are not embedded."""
        with self._turn:
            if not self._pending() and self._finished is None:
                old = self.index
                texts = list(self._documents or ())
                view = self.new.documents
                codes: Code | str | None = view.code
                size = None
                if view.code is None and old.codes is not None:
                    codes = old.codes["name"]
                    if codes == SpectrumCode.name:
                        size = old.codes["bytes"]
                index = build_index(
                    self._floats(texts),
                    old.backend,
                    documents=texts,
                    metadata=None if self.index.metadata is None else list(self.index.metadata),
                    codes=codes,
                    bytes=size,
                    rescore=old.rescore,
                    encoding=view.floats.record(),
                    **old.options,
                )
                index.table = self._table
                index._saved = {folder: saved.replaced() for folder, saved in old._saved.items()}
                self._finished = index
            return self._finished

    def _embed(self, texts: Iterable[str | None], near: Iterable[str | None], *, searching: bool = False) -> int:
        with self._turn:
            missing = {_digest(text): text for text in texts if text is not None}
            missing = {key: text for key, text in missing.items() if key not in self.vectors.slots}
            if missing:
                rows = self.new.documents(list(missing.values()))
                add = functools.partial(self.vectors.add, list(missing), rows, list(map(_digest, near)))
                try:
                    add()
                except OutputError:
                    if not searching:
                        raise
                    warn(f"{self.folder} is not writable: new vectors stay in memory.")
                    add(stored=False)
                for key in missing:
                    self._left.pop(key, None)
            return len(missing)

    def _floats(self, texts: Iterable[str | None]) -> np.ndarray:
        with self._turn:
            return as_floats(with_code(self.vectors.rows(map(_digest, texts)), self.new.documents.code))
