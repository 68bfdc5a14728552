"""Lexical baselines, which use no encoder: TF-IDF and BM25.

A text is a sparse row of counts with a column for each word. The texts that idf and the mean length are counted on are
passed as rows, too.

References:
  Spärck Jones 1972, "A statistical interpretation of term specificity and its application in retrieval".
  Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix, diags

from jaxwhiten.errors import check_integer
from jaxwhiten.search.words import bm25_weights, words_of
from jaxwhiten.types import Float, Int

TFIDF = "TF-IDF"
BM25 = "BM25"
_HELD = 1 << 25  # similarities held at once


def count(texts: Sequence[str]) -> csr_matrix:
    """The count of each word of hybrid search (column, in alphabetical order) in each text (row).

    >>> count(["a dog", "a cat, a dog"]).toarray()  # a, cat, dog
    array([[1., 0., 1.],
           [2., 1., 1.]])
    """
    bags = [Counter(words_of(text)) for text in texts]
    number = {word: column for column, word in enumerate(sorted(set().union(*bags)))}
    pairs = [sorted((number[word], times) for word, times in bag.items()) for bag in bags]
    columns, counts = np.array([pair for row in pairs for pair in row], np.int64).reshape(-1, 2).T
    starts = np.cumsum([0, *map(len, pairs)])
    return csr_matrix((counts.astype(np.float64), columns, starts), (len(texts), len(number)))


def weigh(name: str, counts: csr_matrix, fit: csr_matrix, k1: float = 1.2) -> tuple[csr_matrix, csr_matrix]:
    """The rows as queries and as documents, whose products are the similarities.

    >>> counts = count(["a dog", "a cat"])
    >>> queries, documents = weigh(TFIDF, counts, counts)
    >>> (queries @ documents.T).diagonal()
    array([1., 1.])

    Args:
      name: `TFIDF`: 1 + log of the count, times the smoothed idf, scaled to unit length. `BM25`: that of hybrid search.
      counts: Counts of the texts.
      fit: Counts of the texts for idf and, for BM25, for the mean length. A word in none of them has the highest idf.
      k1: How slowly the times of a word saturate, for BM25.
    """
    having = np.bincount(fit.indices, minlength=fit.shape[1])
    weights = counts.copy()
    if name == TFIDF:
        weights.data = 1 + np.log(weights.data)
        weights = (weights @ diags(np.log((1 + fit.shape[0]) / (1 + having)) + 1)).tocsr()
        weights = (diags(1 / np.maximum(_norms(weights), np.finfo(np.float64).tiny)) @ weights).tocsr()
        return weights, weights
    lengths = np.repeat(np.asarray(counts.sum(axis=1)).ravel(), np.diff(weights.indptr))
    mean = fit.sum() / max(1, fit.shape[0])
    weights.data = bm25_weights(weights.data, lengths, mean, having[weights.indices], fit.shape[0], k1)
    return counts, weights


def cosines(x: csr_matrix, left: Int[np.ndarray, " n"], right: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The cosine of each pair of rows; 0 if a row has no words.

    >>> counts = count(["a dog", "a dog", "rain"])
    >>> cosines(counts, np.array([0, 0]), np.array([1, 2]))
    array([1., 0.])
    """
    norms = _norms(x)
    products = np.asarray(x[left].multiply(x[right]).sum(axis=1)).ravel()
    return products / np.maximum(norms[left] * norms[right], np.finfo(np.float64).tiny)


def nearest(queries: csr_matrix, documents: csr_matrix, k: int) -> Int[np.ndarray, "q k"]:
    """The k documents with the highest products with each query, best first, ties by number; -1 without any product.

    >>> counts = count(["a dog", "a cat"])
    >>> nearest(counts, counts, k=1).ravel()
    array([0, 1])
    """
    ids = [np.zeros((0, k), np.int64)]
    rows = max(1, _HELD // max(1, documents.shape[0]))
    for start in range(0, queries.shape[0], rows):
        scores = (queries[start : start + rows] @ documents.T).toarray()
        results = best(scores, k)
        results[np.take_along_axis(scores, results, axis=1) <= 0] = -1
        ids.append(results)
    return np.concatenate(ids)


def best(scores: Float[np.ndarray, "q n"], k: int) -> Int[np.ndarray, "q k"]:
    """The columns of the k highest scores of each row, best first, ties by number.

    >>> best(np.array([[0.5, 0.9, 0.5, 0.1]]), k=2)
    array([[1, 0]])
    """
    check_integer("k", k, 1, scores.shape[1])
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def _norms(x: csr_matrix) -> Float[np.ndarray, " n"]:
    return np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
