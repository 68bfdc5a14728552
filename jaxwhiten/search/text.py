"""Search by sentences: an encoder in front of an index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jaxwhiten.codes import Code, SpectrumCode
from jaxwhiten.errors import MismatchError, check_counts
from jaxwhiten.search.build import build_index
from jaxwhiten.search.hits import Hit, Hits
from jaxwhiten.search.index import Index
from jaxwhiten.text import is_blank
from jaxwhiten.types import RowsLike

if TYPE_CHECKING:
    from jaxwhiten.views import View


def rerank_hits(cross_encoder: Any, query: str, hits: Sequence[Hit]) -> Hits:
    """Reorders results by a `CrossEncoder` and takes its scores; MismatchError if the index keeps no texts.

    >>> cross = CrossEncoder.from_pretrained("cross")  # a folder
    >>> hits = Encoder.from_pretrained("jaxwhiten-tiny").index(["A dog runs.", "It rains."]).search("a dog", k=2)
    >>> sorted(hit.id for hit in rerank_hits(cross, "a dog", hits))
    [0, 1]
    """
    texts = [hit.text for hit in hits if hit.text is not None]
    if len(texts) < len(hits):
        raise MismatchError("The index stores no documents, which a cross-encoder reads: rebuild it with documents.")
    ranked = cross_encoder.rank(query, texts)
    return Hits(hits[row["corpus_id"]]._replace(score=row["score"]) for row in ranked)


def without_blank(
    texts: Sequence[str], ids: Sequence[Any] | None = None, metadata: Sequence[Any] | None = None
) -> tuple[list[str], list[Any] | None, list[Any] | None, int]:
    """Texts to store, without space around them, their ids and metadata, and how many blank ones were skipped.

    The vector of a blank text says nothing, and is near that of many queries.
    """
    for what, values in (("ids", ids), ("rows of metadata", metadata)):
        if values is not None:
            check_counts(what, len(values), "documents", len(texts))
    texts = ["" if is_blank(text) else text.strip() for text in texts]
    ids = None if ids is None else list(itertools.compress(ids, texts))
    metadata = None if metadata is None else list(itertools.compress(metadata, texts))
    nonblank = list(filter(None, texts))
    return nonblank, ids, metadata, len(texts) - len(nonblank)


def view_for(index: Index, view: View, role: str = "query") -> View:
    """A view for texts of a role; MismatchError if it would put them in another space than the index.

    The pooling is the index's, and a code is not applied, because the index codes documents itself.
    """
    view = view.in_role(role, coded=False)
    view = view.with_pooling((index.space and index.space.pooling) or view.head.name)
    index.check_fits(view.space, role)
    return view


def index_of(
    view: View,
    texts: Sequence[str],
    vectors: RowsLike | Callable[[], RowsLike] | None = None,
    *,
    codes: str | Code | None = None,
    bytes: int | None = None,
    whitening: Any = None,
    tuned: bool | None = None,
    **settings: Any,
) -> Index:
    """The index of texts, or of their `vectors` without the view's code, for `Encoder.index`."""
    documents = view.float_documents
    if view.code is not None and not (codes or bytes or whitening):
        codes = view.code.in_space(documents.space)
    if tuned is None and (bytes or codes == SpectrumCode.name) and whitening is None:
        tuned = documents.tuned
    return build_index(
        (lambda: documents(texts)) if vectors is None else vectors,
        whitening=whitening,
        space=documents.space,
        documents=texts,
        codes=codes,
        bytes=bytes,
        tuned=tuned,
        view=view,
        **settings,
    )
