"""`jaxwhiten drift INDEX INPUT`: whether the whitening or code of an index still fits new texts."""

from __future__ import annotations

import argparse
import json

from jaxwhiten.commands.arguments import add
from jaxwhiten.commands.texts import add_texts, nonempty, sentences
from jaxwhiten.errors import MismatchError

ADVICE = {
    "fine": "what was fitted fits the new texts.",
    "refit soon": "fit again on old and new texts, and build the index anew, when there is time for it.",
    "refit now": "fit again on old and new texts, and build the index anew.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "index", "a folder that `jaxwhiten index` wrote")
    add_texts(parser, "new texts")
    add(parser, "--model MODEL", "hub id or folder of the encoder, if it has moved")
    add(parser, "--json", "one JSON object")


def run(args: argparse.Namespace) -> None:
    from jaxwhiten.codes import SpectrumCode, drift
    from jaxwhiten.commands.search import open_index
    from jaxwhiten.whitening import Whitening

    texts = nonempty((text for text in sentences(args.input, args.format, args.column) if text.strip()), args.input)
    index, encoder = open_index(args.index, args.model)
    encoder, fitted = encoder.without_code(), index.fitted
    if fitted is None:
        fitted, encoder = encoder.head.whitening, encoder.before_whitening()
    if not isinstance(fitted, Whitening | SpectrumCode):
        raise MismatchError(
            f"{args.index}: neither the index nor its model keeps a whitening or a spectrum code, so there is no fit to"
            " compare with. Build the index with --bytes, or with a model folder that `jaxwhiten fit` wrote."
        )
    found = drift(fitted, encoder.moments(texts, prompt=encoder.prompt_for("document")))
    if args.json:
        measures = {m.name: {"value": m.value, "before": m.before, "verdict": m.verdict} for m in found.measures}
        print(json.dumps({"n": found.n, "verdict": found.verdict, "measures": measures}))
        return
    for measure in found.measures:
        print(f"{measure.name:<26} {measure.value:7.3f}  before {measure.before:.3f}  {measure.verdict}")
    print(f"{found.n:,} new texts: {found.verdict}: {ADVICE[found.verdict]}")
