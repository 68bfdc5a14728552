"""Controls that use words and no encoder: TF-IDF of words or of the encoder's own tokens, and BM25.

A text is a sparse row of counts with a column for each word. The texts that idf and the mean length are counted on are
given as rows, too.

References:
  Spärck Jones 1972, "A statistical interpretation of term specificity and its application in retrieval".
  Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_matrix, diags

from jaxwhiten import Encoder
from jaxwhiten.errors import optional

T = TypeVar("T")
TFIDF = "tfidf"  # the one that others are compared with
WORDS = {
    TFIDF: "lower-cased runs of letters and digits, "
    "1 + log of the count times the smoothed idf of what a whitening is fitted on, cosine (scikit-learn)",
    "tfidf-pieces": "the same of the encoder's own tokens, cut where the encoder cuts",
    "bm25": "the words of tfidf, k1 = 1.5, b = 0.75",
}
LAYER0, CENTRED = "layers:0", "centre"  # the pooling and the method of eval.methods behind two baselines
BASELINES = (*WORDS, "layer0", "centred")
_K1, _B = 1.5, 0.75
_BATCH = 1024  # queries whose similarities to all documents are held at once


def count(name: str, texts: Sequence[str], encoder: Encoder) -> csr_matrix:
    """The count of each word or token (column) in each text (row)."""
    if name == "tfidf-pieces":
        ids = encoder.tokenizer(texts)
        kept = ~np.isin(ids.flat, list(encoder.tokenizer.special_ids))
        rows = np.repeat(np.arange(len(texts)), ids.lengths)[kept]
        return csr_matrix((np.ones(len(rows)), (rows, ids.flat[kept])), (len(texts), encoder.tokenizer.vocab_size))
    counted = scikit_learn().CountVectorizer(token_pattern=r"(?u)\b\w+\b", dtype=np.float64)
    return counted.fit_transform(texts)


def fits(whitenings: Sequence[str], own: Mapping[str, Any], texts: int, rows: int) -> dict[str, Any]:
    """By the whitenings of a run, the rows on which words are counted: those of `own`, or those after the texts."""
    known = {**own, "nli": np.arange(texts, rows)}
    return {name: known[name] for name in whitenings if name in known}


def beside(found: Mapping[str, T], whitening: str) -> T | None:
    """The result of TF-IDF under the fit of a row, or under its first fit if that is missing; None without TF-IDF."""
    return found.get(whitening, next(iter(found.values()), None))


def weigh(name: str, counts: csr_matrix, fit: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """The rows as queries and as documents, whose products are the similarities.

    Args:
      name: One of `WORDS`.
      counts: Counts of the texts.
      fit: Counts of the texts for idf and, for BM25, for the mean length. A word in none of them has the highest idf.
    """
    if name != "bm25":
        weights = scikit_learn().TfidfTransformer(sublinear_tf=True).fit(fit).transform(counts)
        return weights, weights
    having = np.bincount(fit.indices, minlength=fit.shape[1])
    idf = np.log1p((fit.shape[0] - having + 0.5) / (having + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    damping = _K1 * (1 - _B + _B * lengths / (fit.sum() / fit.shape[0]))
    weights = counts.copy()
    weights.data *= (_K1 + 1) / (weights.data + np.repeat(damping, np.diff(weights.indptr)))
    return counts, (weights @ diags(idf)).tocsr()


def cosines(x: csr_matrix, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of each pair of rows; 0 if a row has no words."""
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    products = np.asarray(x[left].multiply(x[right]).sum(axis=1)).ravel()
    return products / np.maximum(norms[left] * norms[right], np.finfo(np.float64).tiny)


def nearest(queries: csr_matrix, documents: csr_matrix, k: int) -> np.ndarray:
    """The k documents with the highest products with each query, best first, ties by number; -1 for missing ones."""
    found = []
    for start in range(0, queries.shape[0], _BATCH):
        scores = (queries[start : start + _BATCH] @ documents.T).toarray()
        ids = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
        best = np.take_along_axis(scores, ids, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        ids[best <= 0] = -1
        found.append(np.take_along_axis(ids, order, axis=1))
    return np.concatenate(found)


def scikit_learn() -> Any:
    """A module of scikit-learn for features of texts; MissingDependencyError if it is not installed."""
    return optional("sklearn.feature_extraction.text", "eval", "config.baselines", "scikit-learn")
