"""`jaxwhiten distil-static --model TEACHER --output FOLDER`: a table of token vectors in the place of an encoder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jaxwhiten.commands.arguments import add_model, load_encoder
from jaxwhiten.commands.texts import nonempty, sentences
from jaxwhiten.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="the model folder to write, which every command takes as its --model; sentence-transformers and model2vec"
        " load it, too",
    )
    parser.add_argument(
        "--corpus",
        metavar="FILE",
        help="sentences to count tokens in, and to learn from the teacher's vectors of them: .txt with one per line,"
        " .tsv, .csv, .jsonl or .parquet, - for stdin; default: none, and Zipf's law",
    )
    parser.add_argument("--column", action="append", metavar="NAME", help="of a table with several")
    parser.add_argument("-k", "--dimension", dest="k", type=int, default=256, metavar="K", help="default: 256")
    parser.add_argument("--gamma", type=float, default=1.0, help="power of the whitening, 0 to 1; default: 1")
    parser.add_argument(
        "--sif",
        type=float,
        default=1e-3,
        metavar="A",
        help="weight of a token of frequency p: A / (A + p); default: 0.001",
    )
    parser.add_argument("--no-fit", action="store_true", help="do not move the rows towards the teacher's vectors")
    learned = "of the corpus that the teacher reads; default: 20000"
    parser.add_argument("--sentences", type=int, default=20_000, metavar="N", help=learned)
    parser.add_argument("--half", action="store_true", help="write float16, in half the bytes")
    add_model(parser)


def run(args: argparse.Namespace) -> None:
    if args.sentences < 1:
        raise InputError(f"--sentences is {args.sentences}; it must be at least 1.")
    corpus = None
    if args.corpus is not None:
        corpus = nonempty((t for t in sentences(args.corpus, None, args.column) if t.strip()), args.corpus)

    from jaxwhiten.encoding import Vocabulary, distil

    vocabulary = Vocabulary.read(load_encoder(args), corpus, sentences=args.sentences)
    fit = corpus is not None and not args.no_fit
    static = distil(vocabulary, args.k, gamma=args.gamma, sif=args.sif, fit=fit)
    folder = static.save(args.output, dtype="float16" if args.half else None)
    size = (Path(folder) / "model.safetensors").stat().st_size / 1e6
    print(f"{args.output}: {args.model} as a table of {size:.1f} MB, {args.k} dimensions", file=sys.stderr)
