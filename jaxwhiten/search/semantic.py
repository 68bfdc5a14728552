"""Search among vectors in memory, with the interface of sentence-transformers' `util`, by the JAX index."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxwhiten.arrays import as_floats, blocks, comparable
from jaxwhiten.errors import check_integer, check_name
from jaxwhiten.search.build import build_index
from jaxwhiten.search.index import Index
from jaxwhiten.text import Texts, as_texts
from jaxwhiten.types import RowsLike

_QUERIES = 8192  # queries searched before their pairs are merged
_SCORES = ("cosine", "dot")


@runtime_checkable
class SentenceEncoder(Protocol):
    """What encodes sentences: an `Encoder`."""

    def encode(self, sentences: Any, **options: Any) -> np.ndarray:
        """Vectors [n, d]."""


def semantic_search(
    query_embeddings: RowsLike, corpus_embeddings: RowsLike, top_k: int = 10, *, score_function: str = "cosine"
) -> list[list[dict[str, int | float]]]:
    """The best vectors of a corpus for each query, by exact search on the device.

    To search a corpus repeatedly, use `build_index`, which keeps it on the device.

    >>> semantic_search(np.eye(2), np.eye(2), top_k=1)
    [[{'corpus_id': 0, 'score': 1.0}], [{'corpus_id': 1, 'score': 1.0}]]

    Args:
      query_embeddings: [q, d], or one vector [d]; floats, or codes from `encode`.
      corpus_embeddings: [n, d]; floats or codes.
      top_k: Results per query; fewer if the corpus is smaller.
      score_function: `"cosine"` or `"dot"`.

    Returns:
      For each query a list of dicts with `corpus_id` and `score`, best first.

    Raises:
      MismatchError: Both sides know their spaces, and these differ.
    """
    queries, corpus = comparable(query_embeddings, corpus_embeddings)
    index = _index(corpus, score_function, top_k)
    queries = np.atleast_2d(np.asarray(queries, np.float32))
    scores, ids = index.search(queries, top_k)
    return [
        [{"corpus_id": i, "score": s} for i, s in zip(ids_of_query, row, strict=True)]
        for ids_of_query, row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]


def paraphrase_mining(
    encoder: SentenceEncoder,
    sentences: Texts,
    *,
    top_k: int = 100,
    max_pairs: int = 500_000,
    score_function: str = "cosine",
    **options: Any,
) -> list[list[float | int]]:
    """The most similar pairs of sentences, each once.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> [pair[1:] for pair in paraphrase_mining(encoder, ["A dog runs.", "It rains.", "A dog ran."], max_pairs=1)]
    [[0, 2]]

    Args:
      top_k: The number of nearest sentences considered for each sentence.
      max_pairs: The maximum number of pairs returned.
      score_function: `"cosine"` or `"dot"`.
      **options: Arguments of `Encoder.encode`, such as `prompt_name`.

    Returns:
      `[score, i, j]` with i < j, best first.
    """
    vectors = encoder.encode(as_texts(sentences), **options)
    return paraphrase_mining_embeddings(vectors, top_k=top_k, max_pairs=max_pairs, score_function=score_function)


def paraphrase_mining_embeddings(
    embeddings: RowsLike, *, top_k: int = 100, max_pairs: int = 500_000, score_function: str = "cosine"
) -> list[list[float | int]]:
    """`paraphrase_mining` for vectors [n, d]; MismatchError for a list of vectors in different spaces.

    >>> paraphrase_mining_embeddings(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), max_pairs=1)
    [[1.0, 0, 2]]
    """
    vectors = np.asarray(as_floats(embeddings), np.float32)
    if len(vectors) < 2:
        return []
    check_integer("max_pairs", max_pairs, 1)
    index = _index(vectors, score_function, top_k)
    k = min(top_k, len(vectors) - 1)
    # pairs i < j as i · n + j
    n = len(vectors)
    best = np.empty(0, np.float32)
    pairs = np.empty(0, np.int64)
    for part in blocks(n, _QUERIES):
        scores, ids = index.search(vectors[part], k + 1)
        query = np.broadcast_to(np.arange(part.start, part.stop)[:, None], ids.shape)
        other = ids != query
        other &= np.cumsum(other, axis=1) <= k
        best = np.concatenate([best, scores[other]])
        pairs = np.concatenate([pairs, (np.minimum(query, ids) * n + np.maximum(query, ids))[other]])
        order = np.lexsort((pairs, -best))
        _, once = np.unique(pairs[order], return_index=True)  # the higher score of a pair comes first
        order = order[np.sort(once)[:max_pairs]]
        best = best[order]
        pairs = pairs[order]
    first, second = np.divmod(pairs, n)
    return [list(pair) for pair in zip(best.tolist(), first.tolist(), second.tolist(), strict=True)]


def _index(vectors: RowsLike, score_function: str, top_k: int) -> Index:
    check_integer("top_k", top_k, 1)
    check_name("score function", score_function, _SCORES)
    return build_index(np.asarray(vectors, np.float32), "jax", normalize=score_function == "cosine")
