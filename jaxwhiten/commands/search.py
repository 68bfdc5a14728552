"""`jaxwhiten search INDEX QUERY...`: finds the texts of an index nearest to each query."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import Report, Source, add, printable
from jaxwhiten.commands.texts import as_stored, ids_in, stdin_lines
from jaxwhiten.engines import HELP
from jaxwhiten.errors import InputError

if TYPE_CHECKING:
    from jaxwhiten.search import Hit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "index", "a file that `jaxwhiten index` wrote", type=Source)
    add(parser, "query", "queries; without any, or with -, they are read from stdin, one per line", nargs="*")
    add(parser, "--top -k N", "results per query; default: 10", type=int, default=10, dest="k")
    add(parser, "--among FILE", "search only the documents whose IDs are in this file, one per line", type=Source)
    where = "search only documents for which this holds, of --id and --keep, such as \"date >= '2024'\" (SQL)"
    add(parser, "--where CONDITION", where)
    add(parser, "--hybrid", "rank by the words of the query, too")
    add(parser, "--model MODEL", "current location of the encoder, if it has moved", type=Source)
    add(parser, "--engine ENGINE", f"{HELP}; default: as the index, any in float32")
    add(parser, "--rerank FOLDER", "cross-encoder that re-ranks the results", type=Source)
    add(parser, "--rerank-depth N", "results to re-rank; default: 100", type=int, default=100)


def run(args: argparse.Namespace) -> Iterator[Report]:
    from jaxwhiten.text import is_blank

    if args.query == ["-"]:
        args.query = []
    if any(map(is_blank, args.query)):
        raise InputError("The query is empty: pass a sentence to search for.")

    from jaxwhiten.search import load_index, rerank_hits

    index = load_index(args.index, model=args.model, engine=args.engine, read_only=True)
    among = None if args.among is None else as_stored(ids_in(args.among), index)
    reranker = None
    if args.rerank:
        from jaxwhiten.encoding import CrossEncoder

        reranker = CrossEncoder.from_pretrained(args.rerank)
    k = max(args.k, args.rerank_depth) if reranker else args.k
    # From stdin, each query is answered before the next is read.
    for query in args.query or (line.strip() for line in stdin_lines() if not is_blank(line)):
        query.encode()  # UnicodeEncodeError: bytes of an argument that are not UTF-8
        hits = index.search(query, k, among=among, where=args.where, hybrid=args.hybrid)
        if reranker:
            hits = rerank_hits(reranker, query, hits)[: args.k]
        lines = [f"{hit.score:.4f}\t{printable(hit.id)}\t{printable(hit.text or '')}{_metadata(hit)}" for hit in hits]
        head = [f"> {printable(query)}"] if len(args.query) != 1 else []
        yield Report("\n".join(head + lines), {"query": query, "hits": [hit.record() for hit in hits]})


def _metadata(hit: Hit) -> str:
    """The metadata as one more column."""
    if hit.metadata is None:
        return ""
    return "\t" + printable(json.dumps(hit.metadata, ensure_ascii=False))
