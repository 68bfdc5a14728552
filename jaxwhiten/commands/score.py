"""`jaxwhiten score PAIRS`: the correlation of similarities with people's scores: raw, whitened, coded, TF-IDF."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections import Counter
from typing import Any

from jaxwhiten import records
from jaxwhiten.commands.arguments import add, add_columns, add_knobs, add_model, knobs, load_encoder
from jaxwhiten.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "pairs", "two sentences and a score in each row: a .tsv, .csv, .jsonl or .parquet file")
    add_columns(parser)
    add_model(parser)
    add_knobs(parser, fitting=True)
    add(parser, "--json", "one JSON object")


def run(args: argparse.Namespace) -> None:
    import numpy as np

    from jaxwhiten.datasets import read_pairs
    from jaxwhiten.encoding.evaluation import evaluate
    from jaxwhiten.metrics import spearman
    from jaxwhiten.metrics.bootstrap import percentile_interval, spearman_resamples
    from jaxwhiten.metrics.scores import UNDEFINED
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
    found: dict[str, dict[str, Any]] = {}
    similarities = []
    for name, way in ways.items():
        given = way.head.finished(vectors, raw.head)
        first, second = (given[[row[text] for text in side]] for side in sides)
        e = evaluate(way, ScoredPairs(first, second, pairs.score))
        found[name] = {"width": way.dimension, **dataclasses.asdict(e)}
        similarities.append(way.similarity_pairwise(first, second))
    words = tfidf(texts)
    left, right = (words[[row[text] for text in side]] for side in sides)
    similarities.append(np.asarray(left.multiply(right).sum(axis=1)).ravel())
    with np.errstate(invalid="ignore", divide="ignore"):
        told = 100 * spearman(similarities[-1], pairs.score), 100 * np.corrcoef(similarities[-1], pairs.score)[0, 1]
    found["tfidf"] = {"width": words.shape[1], "spearman": told[0], "pearson": told[1]}
    drawn = spearman_resamples(np.stack(similarities), pairs.score, [""] * len(pairs))["all"]
    for values, of_row in zip(found.values(), drawn, strict=True):
        values.setdefault("interval", percentile_interval(of_row))
        gain = values["spearman"] - found["raw"]["spearman"]
        values["versus_raw"] = {"value": gain, "interval": percentile_interval(of_row - drawn[0])}
    if args.json:
        return print(json.dumps(records.to_json({"fitted_on": fitted_on, "rows": found}), ensure_ascii=False))
    print(f"{args.pairs}: {len(pairs):,} pairs; {encoder.name}, whitening fitted on {fitted_on}\n")
    print(f"{'':10}{'width':>6}{'Spearman × 100':>16}{'95 % interval':>16}{'Pearson × 100':>15}{'minus raw':>27}")
    for name, values in found.items():
        ends, (gain, (low, high)) = "{:.2f}–{:.2f}".format(*values["interval"]), values["versus_raw"].values()
        change = "" if name == "raw" or np.isnan(gain) else f"{gain:+.2f} ({low:+.2f} to {high:+.2f})"
        figures = f"{values['spearman']:16.2f}{ends:>16}{values['pearson']:15.2f}{change:>27}"
        figures = f"  {UNDEFINED}" if np.isnan(values["spearman"]) else figures
        print(f"{name:10}{values['width']:6}{figures}".rstrip())


def tfidf(texts: list[str]) -> Any:
    """Sparse rows of unit length: 1 + log of a word's count times its smoothed idf in these texts."""
    import numpy as np
    from scipy.sparse import csr_matrix, diags

    number: dict[str, int] = {}
    bags = [Counter(number.setdefault(w, len(number)) for w in re.findall(r"\w+", text.lower())) for text in texts]
    columns, counts = (np.array([x for bag in bags for x in part(bag)]) for part in (dict.keys, dict.values))
    starts = np.cumsum([0, *map(len, bags)])
    idf = np.log((1 + len(texts)) / (1 + np.bincount(columns.astype(int)))) + 1
    weights = csr_matrix((1 + np.log(counts), columns, starts), (len(texts), len(number))) @ diags(idf)
    lengths = np.sqrt(weights.multiply(weights).sum(axis=1).A1)
    return diags(1 / np.maximum(lengths, np.finfo(float).tiny)) @ weights
