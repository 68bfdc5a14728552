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
from jaxwhiten.search.hits import Hits, Searches
from jaxwhiten.search.index import Index, open_index_file
from jaxwhiten.search.store import Ranking, first
from jaxwhiten.search.where import Where
from jaxwhiten.space import Space, check_space
from jaxwhiten.terminal import counted
from jaxwhiten.types import Float32, IdsLike, RowsLike, Shaped

if TYPE_CHECKING:
    from jaxwhiten.views import View

_SHARED = ("backend", "input_dimension", "dimension", "normalize", "whitening", "codes", "rescore", "id_type")


class JoinedIndex(Searches):
    """Indexes of one space and code, which are searched as one. Each may be changed by itself.

    >>> parts = [build_index(np.eye(4)[rows], ids=list(ids)) for rows, ids in (([0, 1], "ab"), ([2, 3], "cd"))]
    >>> JoinedIndex(parts).search(np.eye(4, dtype=np.float32)[2:3], k=1)[1].tolist()
    [['c']]

    Raises:
      MismatchError: The indexes are of different spaces or codes, their documents are numbered, or an ID is in two.
    """

    def __init__(self, indexes: Sequence[Index]) -> None:
        if not indexes:
            raise InputError("Expected at least one index, got none.")
        self.indexes = tuple(indexes)
        seen = set[Any]()
        for index in indexes:
            _check_alike(indexes[0], index)
            ids = index.ids.tolist()
            if twice := sorted(seen.intersection(ids)):
                more = f" and {len(twice) - 1} more" if twice[1:] else ""
                advice = "" if index.id_type else ": build indexes with IDs to search them as one"
                raise MismatchError(f"The ID {twice[0]!r:.80}{more} is in more than one of these indexes{advice}.")
            seen.update(ids)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"JoinedIndex({counted(len(self.indexes), 'indexes')}, {counted(self.size, 'documents')})"

    @property
    def size(self) -> int:
        """The number of documents."""
        return sum(index.size for index in self.indexes)

    @property
    def ids(self) -> Shaped[np.ndarray, " n"]:
        """The ids of all documents: int64, or strings as objects."""
        return np.concatenate([index.ids for index in self.indexes])

    @property
    def view(self) -> View:
        """The view of the encoder of these indexes."""
        return self.indexes[0].view

    def query_rows(self, queries: RowsLike) -> Float32[np.ndarray, "q d"]:
        """Queries, checked."""
        return self.indexes[0].query_rows(queries)

    def _nearest(self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None) -> Ranking:
        results = [index._nearest(queries, k, some, where) for index, some in self._parts(among)]
        scores, ids = (np.concatenate(arrays, axis=1) for arrays in zip(*results, strict=True))
        return first(scores, ids, k)

    def _hits(
        self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None, texts: Sequence[str] | None
    ) -> list[Hits]:
        results = [index._hits(queries, k, some, where, texts) for index, some in self._parts(among)]
        several = zip(*results, strict=True)
        return [Hits(heapq.nlargest(k, chain.from_iterable(lists), key=lambda hit: hit.score)) for lists in several]

    def _parts(self, among: IdsLike) -> list[tuple[Index, list[Any] | None]]:
        """The indexes to search, and the ids among which each is searched."""
        if among is None:
            return [(index, None) for index in self.indexes]
        ids = as_ids(among)
        parts = [(index, index.known(ids)) for index in self.indexes]
        known = sum(len(some) for _, some in parts)
        if known < len(ids):
            warn(f"`among`: {len(ids) - known} of the {len(ids)} IDs are not in the indexes, and are left out.")
        return [part for part in parts if part[1]] or [(self.indexes[0], ids)]


def _check_alike(first: Index, other: Index) -> None:
    """Raises MismatchError unless the scores of two indexes can be compared."""
    names = [first.database.name, other.database.name]
    if unlike := [name for name in _SHARED if getattr(first, name) != getattr(other, name)]:
        name = unlike[0]
        values = f"{getattr(first, name)!s:.80} and {getattr(other, name)!s:.80}"
        raise MismatchError(f"{names[0]} and {names[1]} differ in {name}: {values}. Build both with the same settings.")
    check_space(names[0], first.space or Space(), other.space or Space(), "search them apart", strict=True)
    tensors, others = (index.store.coding.tensors for index in (first, other))
    if tensors.keys() != others.keys() or not all(np.array_equal(tensors[name], others[name]) for name in tensors):
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
