"""`jaxwhiten search`: finds the texts of an index nearest to each query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from jaxwhiten.commands.arguments import Report, Source, printable
from jaxwhiten.commands.texts import stdin_lines
from jaxwhiten.errors import InputError

if TYPE_CHECKING:
    from jaxwhiten.search import Hit


def search(
    index: Source,
    /,
    *query: str,
    k: Annotated[int, Parameter(name=("-k", "--top"))] = 10,
    where: str | None = None,
    hybrid: bool = False,
    rerank: Source | None = None,
    rerank_depth: int = 100,
    model: Source | None = None,
) -> Iterator[Report]:
    """Search an index for the documents nearest to a query.

    Args:
      index: a file that `jaxwhiten index` wrote
      query: queries; without any, or with -, they are read from stdin, one per line
      k: results per query
      where: search only documents for which this holds, of --id and --keep, such as "date >= '2024'" (SQL)
      hybrid: rank by the words of the query, too
      rerank: cross-encoder that re-ranks the results, a folder
      rerank_depth: results to re-rank
      model: current location of the encoder, if it has moved

    Examples:
      jaxwhiten search docs.db "someone plays music" -k 3
      jaxwhiten search songs.db "bad weather" --where "lang = 'en'" --json
      cat queries.txt | jaxwhiten search docs.db
    """
    from jaxwhiten.text import is_blank

    queries = () if query == ("-",) else query
    if any(map(is_blank, queries)):
        raise InputError("The query is empty: pass a sentence to search for.")

    from jaxwhiten.search import Hits, load_index, rerank_hits

    opened = load_index(index, model=model, read_only=True)
    reranker = None
    if rerank:
        from jaxwhiten.encoding import CrossEncoder

        reranker = CrossEncoder.from_pretrained(rerank)
    # From stdin, each query is answered before the next is read.
    for text in queries or (line.strip() for line in stdin_lines() if not is_blank(line)):
        text.encode()  # UnicodeEncodeError: bytes of an argument that are not UTF-8
        depth = max(k, rerank_depth) if reranker else k
        hits = opened.search(text, depth, where=where, hybrid=hybrid)
        if reranker:
            hits = Hits(rerank_hits(reranker, text, hits)[:k])
        lines = [f"{hit.score:.4f}\t{printable(hit.id)}\t{printable(hit.text or '')}{_metadata(hit)}" for hit in hits]
        head = [f"> {printable(text)}"] if len(queries) != 1 else []
        yield Report("\n".join(head + lines), {"query": text, "hits": [hit.record() for hit in hits]})


def _metadata(hit: Hit) -> str:
    """The metadata as one more column."""
    if hit.metadata is None:
        return ""
    return "\t" + printable(json.dumps(hit.metadata, ensure_ascii=False))
