"""`jaxwhiten drift INDEX INPUT`: whether the whitening or code of an index still fits new texts."""

from __future__ import annotations

import argparse
import random
from typing import Any

from jaxwhiten.commands.arguments import Report, Source, add
from jaxwhiten.commands.texts import add_texts, nonempty, sentences
from jaxwhiten.errors import MismatchError

ADVICE = {
    "fine": "the current fit suits the new texts.",
    "refit soon": "plan to refit on old and new texts and rebuild the index.",
    "refit now": "refit on old and new texts and rebuild the index.",
}
_UNFITTED = "they differ from the documents, but the index has no whitening or code to refit."
_DOCUMENTS = 10_000  # of an index without a fit, drawn at random


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "index", "a folder that `jaxwhiten index` wrote", type=Source)
    add_texts(parser, "new texts")
    add(parser, "--model MODEL", "Hugging Face model ID or folder of the encoder, if it has moved", type=Source)


def run(args: argparse.Namespace) -> Report:
    from jaxwhiten.arrays import normalize
    from jaxwhiten.codes import SpectrumCode, drift
    from jaxwhiten.search import load_index
    from jaxwhiten.whitening import Whitening

    texts = nonempty((text for text in sentences(args.input, args.format, args.column) if text.strip()), args.input)
    index = load_index(args.index, model=args.model)
    assert index.views is not None
    view = index.views.documents
    fitted = index.fitted
    what = "texts of the fit"
    if not isinstance(fitted, Whitening | SpectrumCode):
        fitted = view.head.whitening
        if fitted is not None:
            view = view.raw
        elif index.documents is None:
            raise MismatchError(
                f"{args.index}: neither the index nor its model has a whitening or a spectrum code, and the index keeps"
                " no texts, so there is nothing to compare with. Build the index from texts, or with --bytes."
            )
        else:
            sample = random.Random(0).sample(list(index.documents), min(_DOCUMENTS, index.size))
            what = "documents"
            fitted = Whitening(gamma=0).fit(view(sample))
    vectors: Any = view.blocks(texts)
    if fitted is index.fitted and isinstance(fitted, SpectrumCode) and index.prepare.unit_length:
        vectors = map(normalize, vectors)
    result = drift(fitted, vectors)
    compared = f"{fitted.n_samples_seen_:,} {what}"
    rows = {m.name: {"interval": [m.low, m.high], **m._asdict()} for m in result.measures}
    lines = [
        f"{m.name:<26} {m.value:7.3f} ({m.low:.3f} to {m.high:.3f})  before {m.before:.3f}  {m.verdict}"
        for m in result.measures
    ]
    if what == "documents" and result.verdict != "fine":
        advice = _UNFITTED
    else:
        advice = ADVICE[result.verdict]
    lines.append(f"{result.n:,} new texts, compared with {compared}: {result.verdict}: {advice}")
    facts = {"n": result.n, "compared_with": compared, "verdict": result.verdict, "measures": rows}
    return Report("\n".join(lines), facts)
