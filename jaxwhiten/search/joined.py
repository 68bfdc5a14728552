"""Several indexes that are searched as one."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from jaxwhiten.errors import InputError, MismatchError, warn
from jaxwhiten.io import PathLike
from jaxwhiten.search.documents import as_ids
from jaxwhiten.search.index import Hit, Index, are_rows, open_index_file
from jaxwhiten.search.where import Where
from jaxwhiten.space import VectorSpace
from jaxwhiten.text import as_texts
from jaxwhiten.types import IdsLike, RowsLike, Shaped

if TYPE_CHECKING:
    from jaxwhiten.views import Views

_SHARED = ("backend", "input_dimension", "dimension", "normalize", "whitening", "codes", "rescore", "id_type")


class JoinedIndex:
    """Indexes of one space and code, which are searched as one. Each may be changed by itself.

    Documents without IDs of their own are numbered through, in the order of the indexes.

    >>> first = build_index(np.eye(4, dtype=np.float32)[:2])
    >>> JoinedIndex([first, build_index(np.eye(4, dtype=np.float32)[2:], like=first)]).ids.tolist()
    [0, 1, 2, 3]

    Raises:
      MismatchError: The indexes are of different spaces or codes, or an ID is in two of them.
    """

    def __init__(self, indexes: Sequence[Index]) -> None:
        if not indexes:
            raise InputError("Expected at least one index, got none.")
        self.indexes = tuple(indexes)
        first = indexes[0]
        seen = set[Any]()
        for index in indexes:
            _check_alike(first, index)
            ids = index.ids.tolist() if index.id_type is not None else []
            if twice := sorted(seen.intersection(ids)):
                more = f" and {len(twice) - 1} more" if twice[1:] else ""
                raise MismatchError(f"The ID {twice[0]!r:.80}{more} is in more than one of these indexes.")
            seen.update(ids)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"JoinedIndex({', '.join(map(repr, self.indexes))})"

    @property
    def size(self) -> int:
        """The number of documents."""
        return sum(index.size for index in self.indexes)

    @property
    def ids(self) -> Shaped[np.ndarray, " n"]:
        """The ids of all documents: int64, or strings as objects."""
        return np.concatenate([self._shifted(number, index.ids) for number, index in enumerate(self.indexes)])

    @property
    def views(self) -> Views | None:
        """The views of texts for these indexes."""
        return self.indexes[0].views

    def _start(self, number: int) -> int:
        """The number of the first document of an index, if they are numbered."""
        if self.indexes[0].id_type is not None:
            return 0
        return sum(index.state.next for index in self.indexes[:number])

    def _shifted(self, number: int, ids: np.ndarray) -> np.ndarray:
        start = self._start(number)
        return np.where(ids < 0, -1, ids + start) if start else ids

    def search(self, queries: RowsLike, k: int = 10, *, among: IdsLike = None, where: Where | None = None) -> Any:
        """The k best documents of each query, as `Index.search` gives them."""
        if isinstance(queries, str) or (isinstance(queries, list | tuple) and not are_rows(queries)):
            texts = as_texts([queries] if isinstance(queries, str) else queries, "query")
            views = self.views
            if views is None:
                raise InputError("These indexes have no encoder: pass vectors, or load them with jaxwhiten.load_index.")
            several = self.hits(views.queries(texts), k, among, where) if texts else []
            return several[0] if isinstance(queries, str) else several
        parts = self._parts(among)
        results: list[Any] = [
            self.indexes[number].search(queries, k, among=some, where=where) for number, some in parts
        ]
        scores = np.concatenate([scores for scores, _ in results], axis=1)
        pairs = zip(parts, results, strict=True)
        ids = np.concatenate([self._shifted(number, ids) for (number, _), (_, ids) in pairs], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return _taken(scores, best), _taken(ids, best)

    def hits(self, queries: RowsLike, k: int, among: IdsLike = None, where: Where | None = None) -> list[list[Hit]]:
        """`search` with results as `Hit`s, which include the texts."""
        results = list[list[list[Hit]]]()
        for number, some in self._parts(among):
            start = self._start(number)
            lists = self.indexes[number].hits(queries, k, some, where)
            results.append([[hit._replace(id=int(hit.id) + start) if start else hit for hit in hits] for hits in lists])
        several = zip(*results, strict=True)
        return [heapq.nlargest(k, chain.from_iterable(lists), key=lambda hit: hit.score) for lists in several]

    def _parts(self, among: IdsLike) -> list[tuple[int, list[Any] | None]]:
        """The numbers of the indexes to search, and the ids among which each is searched."""
        if among is None:
            return [(number, None) for number in range(len(self.indexes))]
        ids = as_ids(among)
        parts = list[tuple[int, list[Any] | None]]()
        for number, index in enumerate(self.indexes):
            start = self._start(number)
            own = [id - start for id in ids] if start else ids
            if some := [id for id in own if id in index]:
                parts.append((number, some))
        known = sum(len(some or ()) for _, some in parts)
        if known < len(ids):
            warn(f"`among`: {len(ids) - known} of the {len(ids)} IDs are not in the indexes, and are left out.")
        return parts or [(0, ids)]


def _taken(array: Shaped[np.ndarray, "q n"], best: np.ndarray) -> Shaped[np.ndarray, "q k"]:
    return np.take_along_axis(array, best, axis=1)


def _check_alike(first: Index, other: Index) -> None:
    """Raises MismatchError unless the scores of two indexes can be compared."""
    names = [first.database.name, other.database.name]
    if unlike := [name for name in _SHARED if getattr(first, name) != getattr(other, name)]:
        name = unlike[0]
        values = f"{getattr(first, name)!s:.80} and {getattr(other, name)!s:.80}"
        raise MismatchError(f"{names[0]} and {names[1]} differ in {name}: {values}. Build both with the same settings.")
    encodings = [VectorSpace.of(index.encoding) for index in (first, other)]
    if differences := encodings[0].differences(encodings[1], strict=True):
        raise MismatchError(f"{names[0]} and {names[1]} are of different encoders ({', '.join(differences)}).")
    maps = [index.store.prepare.hash() for index in (first, other)]
    tensors = [index.store.tensors for index in (first, other)]
    same = all(np.array_equal(array, tensors[1][name]) for name, array in tensors[0].items())
    if maps[0] != maps[1] or not same:
        raise MismatchError(f"{names[0]} and {names[1]} have different codes: build the second with `like`.")


@overload
def load_index(  # type: ignore[overload-overlap]  # a text is no list of paths
    path: PathLike, *, model: str | None = None, engine: str | None = None, read_only: bool = False
) -> Index: ...
@overload
def load_index(
    path: Sequence[PathLike], *, model: str | None = None, engine: str | None = None, read_only: bool = False
) -> JoinedIndex: ...
def load_index(
    path: PathLike | Sequence[PathLike],
    *,
    model: str | None = None,
    engine: str | None = None,
    read_only: bool = False,
) -> Index | JoinedIndex:
    """Loads an index of any backend. The index also searches for texts, by the encoder that it records.

    The encoder is loaded for the first text. Texts, string IDs and copies for rescoring are read when they are needed.
    Every search sees what other processes have changed in the file meanwhile.

    The checksums of vectors and codes are compared when they are read, so that damage is reported instead of
    crashing. This does not protect against an attacker who writes both.

    >>> Encoder.from_pretrained("jaxwhiten-tiny").index(["A dog runs.", "It rains."]).save("docs.db")
    >>> load_index("docs.db").search("a dog", k=1)[0].text
    'A dog runs.'

    Args:
      path: The file; or several, of one space and code, which are searched as one, a `JoinedIndex`.
      model: The current location of the encoder, if it has moved.
      engine: The engine of the encoder; for float32 vectors any, by default the recorded one or the fastest.
      read_only: Whether changes of the index are refused.

    Raises:
      FormatError: The file is missing, damaged, of another kind or from a newer version.
      MismatchError: Several indexes cannot be searched as one.
      MissingDependencyError: The backend's package or device is missing.
    """
    if isinstance(path, str | os.PathLike):
        return open_index_file(path, model=model, engine=engine, read_only=read_only)
    return JoinedIndex([open_index_file(one, model=model, engine=engine, read_only=read_only) for one in path])
