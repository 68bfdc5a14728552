"""What an encoder is scored on: scored pairs, or queries with their relevant documents, in any form a user has them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, no_type_check

import numpy as np

from jaxwhiten.datasets import Pairs, RetrievalData, from_pairs, read_own, read_pairs
from jaxwhiten.datasets.tables import read_header
from jaxwhiten.errors import InputError, NonFiniteError
from jaxwhiten.text import SIDES, as_rows, as_texts
from jaxwhiten.whitening import ScoredPairs

_SEARCH = {"query", "question1"}  # a column that only tables of queries and documents have


def read(data: Any, columns: Sequence[str] = ()) -> Pairs | RetrievalData | ScoredPairs:
    """Data in any form of `evaluate`; `columns` are the names of both sentences and the score in a table of pairs.

    Raises:
      DataError: A file is missing or damaged, or lacks a column; the message names file and line.
      InputError: There are fewer than two different scores, or an item is not a sentence.
    """
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        own = not columns and (path.is_dir() or {name.strip('"') for name in read_header(path)} & _SEARCH)
        data = read_own(path) if own else read_pairs(path, columns)
    elif isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names"):
        names = set(getattr(data, "column_names", None) or getattr(data, "columns", data))
        other = ("sentence1", "sentence2", "score")
        wanted = next((two for two in (("query", "document"), ("query", "positive")) if names.issuperset(two)), None)
        if wanted:
            rows = zip(*(as_texts(list(data[name]), name) for name in wanted), strict=True)
            data = from_pairs("table", ((query, document, query, document, True) for query, document in rows))
        elif names.issuperset(columns or other):
            data = tuple(list(data[name]) for name in columns or other)
    return data if isinstance(data, RetrievalData) else _checked(data)


@no_type_check  # at run time: invalid rows get a message of their own
def _checked(data: Any) -> Pairs | ScoredPairs:
    sides: Any = (data.sentence1, data.sentence2, data.score) if isinstance(data, Pairs) else data
    if not isinstance(sides, tuple) or len(sides) != 3 or isinstance(next(iter(sides[2]), None), str):
        sides = as_rows(sides, 3, "two sentences and a score")
    first, second, gold = sides
    if not isinstance(data, ScoredPairs):
        first, second = map(as_texts, (first, second), SIDES)
    try:
        gold = np.asarray(gold, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The scores are not all numbers ({error}).") from error
    if not len(first) == len(second) == len(gold):
        raise InputError(f"{len(first)} and {len(second)} sentences, but {len(gold)} scores; pairs need as many.")
    if not np.isfinite(gold).all():
        raise NonFiniteError(f"The score of pair {int(np.argmin(np.isfinite(gold)))} is NaN or infinite.")
    if len(gold) < 2 or gold.min() == gold.max():
        raise InputError("The pairs need at least two different scores to be correlated with.")
    if isinstance(data, ScoredPairs):
        return ScoredPairs(first, second, gold)
    return Pairs(first, second, gold, [""] * len(gold))
