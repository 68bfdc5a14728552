"""`jaxwhiten score DATA`: scores an encoder on one's own pairs, or queries and documents."""

from __future__ import annotations

import argparse
import dataclasses
import functools

from jaxwhiten.commands.arguments import (
    Report,
    Source,
    add,
    add_knobs,
    add_model,
    add_tuned,
    encode,
    knobs,
    listed,
    load_encoder,
    say_gamma,
)
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "data",
        "a .tsv, .csv, .jsonl or .parquet table with two sentences and a score in each row, or with the columns query"
        " and document (or positive); or a BEIR folder",
        type=Source,
    )
    names = "columns of the pairs; default: usual names, such as sentence1,sentence2,score"
    add(parser, "--columns A,B,SCORE", names, type=listed, default=())
    add(
        parser,
        "--corpus FILE",
        "more documents to search: .txt (one per line), .tsv, .csv, .jsonl or .parquet, or a folder of such files",
        type=Source,
    )
    add_model(parser)
    add_tuned(parser)
    add(parser, "--versus MODEL", "Hugging Face model ID or folder of an encoder to compare with", type=Source)
    add(parser, "--bytes N,N", "sizes of codes to score, with int8 and binary vectors", type=integers, default=())
    add(
        parser,
        "-k --dimension --k K,K",
        "dimensions of whitenings to fit on the texts; default: all, none with --bytes",
        type=integers,
        dest="n_components",
    )
    add_knobs(parser, fitting=True, dimension=False)
    add(parser, "--no-cache", "do not keep the vectors in the cache")


def integers(text: str) -> tuple[int, ...]:
    """Positive integers, separated by commas."""
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected positive integers, got {text}")
    return numbers


def run(args: argparse.Namespace) -> Report:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.io import to_json
    from jaxwhiten.scoring import evaluate, read
    from jaxwhiten.terminal import named

    data = read(args.data, args.columns)
    settings = knobs(args)
    ks = settings.pop("n_components", ())
    encoder = load_encoder(args)
    if encoder.view.head.whitening is None:
        ks = ks or (() if args.bytes else (0,))
    elif ks or settings:
        raise InputError(f"{args.model}: already includes a whitening, scored unchanged: omit the whitening options.")
    if args.versus:
        versus = Encoder.from_pretrained(args.versus, max_length=args.max_length)
    else:
        versus = None
    corpus = None if args.corpus is None else sentences(args.corpus)
    result = evaluate(
        encoder,
        data,
        encode=functools.partial(encode, args),
        bytes=args.bytes,
        k=ks,
        versus=versus,
        corpus=corpus,
        **settings,
    )
    result = dataclasses.replace(result, data=args.data)
    if "gamma" not in settings and encoder.view.head.whitening is None:
        say_gamma(encoder)
    return Report(named(str(result)), {**to_json(result), "measure": result.measure, "verdict": named(result.verdict)})
