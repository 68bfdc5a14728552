"""From a sentence to the sentences nearest to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxwhiten.errors import InputError, MismatchError
from jaxwhiten.search.index import Hit, Index


def rerank_hits(cross_encoder: Any, query: str, hits: Sequence[Hit]) -> list[Hit]:
    """The results in the order of a `CrossEncoder`, with its scores; MismatchError where the index keeps no texts."""
    texts = [hit.text for hit in hits if hit.text is not None]
    if len(texts) < len(hits):
        raise MismatchError("The index keeps no texts, which a cross-encoder has to read: build it with documents.")
    return [hits[row["corpus_id"]]._replace(score=row["score"]) for row in cross_encoder.rank(query, texts)]


def add_text(index: Index, encoder: Any, texts: Sequence[str], ids: Any = None, *, replace: bool = False) -> None:
    """Adds sentences to an index that keeps texts, by the `Encoder` that its documents were encoded with.

    As in `search_text`, but that the sentences get the prompt of a document. `ids` are those of `Index.add`, or of
    `Index.update` to `replace` what they name.
    """
    if not len(texts):
        return
    vectors = document_vectors(index, encoder, texts, ids, replace=replace)
    if replace:
        index.update(ids, vectors, documents=texts)
    else:
        index.add(vectors, documents=texts, ids=ids)


def document_vectors(
    index: Index, encoder: Any, texts: Sequence[str], ids: Any = None, *, replace: bool = False
) -> Float[np.ndarray, "n d"]:
    """The vectors that `add_text` adds; ids that the index does not take are refused before texts are encoded."""
    _ = index.table.rows(ids) if replace else index.table.plus(ids, len(texts))
    encoder, pooling = of_index(index, encoder)
    found: np.ndarray = encoder.encode(list(texts), pooling=pooling, prompt=encoder.prompt_for("document"))
    return found


def of_index(index: Index, encoder: Any) -> tuple[Any, str]:
    """The encoder of an index's vectors and their pooling; MismatchError where it is another."""
    encoder = encoder.without_code()
    pooling = (index.encoding or {}).get("pooling") or encoder.pooling
    index.check_encoding(encoder.encoding(pooling))
    return encoder, pooling


def search_text(index: Index, encoder: Any, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
    """The k best documents of each sentence, best first.

    Args:
      index: An index that knows how its documents were encoded.
      encoder: The `Encoder` they were encoded with, or MismatchError; its pooling is set to the index's, and a code at
        the end of its head is left out: the index codes documents itself, and queries stay vectors. Where its folder
        names prompts of queries and documents, the sentences get that of a query.
      queries: The sentences.
      k: How many results each; in 1..size.
    """
    if isinstance(queries, str):
        raise InputError(f"The queries must be a list of sentences, not one string: [{queries!r:.80}].")
    index.check_k(k)
    encoder, pooling = of_index(index, encoder)
    if not len(queries):
        return []
    vectors = encoder.encode(list(queries), pooling=pooling, prompt=encoder.prompt_for("query"))
    return index.hits(vectors, k)
