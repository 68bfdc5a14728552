"""Controls that use words and no encoder: TF-IDF and BM25.

`jaxwhiten.scoring` has the weights. A text is a sparse row of counts with a column for each word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_matrix

from jaxwhiten import scoring

T = TypeVar("T")
TFIDF = "tfidf"  # the one that others are compared with
WORDS = {
    TFIDF: "lower-cased runs of letters and digits, "
    "1 + log of the count times the smoothed idf of what a whitening is fitted on, cosine",
    "bm25": "the words of tfidf, k1 = 1.5, b = 0.75",
}


def fits(whitenings: Sequence[str], fitted: Mapping[str, Any], texts: int, rows: int) -> dict[str, Any]:
    """By the whitenings of a run, the rows on which words are counted: those of `fitted`, or those after the texts."""
    by_name = {**fitted, "nli": np.arange(texts, rows)}
    return {name: by_name[name] for name in whitenings if name in by_name}


def matching_fit(by_fit: Mapping[str, T], whitening: str) -> T | None:
    """The result of TF-IDF under the fit of a row, or under its first fit if that is missing; None without TF-IDF."""
    return by_fit.get(whitening, next(iter(by_fit.values()), None))


def weigh(name: str, counts: csr_matrix, fit: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """The rows as queries and as documents, whose products are the similarities, see `jaxwhiten.scoring.weigh`."""
    if name == "bm25":
        return scoring.weigh(scoring.BM25, counts, fit)
    return scoring.weigh(scoring.TFIDF, counts, fit)
