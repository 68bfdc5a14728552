"""Controls that use words and no encoder: TF-IDF and BM25.

`jaxwhiten.scoring` has the weights. A text is a sparse row of counts with a column for each word.
"""

from __future__ import annotations

from scipy.sparse import csr_matrix

from jaxwhiten import scoring

WORDS = {
    "tfidf": "lower-cased runs of letters and digits, "
    "1 + log of the count times the smoothed idf of what a whitening is fitted on, cosine",
    "bm25": "the words of tfidf, k1 = 1.2, b = 0.75",
}


def weigh(name: str, counts: csr_matrix, fit: csr_matrix) -> tuple[csr_matrix, csr_matrix]:
    """The rows as queries and as documents, whose products are the similarities, see `jaxwhiten.scoring.weigh`."""
    if name == "bm25":
        return scoring.weigh(scoring.BM25, counts, fit)
    return scoring.weigh(scoring.TFIDF, counts, fit)
