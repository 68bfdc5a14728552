"""`jaxwhiten score CANDIDATES REFERENCES`: BERTScore of the lines of one file against those of another."""

from __future__ import annotations

import argparse
import json

from jaxwhiten.commands.arguments import DEFAULT_MODEL, add
from jaxwhiten.commands.texts import FORMATS, nonempty, sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "candidates", ".txt with a text on each line, or a table; - for stdin")
    add(parser, "references", "the texts they are compared with, in the same order")
    add(parser, "--format FORMAT", f"of both: {', '.join(FORMATS)}; default: by the ending")
    add(parser, "--column NAME", "of a table; default: the only one, or sentence, or text")
    add(parser, "--model MODEL", f"hub id or folder; default: {DEFAULT_MODEL}", default=DEFAULT_MODEL)
    add(parser, "--max-length TOKENS", "default: the longest that the model takes", type=int)
    add(parser, "--dtype DTYPE", "float32 or bfloat16; default: float32")
    add(parser, "--layer N", "hidden state to compare, 0 to the model's last (default)", type=int)
    add(parser, "--idf", "weight tokens by their rarity in the references")
    what = "scores that become 0: a file of LAYER,P,R,F for this model, or the three numbers P,R,F"
    add(parser, "--baseline FILE", what)
    add(parser, "--each", "a line P, R, F1 for every pair, in place of the means")
    add(parser, "--json", "one JSON object with the means, and with --each all scores")


def run(args: argparse.Namespace) -> None:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.encoding.bertscore import bert_score, read_baseline
    from jaxwhiten.models import resolve_folder
    from jaxwhiten.models.loading import load_config, transformer_folder

    columns = [args.column] if args.column else None
    texts = [list(nonempty(sentences(path, args.format, columns), path)) for path in (args.candidates, args.references)]
    longest = args.max_length or load_config(transformer_folder(resolve_folder(args.model))).longest_input
    encoder = Encoder.from_pretrained(args.model, pooling="mean", max_length=longest, dtype=args.dtype)
    layer = encoder.config.num_layers if args.layer is None else args.layer
    try:
        baseline = [float(number) for number in args.baseline.split(",")] if args.baseline else None
    except ValueError:
        baseline = read_baseline(args.baseline, layer)
    found = bert_score(encoder, *texts, layer=layer, idf=args.idf, baseline=baseline)
    means = {name: float(values.mean()) for name, values in found._asdict().items()}
    if args.json:
        each = {name: values.tolist() for name, values in found._asdict().items()} if args.each else {}
        facts = {"model": encoder.name, "layer": layer, "idf": args.idf, "baseline": baseline, "pairs": len(texts[0])}
        print(json.dumps({**facts, **means, **({"each": each} if each else {})}, ensure_ascii=False))
    elif args.each:
        for values in zip(*found, strict=True):
            print("\t".join(f"{value:.6f}" for value in values))
    else:
        named = zip(("P", "R", "F1"), means.values(), strict=True)
        print(f"{', '.join(f'{name} {value:.6f}' for name, value in named)}  ({len(texts[0]):,} pairs, layer {layer})")
