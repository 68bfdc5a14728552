"""What an encoder is scored on: scored pairs, or queries with their relevant documents, in any form a user has them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import numpy as np

from jaxwhiten.arrays import check_finite, column_values
from jaxwhiten.datasets import Pairs, RetrievalData, read_own, read_pairs
from jaxwhiten.datasets.columns import is_search
from jaxwhiten.datasets.tables import Column, Table, as_table, read_header
from jaxwhiten.errors import REASON, InputError, turning
from jaxwhiten.terminal import brief, counted
from jaxwhiten.text import SIDES, Texts, as_rows, as_texts, is_blank
from jaxwhiten.types import Float, Real, RowsLike

HELD_OUT = 300  # documents, at most, that are queries for the others


def _has_columns(data: RowsLike) -> bool:
    return hasattr(type(data), "columns") or hasattr(type(data), "column_names")  # a LazyFrame warns of its own


class ScoredPairs(NamedTuple):
    """Raw vectors of sentence pairs, and the similarity that people gave each pair.

    >>> pairs = ScoredPairs(np.eye(3), np.tri(3), np.array([1.0, 0.5, 0.0]))
    >>> round(evaluate(Encoder.from_pretrained("jaxwhiten-tiny"), pairs, resamples=100).score)
    100
    """

    first: Float[np.ndarray, "n d"]
    second: Float[np.ndarray, "n d"]
    gold: Real[np.ndarray, " n"]

    def __repr__(self) -> str:
        return brief(self)


class Unjudged(NamedTuple):
    """Documents, and queries without relevance judgments; or some of the documents as queries for the others.

    >>> data = read([f"{number} dogs" for number in range(40)])
    >>> len(data.documents), len(data.queries)
    (36, 4)
    """

    documents: list[str]
    queries: list[str]
    held_out: bool

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of(cls, documents: Texts, queries: Texts | None = None) -> Unjudged:
        """Each text once, without blank ones; of ten documents at most one is a query."""
        texts = _distinct(documents, "document")
        if queries is not None:
            if not texts or not (asked := _distinct(queries, "query")):
                raise InputError("Expected documents and queries, got only blank texts of one of these.")
            return cls(texts, asked, False)
        chosen = np.zeros(len(texts), bool)
        chosen[np.random.default_rng(0).permutation(len(texts))[: min(HELD_OUT, len(texts) // 10)]] = True
        if not chosen.any():
            raise InputError(
                f"{counted(len(texts), 'different texts')}, of which none can be held out: pass `queries`."
            )
        return cls([*itertools.compress(texts, ~chosen)], [*itertools.compress(texts, chosen)], True)


def _distinct(texts: Texts, what: str) -> list[str]:
    return [text for text in dict.fromkeys(as_texts(texts, what)) if not is_blank(text)]


def read(
    data: RowsLike, columns: Sequence[Column] = (), queries: Texts | None = None
) -> Pairs | RetrievalData | ScoredPairs | Unjudged:
    """Data in any form of `evaluate`; `columns` are the names of both sentences and the score in a table of pairs.

    >>> read((["a dog", "rain"], ["A dog runs.", "A cat."], [5.0, 0.0])).score
    array([5., 0.])

    Raises:
      DataError: A file is missing or damaged, or lacks a column; the message names file and line.
      InputError: There are fewer than two different scores, an item is not a sentence, or the names of a table do not
        settle the roles of its columns.
    """
    if isinstance(data, Unjudged):
        return data
    if isinstance(data, Iterator):
        data = list(data)
    if queries is not None or (isinstance(data, list | np.ndarray) and len(data) and isinstance(data[0], str)):
        return Unjudged.of(data, queries)
    rows = isinstance(data, list) and data and isinstance(data[0], Mapping)
    if rows or isinstance(data, str | os.PathLike | Mapping) or _has_columns(data):
        table = as_table(data)
        if not columns and not isinstance(table, Table) and Path(table).is_dir():
            return read_own(table)
        searches = not columns and is_search(read_header(table))
        data = read_own(table) if searches else read_pairs(table, columns)
    if isinstance(data, RetrievalData):
        return data
    return _checked(data)


@no_type_check  # at run time: invalid rows get a message of their own
def _checked(data: RowsLike) -> Pairs | ScoredPairs:
    sides: Any
    sides = (data.sentence1, data.sentence2, data.score) if isinstance(data, Pairs) else data
    if not isinstance(sides, tuple) or len(sides) != 3 or isinstance(next(iter(sides[2]), None), str):
        sides = as_rows(sides, 3, "two sentences and a score")
    if not isinstance(data, ScoredPairs):
        sides = tuple(map(column_values, sides))
        sides = *map(as_texts, sides[:2], SIDES), sides[2]
    first, second, gold = sides
    with turning(InputError, f"The scores are not all numbers ({REASON}).", TypeError, ValueError):
        if np.asarray(gold).dtype.kind in "mM":
            raise TypeError("they are dates or times")
        gold = np.asarray(gold, np.float64)
    if not len(first) == len(second) == len(gold):
        scores = counted(len(gold), "scores")
        raise InputError(f"{len(first)} and {len(second)} sentences, but {scores}; pairs need as many.")
    check_finite(gold[:, None], what="scores")
    if len(gold) < 2 or gold.min() == gold.max():
        raise InputError("The pairs need at least two different scores to be correlated with.")
    if isinstance(data, ScoredPairs):
        return ScoredPairs(first, second, gold)
    return Pairs(first, second, gold, [""] * len(gold))
