"""`jaxwhiten score PAIRS`: the correlation of similarities with people's scores, raw, whitened and coded."""

from __future__ import annotations

import argparse
import dataclasses
import json

from jaxwhiten.commands.arguments import add, add_columns, add_knobs, add_model, knobs, load_encoder
from jaxwhiten.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "pairs", "two sentences and a score in each row: a .tsv, .csv, .jsonl or .parquet file")
    add_columns(parser)
    add_model(parser)
    add_knobs(parser, fitting=True)
    add(parser, "--json", "one JSON object")


def run(args: argparse.Namespace) -> None:
    from jaxwhiten import io
    from jaxwhiten.datasets import read_pairs
    from jaxwhiten.encoding.evaluation import evaluate
    from jaxwhiten.whitening import ScoredPairs

    pairs, settings = read_pairs(args.pairs, args.columns), knobs(args)
    encoder = load_encoder(args)
    floats, fitted_on = encoder.without_code(), "its own sentences"
    raw, sides = floats.before_whitening(), (pairs.sentence1, pairs.sentence2)
    texts = list(dict.fromkeys([*sides[0], *sides[1]]))
    row, vectors = {text: row for row, text in enumerate(texts)}, raw.encode(texts)
    ways = {"raw": raw, "whitened": floats}
    if floats.head.whitening is None:
        ways["whitened"] = floats.whiten(vectors, k=settings.pop("n_components", None), **settings)
        fitted_on = f"these {len(texts):,} sentences, without their scores"
    elif settings:
        raise InputError(f"{args.model}: has a whitening of its own, which is scored as it is: leave its settings out.")
    if encoder.head.code is not None:
        ways["coded"] = encoder
    found = {}
    for name, way in ways.items():
        given = way.head.finished(vectors, raw.head)
        first, second = (given[[row[text] for text in side]] for side in sides)
        found[name] = way.dimension, evaluate(way, ScoredPairs(first, second, pairs.score))
    if args.json:
        rows = {name: {"width": width, **dataclasses.asdict(e)} for name, (width, e) in found.items()}
        return print(json.dumps(io.to_json({"fitted_on": fitted_on, "rows": rows}), ensure_ascii=False))
    print(f"{args.pairs}: {len(pairs):,} pairs; {encoder.name}, whitening fitted on {fitted_on}\n")
    print(f"{'':10}{'width':>6}{'Spearman × 100':>16}{'95 % interval':>16}{'Pearson × 100':>15}")
    for name, (width, e) in found.items():
        interval = f"{e.interval.low:.2f}–{e.interval.high:.2f}"
        print(f"{name:10}{width:6}{e.spearman:16.2f}{interval:>16}{e.pearson:15.2f}")
