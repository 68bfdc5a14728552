"""`jaxwhiten export --output DIR`: an encoder with its whitening as other libraries load it."""

from __future__ import annotations

import argparse
import sys

from jaxwhiten.commands.arguments import (
    add,
    add_knobs,
    add_model,
    check_folder,
    knobs,
    load_encoder,
    load_whitening,
    values_of,
    whitened_encoder,
)
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import InputError, check_name

FORMATS = ("sentence-transformers", "onnx", "faiss", "int8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "--format FORMAT", f"{', '.join(FORMATS)}; default: {FORMATS[0]}", default=FORMATS[0])
    add(parser, "-o --output DIR", "the folder to write", required=True)
    add(parser, "--whitening FILE", "a saved whitening; default: the one in the model's folder")
    add_knobs(parser)
    add_model(parser)
    add(parser, "--sentences FILE", "for int8: a file of sentences to take ranges of")
    add(parser, "--name NAME", "of the model, for its card; default: the folder's")
    add(parser, "--score TASK=POINTS", 'for the card, such as "STS-B test=71.3"', action="append", default=[])


def run(args: argparse.Namespace) -> None:
    check_name("format", args.format, FORMATS)
    if args.format != FORMATS[0] and (args.score or args.name):
        raise InputError(f"--score and --name are for the card of --format {FORMATS[0]}.")
    if (args.format == "int8") != (args.sentences is not None):
        raise InputError("--format int8 takes ranges of sentences: give --sentences FILE with it, and only with it.")
    check_folder(args.output)
    scores = values_of("--score", args.score, float, 'TASK=POINTS, such as "STS-B test=71.3"')

    from jaxwhiten import export

    if args.format == "faiss":
        whitening = load_whitening(args.whitening, args) if args.whitening else load_encoder(args).head.whitening
        if whitening is None:
            raise InputError(f"{args.model}: no whitening in it; give --whitening FILE.")
        changes = {} if args.whitening else knobs(args)
        export.save_faiss(args.output, whitening.with_params(**changes) if changes else whitening)
        what = "whitening.vt (LinearTransform) and index.faiss (an empty index that whitens)"
    elif args.format == "onnx":
        export.save_onnx(args.output, whitened_encoder(args))
        what = "model.onnx and the tokenizer"
    elif args.format == "int8":
        texts = list(sentences(args.sentences))
        made = export.save_int8(args.output, whitened_encoder(args), texts)
        what = (
            f"a sentence-transformers folder with int8 weights, {len(made.kept)} of {made.products} inputs of products"
            f" left as they were, mean cosine {made.cosine:.4f}: load it with --engine openvino --dtype int8"
        )
    else:
        export.export_sentence_transformer(args.output, whitened_encoder(args), name=args.name, scores=scores)
        what = "a sentence-transformers folder; README.md is its card"
    print(f"{args.output}: {what}", file=sys.stderr)
