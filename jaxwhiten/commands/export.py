"""`jaxwhiten export --format F --output DIR`: an encoder with its whitening as other libraries load it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import add_knobs, add_model, check_encoder, knobs, load_encoder, load_whitening
from jaxwhiten.errors import InputError, unknown_name

if TYPE_CHECKING:
    from jaxwhiten.whitening.whitening import Whitening

FORMATS = ("sentence-transformers", "faiss", "onnx", "hub")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--format", required=True, metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument("--whitening", metavar="FILE", help="a saved whitening; faiss and hub need one")
    add_knobs(parser)
    add_model(parser)
    parser.add_argument("--name", help="of the model, for the card of a hub folder; default: the folder's")
    parser.add_argument(
        "--score", action="append", default=[], metavar="TASK=POINTS", help='for the card, such as "STS-B test=71.3"'
    )


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Args:
      args: What `add_arguments` defines.
    """
    if args.format not in FORMATS:
        raise unknown_name("format", args.format, FORMATS)
    if args.whitening is None and (args.format in ("faiss", "hub") or knobs(args)):
        raise InputError(f"--format {args.format} with these options needs a whitening: give --whitening FILE.")
    if args.format != "hub" and (args.score or args.name):
        raise InputError("--score and --name are for the card of --format hub.")
    scores = _scores(args.score)

    from jaxwhiten import export

    if args.format == "faiss":
        export.save_faiss(args.output, load_whitening(args.whitening, args))
        _done(args.output, "whitening.vt (LinearTransform) and index.faiss (an empty index that whitens)")
        return
    whitening = _whitening(args)
    encoding = {"pooling": args.pooling, "max_length": args.max_length}
    if args.format == "hub" and whitening is not None:
        export.save_hub_folder(args.output, args.model, whitening, name=args.name, scores=scores, **encoding)
        _done(args.output, "a folder to upload; README.md is its card")
    elif args.format == "onnx":
        export.save_onnx(args.output, args.model, whitening=whitening, **encoding)
        _done(args.output, "model.onnx and the tokenizer")
    else:
        export.export_sentence_transformer(args.output, args.model, whitening=whitening, **encoding)
        _done(args.output, "a sentence-transformers folder")


def _whitening(args: argparse.Namespace) -> Whitening | None:
    """The whitening, checked against the encoder where the file says what it was fitted with."""
    if args.whitening is None:
        return None
    whitening = load_whitening(args.whitening, args)
    if whitening.provenance.get("fingerprint"):
        check_encoder(args.whitening, whitening.provenance, load_encoder(args))
    return whitening


def _scores(words: list[str]) -> dict[str, float]:
    scores = {}
    for word in words:
        task, _, points = word.rpartition("=")
        try:
            scores[task] = float(points)
        except ValueError:
            task = ""
        if not task:
            raise InputError(f'--score {word}: expected TASK=POINTS, such as "STS-B test=71.3".')
    return scores


def _done(folder: str, what: str) -> None:
    print(f"{folder}: {what}", file=sys.stderr)
