"""`jaxwhiten distil-static --model TEACHER --output FOLDER`: a table of token vectors that replaces an encoder."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxwhiten.commands.arguments import Output, Report, Source, add, add_model, add_tuned, load_encoder
from jaxwhiten.commands.texts import nonempty, sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "model folder to write, for --model of every command; sentence-transformers and model2vec"
    add(parser, "-o --output FOLDER", f"{what} load it, too", type=Output("model", folder=True), required=True)
    what = "sentences for token counts and for fitting the teacher's vectors: .txt (one per line),"
    what += " .tsv, .csv, .jsonl or .parquet, - for stdin; default: none, and Zipf's law, as for fewer than 300"
    add(parser, "--corpus FILE", what, type=Source)
    add(parser, "--column NAME", "text column of a table", action="append")
    add(parser, "-k --dimension K", "dimensions to keep; default: 256", dest="k", type=int, default=256)
    add(parser, "--gamma GAMMA", "power of the whitening, 0 to 1; default: 1", type=float, default=1.0)
    weight = "weight of a token of frequency p: A / (A + p); default: 0.001"
    add(parser, "--sif A", weight, type=float, default=1e-3)
    add(parser, "--no-fit", "do not fit the rows to the teacher's vectors")
    learned = "number of corpus sentences that the teacher encodes; default: 20000"
    add(parser, "--sentences N", learned, type=int, default=20_000)
    add(parser, "--half", "write float16, in half the bytes")
    add_model(parser)
    add_tuned(parser)


def run(args: argparse.Namespace) -> Report:
    corpus = None
    if args.corpus is not None:
        corpus = nonempty((t for t in sentences(args.corpus, None, args.column) if t.strip()), args.corpus)

    from jaxwhiten.encoding import Vocabulary, distil

    vocabulary = Vocabulary.read(load_encoder(args), corpus, sentences=args.sentences)
    fit = bool(vocabulary.drawn) and not args.no_fit
    static = distil(vocabulary, args.k, gamma=args.gamma, sif=args.sif, fit=fit)
    folder = static.save(args.output, dtype="float16" if args.half else None)
    size = (Path(folder) / "model.safetensors").stat().st_size
    text = f"{args.output}: {args.model} as a table of {size / 1e6:.1f} MB, {args.k} dimensions"
    return Report(text, {"output": args.output, "model": args.model, "bytes": size, "dimensions": args.k})
