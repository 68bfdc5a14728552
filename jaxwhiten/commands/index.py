"""`jaxwhiten index INPUT --output DIR`: encodes texts and builds a search index of them."""

from __future__ import annotations

import argparse
import sys

from jaxwhiten.commands.arguments import (
    DEFAULT_MODEL,
    add,
    add_dimension,
    add_model,
    encode,
    load_encoder,
    load_whitening,
    named_values,
)
from jaxwhiten.commands.texts import add_texts, sentences
from jaxwhiten.errors import DataError, InputError, spelled, unknown_name

# What an index that is there has decided.
_FIXED = ("whitening", "whiten", "n_components", "bytes", "codes", "rescore", "option", "max_length")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_texts(parser, "texts")
    add(parser, "-o --output DIR", "the folder to write; an index already there is replaced", required=True)
    add_model(parser)
    add(parser, "--whitening FILE", "a saved whitening to put inside the index")
    add(parser, "--whiten", "fit a whitening on the texts themselves")
    add_dimension(parser)
    add(parser, "--bytes N", "keep each text in so many bytes, by the best code; default: float32", type=int)
    add(parser, "--codes CODES", "which code: spectrum, ubinary, int8, or pq, which FAISS trains")
    add(parser, "--rescore COPY", "float16 or int8: a copy on disk that scores the candidates of codes again")
    add(parser, "--backend BACKEND", "search backend; default: faiss-flat", default="faiss-flat")
    add(parser, "--option NAME=NUMBER", "of the backend, such as nprobe=10", action="append", default=[])
    whose = "encoded and coded as its own are; --model says only where its model has moved"
    add(parser, "--add", f"add the texts to the index that is there, {whose}")
    add(parser, "--no-cache", "do not keep the vectors in the cache")


def run(args: argparse.Namespace) -> None:
    if args.add:
        return _add(args)
    if args.whitening and args.whiten:
        raise InputError("--whitening names a whitening and --whiten fits one: give one of the two.")
    if args.n_components is not None and not (args.whitening or args.whiten):
        raise InputError("-k is the dimension that a whitening keeps: give --whiten or --whitening FILE with it.")
    options = named_values("--option", args.option, _value, "NAME=NUMBER, such as nprobe=10")

    from jaxwhiten.search import BACKENDS, build_index
    from jaxwhiten.whitening import Whitening

    if args.backend not in BACKENDS:  # before the texts are encoded
        raise unknown_name("search backend", args.backend, BACKENDS)
    texts, skipped = _texts(args)
    encoder = load_encoder(args)
    whitening = load_whitening(args.whitening, args, encoder) if args.whitening else None
    codes = args.codes
    if encoder.head.code is not None:
        if not (args.codes or args.bytes or args.whitening or args.whiten):
            codes = encoder.head.code.quantiser(mapped=True)
        encoder = encoder.without_code()
    prompt = encoder.prompt_for("document")
    vectors = encode(args, encoder, texts, "document")
    if args.whiten:
        whitening = Whitening(n_components=args.n_components).fit(vectors)
    index = build_index(
        vectors,
        args.backend,
        whitening=whitening,
        encoding=encoder.encoding(prompt=prompt),
        documents=texts,
        codes=codes,
        bytes=args.bytes,
        rescore=args.rescore,
        **options,
    )
    index.save(args.output)
    for note in index.notes:
        print(f"note: {note}", file=sys.stderr)
    kept = f"{index.dimension} dimensions"
    if index.codes is not None:
        kept = f"{index.codes['name']} codes of {index.codes['bytes']} bytes"
    print(f"{args.output}: {index.size:,} texts{skipped}, {kept}, {index.backend}, {index.nbytes / 1e6:.1f} MB")
    print(f'Next: jaxwhiten search {args.output} "a query"')


def _add(args: argparse.Namespace) -> None:
    given = [spelled(name) for name in _FIXED if getattr(args, name)]
    if given:
        raise InputError(f"--add takes everything from the index that is there: leave {', '.join(given)} out.")
    from jaxwhiten.commands.search import open_index
    from jaxwhiten.search import add_text

    texts, skipped = _texts(args)
    index, encoder = open_index(args.output, None if args.model == DEFAULT_MODEL else args.model)
    add_text(index, encoder, texts)
    index.save(args.output)
    print(f"{args.output}: {len(texts):,} texts added{skipped}, {index.size:,} in all, {index.nbytes / 1e6:.1f} MB")


def _texts(args: argparse.Namespace) -> tuple[list[str], str]:
    """The texts that are not blank, and what to say of those that are."""
    found = [text.strip() for text in sentences(args.input, args.format, args.column)]
    texts = [text for text in found if text]
    if not texts:
        raise DataError(f"{args.input}: no texts in it.")
    blank = len(found) - len(texts)
    return (
        texts,
        f" ({blank:,} blank ones left out; `encode` keeps them: remove them from the file to align the two)"
        if blank
        else "",
    )


def _value(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isalpha():  # nan and inf
        raise ValueError(text)
    number = float(text)
    return int(number) if number.is_integer() and "." not in text else number
