"""`jaxwhiten index TEXTS INDEX`: encodes a file of texts, one a line, and builds a search index of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from jaxwhiten.errors import DataError, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("texts", help="a UTF-8 file with one text a line, plain or gzip")
    parser.add_argument("index", help="the folder to write; an index already there is replaced")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="hub id or folder")
    parser.add_argument("--pooling", default="auto", help="default: what the model's folder says")
    parser.add_argument("--max-length", type=int, metavar="TOKENS", help="default: what the model's folder says, or 64")
    parser.add_argument("--dtype", default="float32", help="float32 (default) or bfloat16")
    parser.add_argument("--whitening", metavar="FILE", help="a saved whitening to put inside the index")
    parser.add_argument("--whiten", action="store_true", help="fit a whitening on the texts themselves")
    parser.add_argument("-k", "--dimension", type=int, help="dimensions that the whitening keeps; default: all")
    parser.add_argument("--backend", default="faiss-flat", help="search backend; default: faiss-flat")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=NUMBER", help="of the backend, such as nprobe=10"
    )
    parser.add_argument("--no-cache", action="store_true", help="do not keep the vectors in the cache")


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Args:
      args: What `add_arguments` defines.
    """
    if args.whitening and args.whiten:
        raise InputError("--whitening names a whitening and --whiten fits one: give one of the two.")
    if args.dimension is not None and not (args.whitening or args.whiten):
        raise InputError("-k is the dimension that a whitening keeps: give --whiten or --whitening FILE with it.")
    options = _options(args.option)

    from jaxwhiten.encoding.encoder import Encoder
    from jaxwhiten.encoding.store import EmbeddingStore
    from jaxwhiten.search import BACKENDS, build_index, encoding_of
    from jaxwhiten.whitening.whitening import Whitening

    if args.backend not in BACKENDS:
        from jaxwhiten.errors import unknown_name

        raise unknown_name("search backend", args.backend, BACKENDS)
    texts, blank = _texts(args.texts)
    whitening = Whitening.load(args.whitening) if args.whitening else None
    encoder = Encoder.from_pretrained(args.model, pooling=args.pooling, max_length=args.max_length, dtype=args.dtype)
    vectors = encoder.encode(texts) if args.no_cache else EmbeddingStore().encode(encoder, texts)
    if args.whiten:
        whitening = Whitening(n_components=args.dimension).fit(vectors)
    elif whitening is not None and args.dimension is not None:
        whitening = whitening.with_params(n_components=args.dimension)
    index = build_index(
        vectors, args.backend, whitening=whitening, encoding=encoding_of(encoder), documents=texts, **options
    )
    index.save(args.index)
    for note in index.notes:
        print(f"note: {note}", file=sys.stderr)
    skipped = f" ({blank:,} blank lines left out)" if blank else ""
    print(
        f"{args.index}: {index.size:,} texts{skipped}, {index.dimension} dimensions, {index.backend},"
        f" {index.nbytes / 1e6:.1f} MB"
    )
    print(f'Next: jaxwhiten search {args.index} "a query"')


def _texts(path: str) -> tuple[list[str], int]:
    """The lines of a file that are not blank, and the number of those that are."""
    from jaxwhiten.datasets.textfile import line_blocks

    lines = [line.strip() for _, block in line_blocks(Path(path)) for line in block]
    texts = [line for line in lines if line]
    if not texts:
        raise DataError(f"{path}: no texts in it; expected one a line.")
    return texts, len(lines) - len(texts)


def _options(words: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            options[name] = {"true": True, "false": False}.get(value.lower()) if value.isalpha() else float(value)
        except ValueError:
            options[name] = None
        if not equals or options[name] is None:
            raise InputError(f"--option {word}: expected NAME=NUMBER, such as nprobe=10.")
        if isinstance(options[name], float) and options[name].is_integer() and "." not in value:
            options[name] = int(options[name])
    return options
