"""`jaxwhiten search INDEX QUERY...`: the texts of an index nearest to each query, from a loaded index."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from jaxwhiten.errors import InputError, MismatchError

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.search import Index


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", help="a folder that `jaxwhiten index` wrote")
    parser.add_argument("query", nargs="*", help="queries; without any they are read from stdin, one per line")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="results per query; default: 10")
    parser.add_argument("--model", help="hub id or folder of the encoder, where it has moved since")
    parser.add_argument("--engine", help="jax, or openvino on CPUs; default: what the texts were encoded with")
    parser.add_argument("--rerank", metavar="FOLDER", help="a cross-encoder that puts the results in order")
    parser.add_argument(
        "--rerank-depth", type=int, default=100, metavar="N", help="results that it reads; default: 100"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per query")


def open_index(path: str, model: str | None = None, engine: str | None = None) -> tuple[Index, Encoder]:
    """An index, and the encoder that it says its texts were encoded with; `model` says where that is now.

    In float32 one `engine` may take the place of another.
    """
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.search import load_index

    index = load_index(path)
    if index.encoding is None:
        raise MismatchError(
            f"{path}: the index does not say how its texts were encoded, so no text can be encoded for it."
            " Build it with `jaxwhiten index`."
        )
    told = {"dtype": "float32", "engine": "jax"} | index.encoding
    return index, Encoder.from_pretrained(
        model or told["model"],
        pooling=told["pooling"] or "auto",
        max_length=told["max_length"],
        dtype=told["dtype"],
        engine=engine or told["engine"],
    )


def run(args: argparse.Namespace) -> None:
    if not all(query.strip() for query in args.query):
        raise InputError("The query is empty: give a sentence to search for.")

    from jaxwhiten.encoding import CrossEncoder
    from jaxwhiten.search import rerank_hits, search_text

    index, encoder = open_index(args.index, args.model, args.engine)
    reranker = CrossEncoder.from_pretrained(args.rerank) if args.rerank else None
    k = min(max(args.k, args.rerank_depth) if reranker else args.k, index.size)
    # From stdin each query is answered before the next is read.
    for query in args.query or filter(None, map(str.strip, iter(sys.stdin.readline, ""))):
        (hits,) = search_text(index, encoder, [query], k)
        hits = rerank_hits(reranker, query, hits)[: args.k] if reranker else hits
        if args.json:
            print(json.dumps({"query": query, "hits": [hit._asdict() for hit in hits]}, ensure_ascii=False))
        else:
            if len(args.query) != 1:
                print(f"> {query}")
            for hit in hits:
                print(f"{hit.score:.4f}\t{hit.id}\t{'' if hit.text is None else hit.text}")
        sys.stdout.flush()
