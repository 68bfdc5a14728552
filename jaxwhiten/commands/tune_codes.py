"""`jaxwhiten tune FILE --bytes N --documents TEXTS`: γ and a code of N bytes, chosen without labels."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from jaxwhiten.commands.arguments import encode
from jaxwhiten.commands.texts import FORMATS, sentences
from jaxwhiten.errors import DataError, InputError, spelled

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.search import CodeTuning, Trial
    from jaxwhiten.whitening import Whitening

CODES = "pq,rabitq,sq4,ubinary"
_LABELLED = ("split", "held_out", "pairs", "held_out_pairs", "k", "beta", "plot")
_OWN = ("documents", "format", "column", "codes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that only go with --bytes."""
    parser.add_argument(
        "--bytes",
        type=int,
        metavar="N",
        help="choose γ and a code of so many bytes instead, without labels: by how well documents are found by 70 %% of"
        " their words",
    )
    parser.add_argument("--documents", metavar="FILE", help="those documents: texts, as `jaxwhiten index` takes them")
    parser.add_argument("--format", metavar="FORMAT", help=f"of the documents: {', '.join(FORMATS)}")
    parser.add_argument("--column", action="append", metavar="NAME", help="of a table of documents")
    parser.add_argument(
        "--codes", metavar="A,B", help=f"codes to try beside spectrum, as `index` knows them; default: {CODES}"
    )
    parser.add_argument("--limit", type=int, default=20_000, metavar="N", help="documents at most; default: 20000")
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="of them asked for; default: 1000")


def check(args: argparse.Namespace) -> None:
    """Refuses arguments of one way of tuning together with the other."""
    wrong = [spelled(name) for name in (_OWN if args.bytes is None else _LABELLED) if getattr(args, name)]
    if wrong and args.bytes is None:
        raise InputError(f"{', '.join(wrong)}: give --bytes with it.")
    if wrong:
        raise InputError(f"--bytes chooses γ and a code without labels: leave {', '.join(wrong)} out.")
    if args.bytes is not None and not args.documents:
        raise InputError("--bytes asks for documents by some of their words: give --documents FILE.")
    if args.limit < 1 or args.queries < 1:
        raise InputError("--limit and --queries are at least 1.")


def run(args: argparse.Namespace, whitening: Whitening, encoder: Encoder) -> None:
    """Chooses, writes the whitening with the γ chosen, and says what was seen."""
    import numpy as np

    from jaxwhiten.commands.inspect import print_json
    from jaxwhiten.search import pseudo_queries, tune_codes
    from jaxwhiten.whitening import GRID

    texts = [text for text in sentences(args.documents, args.format, args.column) if text.strip()]
    if not texts:
        raise DataError(f"{args.documents}: no texts in it.")
    held = len(texts)
    texts = [texts[i] for i in np.linspace(0, held - 1, min(held, args.limit)).astype(int)]
    queries, sources = pseudo_queries(texts, args.queries)
    documents = encode(args, encoder, texts, "document")
    asked = encode(args, encoder, queries, "query")
    codes = [name for name in (CODES if args.codes is None else args.codes).split(",") if name]
    found = tune_codes(documents, asked, sources, whitening, args.bytes, codes=codes, gammas=args.gamma or GRID)
    best = found.best
    if args.output:
        tuned = {"on": args.documents, **best._asdict(), "queries": found.queries}
        whitening.with_params(gamma=best.gamma).save(args.output, {"tuned": tuned})
        print(f"{args.output}: whitening with γ={best.gamma:g}", file=sys.stderr)
    if args.json:
        report = {
            **found._asdict(),
            "on": args.documents,
            "documents": len(texts),
            "best": best._asdict(),
            "trials": [trial._asdict() for trial in found.trials],
        }
        print_json(report)
    else:
        print("\n".join(_lines(found, args, len(texts), held, documents.shape[1])))


def _lines(found: CodeTuning, args: argparse.Namespace, searched: int, held: int, width: int) -> list[str]:
    def line(trial: Trial) -> str:
        chosen = "  ← chosen" if trial == found.best else ""
        return (
            f"{trial.code:<10}{trial.bytes:>6}{trial.gamma:>7.2f}{trial.cost:>+10.2f}   {trial.low:+.2f} to"
            f" {trial.high:+.2f}{chosen}"
        )

    best, of = found.best, f" of {held:,}" if held > searched else ""
    lines = [
        f"{found.queries:,} documents asked for by 70 % of their words, among {searched:,}{of}. MRR@10 × 100 of"
        f" float32 ({4 * width:,} bytes): {found.mrr:.2f}",
        "",
        f"{'code':<10}{'bytes':>6}{'γ':>7}{'cost':>10}   95 % interval",
        *map(line, found.trials),
        *(f"{name}: left out, {reason}" for name, reason in found.left_out.items()),
        "",
        f"The spectrum of the fit asks for γ={found.usual:g}; what is better only by chance is not taken.",
        f"{best.code} of {best.bytes} bytes, γ={best.gamma:g}: expect {best.cost:+.2f} ({best.low:+.2f} to"
        f" {best.high:+.2f}) against float32 on such queries.",
    ]
    if args.output:
        size = "" if best.code == "ubinary" else f" --bytes {best.bytes}"
        whitened = "" if best.code == "ubinary" else f" --whitening {args.output}"
        lines.append(f"Next: jaxwhiten index {args.documents}{whitened} --codes {best.code}{size} -o idx/")
    return lines
