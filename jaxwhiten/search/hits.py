"""The searches of an index, and their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from jaxwhiten.errors import InputError, check_integer, optional
from jaxwhiten.search.prepare import check_lengths
from jaxwhiten.search.store import Ranking
from jaxwhiten.search.where import Where
from jaxwhiten.terminal import SHOWN, as_html, one_line, table
from jaxwhiten.text import as_texts
from jaxwhiten.types import Float32, IdsLike, Json, RowsLike, Shaped

if TYPE_CHECKING:
    from jaxwhiten.views import View


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


class Hits(list[Hit]):
    """The results of a query, best first, which print as a table.

    >>> Hits([Hit(3, 0.9, "A dog runs.")])
       score  id  text
    1  0.900   3  A dog runs.
    """

    def __repr__(self) -> str:
        rest = [f"… {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []
        return "\n".join([*table(self._cells[: SHOWN + 1], left=(3,)), *rest])

    def _repr_html_(self) -> str:
        return as_html(self._cells)

    @property
    def _cells(self) -> list[list[str]]:
        rows = [
            [str(rank), f"{hit.score:.3f}", one_line(str(hit.id), 40), one_line(hit.text)]
            for rank, hit in enumerate(self, 1)
        ]
        return [["", "score", "id", "text"], *rows]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the columns id, score and text, and a column for each name of the metadata."""
        rows = [{"id": hit.id, "score": hit.score, "text": hit.text, **(hit.metadata or {})} for hit in self]
        return optional("pandas", "data", "A DataFrame").DataFrame(rows)


class Searches(ABC):
    """What searches documents for texts and for vectors: an index, or several as one."""

    @property
    @abstractmethod
    def view(self) -> View:
        """The view of the encoder, for texts; InputError if there is none."""

    @abstractmethod
    def query_rows(self, queries: RowsLike) -> Float32[np.ndarray, "q d"]:
        """Queries, checked."""

    @abstractmethod
    def _nearest(self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None) -> Ranking:
        """The scores and ids of checked queries."""

    @abstractmethod
    def _hits(
        self, queries: np.ndarray, k: int, among: IdsLike, where: Where | None, texts: Sequence[str] | None
    ) -> list[Hits]:
        """`hits` of checked queries."""

    def hits(
        self,
        queries: RowsLike,
        k: int,
        among: IdsLike = None,
        where: Where | None = None,
        texts: Sequence[str] | None = None,
    ) -> list[Hits]:
        """`search` of vectors with results as `Hit`s, which include the texts; `hybrid` by the queries' `texts`."""
        check_integer("k", k, 1)
        return self._hits(self.query_rows(queries), k, among, where, texts)

    @overload
    def search(
        self, queries: str, k: int = 10, *, among: IdsLike = None, where: Where | None = None, hybrid: bool = False
    ) -> Hits: ...
    @overload
    def search(
        self,
        queries: list[str] | tuple[str, ...],
        k: int = 10,
        *,
        among: IdsLike = None,
        where: Where | None = None,
        hybrid: bool = False,
    ) -> list[Hits]: ...
    @overload
    def search(
        self,
        queries: RowsLike,
        k: int = 10,
        *,
        among: IdsLike = None,
        where: Where | None = None,
    ) -> tuple[Float32[np.ndarray, "q k"], Shaped[np.ndarray, "q k"]]: ...
    def search(
        self,
        queries: RowsLike,
        k: int = 10,
        *,
        among: IdsLike = None,
        where: Where | None = None,
        hybrid: bool = False,
    ) -> Any:
        """The k best documents of each query.

        Args:
          queries: A text or a list of texts, if the index is by `Encoder.index` or `jaxwhiten.load_index`. Or raw
            vectors, encoded like the documents; the index whitens and normalizes them. What `Encoder.encode`
            returned is checked; other rows of numbers do not know their space.
          k: The number of documents; an index of fewer gives all.
          among: The ids of the documents to search, in any order; None searches all. A set of fewer than k documents
            gives what there is; unknown ids are left out, with a warning.
          where: A filter of the documents to search, by their `id`, `text` and the names of their metadata: an
            expression of SQL, such as `"date >= '2024-01-01' AND lang = 'en'"`, or conditions that all hold, such as
            `{"date": {"gte": "2024-01-01"}, "lang": ["en", "de"]}` with `eq`, `ne`, `gt`, `gte`, `lt`, `lte` and `in`.
          hybrid: Whether the words of texts count, too: 50 documents with their three rarest words join the 100 nearest
            ones, and are ranked by BM25 and by cosine. Scores are the sums of reciprocal ranks, 1 / (60 + rank).

        Returns:
          For a text, `Hits`, best first; for several, a list of them each. For vectors, scores, best first, and ids:
          int64, or an object array of strings. Equal scores are sorted by row; if several documents tie for the k-th
          place, the backend decides which are returned. If an approximate index finds fewer than k, the rest have
          score −inf and id −1, or None if ids are strings.
        """
        check_integer("k", k, 1)
        if not are_texts(queries):
            if hybrid:
                raise InputError("`hybrid` compares words: pass texts, or omit it.")
            return self._nearest(self.query_rows(queries), k, among, where)
        texts = as_texts([queries] if isinstance(queries, str) else queries, "query")
        view = self.view
        if not texts:
            return []
        vectors = np.ascontiguousarray(view.queries(texts), np.float32)
        check_lengths("query vectors", vectors)  # those of a table of words may be zero
        several = self._hits(vectors, k, among, where, texts if hybrid else None)
        return several[0] if isinstance(queries, str) else several


def are_texts(queries: RowsLike) -> bool:
    """Whether queries are a text or a list of texts; other lists are of vectors."""
    if not isinstance(queries, list | tuple):
        return isinstance(queries, str)
    first = queries[0] if queries else ""
    listed = isinstance(first, list | tuple) and len(first) > 0 and isinstance(first[0], int | float)
    return not listed and getattr(first, "ndim", 0) != 1
