"""`jaxwhiten tune FILE`: finds the best k, β and γ for a whitening or moments file with a few scored pairs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from jaxwhiten import io, records
from jaxwhiten.commands.arguments import add, add_columns, add_model, check_plot, encode, load_encoder
from jaxwhiten.errors import InputError, check_name

if TYPE_CHECKING:
    from jaxwhiten.datasets import Pairs
    from jaxwhiten.whitening import Tuning

_ROWS = ("not_whitened", "own", "best")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "file", "a whitening or moments file")
    add_model(parser, default=None)
    add(parser, "--task TASK", "STS task whose pairs are used; default: STS-B", default="STS-B")
    add(parser, "--split SPLIT", "split to tune on; default: dev, or the only one")
    add(parser, "--held-out SPLIT", "split to score as well, without tuning on it; default: test")
    add(parser, "--data-dir DIR", "SentEval-style folder; default: $JAXWHITEN_DATA_DIR, or a download")
    add(parser, "--pairs FILE", "your own pairs to tune on: a .tsv, .csv, .jsonl or .parquet table")
    add(parser, "--held-out-pairs FILE", "your own pairs to score as well, without tuning on them")
    add_columns(parser)
    add(parser, "-k K", "default: powers of two, and all dimensions", type=int, nargs="+")
    add(parser, "--beta B", "default: 0 0.25 0.5 0.75 1", type=float, nargs="+")
    add(parser, "--gamma G", "default: 0 0.25 0.5 0.75 1", type=float, nargs="+")
    add(parser, "-o --output FILE", "write the whitening with the best setting")
    add(parser, "--plot PNG", "draw the scores")
    add(parser, "--json", "one JSON object with the whole grid")
    add(parser, "--no-cache", "do not keep the vectors in the cache")


def run(args: argparse.Namespace) -> None:
    from jaxwhiten.commands.inspect import load_fitted
    from jaxwhiten.plots import plot_tuning
    from jaxwhiten.whitening import GRID, ScoredPairs, Whitening, tune

    check_plot(args.plot)
    if args.output:
        io.check_file(args.output, "whitening")
    kind, whitening = load_fitted(args.file)
    if not isinstance(whitening, Whitening):
        raise InputError(f"{args.file}: contains a {kind!r} code; expected a whitening or moments.")
    (name, pairs), held = _pairs(args)
    if args.model is None and whitening.provenance["model"] is None:
        raise InputError(f"{args.file}: does not record its encoder: specify --model and --pooling.")
    encoder = load_encoder(args, whitening.provenance)
    encoder.check_whitening(whitening, args.file, "document")

    def scored(part: Pairs) -> ScoredPairs:
        first, second = (encode(args, encoder, side, "document") for side in (part.sentence1, part.sentence2))
        return ScoredPairs(first, second, part.score)

    held_out = scored(held[1]) if held else None
    betas, gammas = args.beta or GRID, args.gamma or GRID
    tuning = tune(whitening, scored(pairs), held_out=held_out, ks=args.k, betas=betas, gammas=gammas)
    for warning in tuning.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    best = tuning.best
    if args.output:
        tuned = {"on": name, **best._asdict(), "not_whitened": tuning.baseline._asdict()}
        k = best.n_components if best.n_components < whitening.n_features_in_ else None
        changes = {"n_components": k, "beta": best.beta, "gamma": best.gamma}
        whitening.with_params(**changes).save(args.output, {"tuned": tuned})
        print(f"{args.output}: whitening with the best setting", file=sys.stderr)
    if args.plot:
        plot_tuning(tuning, f"{encoder.name}, {encoder.pooling}, {name}", args.plot)
        print(f"{args.plot}: plot of the grid", file=sys.stderr)
    if args.json:
        report = {
            "on": name,
            "pairs": len(pairs),
            "held_out": {"on": held[0], "pairs": len(held[1])} if held else None,
            "best": best._asdict(),
            "own": tuning.own._asdict(),
            "not_whitened": tuning.baseline._asdict(),
            "intervals": dict(zip(_ROWS, tuning.intervals, strict=True)),
            "minus_not_whitened": dict(zip(_ROWS, tuning.gains, strict=True)),
            "warnings": list(tuning.warnings),
            "grid": [row._asdict() for row in tuning.rows],
        }
        print(json.dumps(records.to_json(report), ensure_ascii=False))
    else:
        print("\n".join(_lines(tuning, name, len(pairs), held, encoder.dimension)))


def _pairs(args: argparse.Namespace) -> tuple[tuple[str, Pairs], tuple[str, Pairs] | None]:
    """The pairs to tune on and the held-out pairs, each with a name."""
    from jaxwhiten.datasets import load_sts, read_pairs

    if args.pairs:
        if args.split or args.held_out:
            raise InputError("--split and --held-out are splits of a task; with --pairs use --held-out-pairs.")
        held = read_pairs(args.held_out_pairs, args.columns) if args.held_out_pairs else None
        return (args.pairs, read_pairs(args.pairs, args.columns)), (args.held_out_pairs, held) if held else None
    if args.held_out_pairs:
        raise InputError("--held-out-pairs requires --pairs; for a task use --held-out SPLIT.")
    splits = load_sts(args.task, args.data_dir).splits
    for split in filter(None, (args.split, args.held_out)):
        check_name(f"split of {args.task}", split, splits)
    split = args.split or ("dev" if "dev" in splits else next(iter(splits)))
    held_out = args.held_out or ("test" if "test" in splits and split != "test" else None)
    if held_out == split:
        raise InputError(f"--held-out {held_out} is the split used for tuning: specify a different one.")
    return (f"{args.task} {split}", splits[split]), (f"{args.task} {held_out}", splits[held_out]) if held_out else None


def _lines(tuning: Tuning, name: str, n: int, held: tuple[str, Pairs] | None, dimension: int) -> list[str]:
    def line(what: str, k: int, beta: float | None, gamma: float | None, scores: tuple[float | str | None, ...]) -> str:
        knobs = "             " if beta is None or gamma is None else f"{beta:>6.2f} {gamma:>6.2f}"
        cells = "".join(x if isinstance(x, str) else f" {x:>9.2f}" for x in scores if x is not None)
        cells = cells.replace("      nan", "undefined")
        return f"{what:<14}{k:>6} {knobs}{cells}"

    lines = [f"Tuned on {name}, {n:,} pairs" + (f"; held out {held[0]}, {len(held[1]):,} pairs" if held else "")]
    head = f"{'':14}{'k':>6} {'β':>6} {'γ':>6} {'tuned on':>9}{'  held out' * bool(held)}"
    lines += ["Spearman × 100", "", f"{head}{'95% CI':>16}{'vs. raw':>27}"]
    rows: list[Any] = [(dimension, None, None, *tuning.baseline), tuning.own, tuning.best]
    names, place = ("not whitened", "current", "best"), 3 + bool(held)
    for what, row, ends, (low, high) in zip(names, rows, tuning.intervals, tuning.gains, strict=True):
        gain = f"{row[place] - rows[0][place]:+.2f} ({low:+.2f} to {high:+.2f})" if row is not rows[0] else ""
        k, beta, gamma, *scores = row
        lines.append(line(what, k, beta, gamma, (*scores, f"{'{:.2f}–{:.2f}'.format(*ends):>16}{gain:>27}")).rstrip())
    lines += ["", "best of each k"]
    for k in sorted({row.n_components for row in tuning.rows}):
        top = max((r for r in tuning.rows if r.n_components == k), key=lambda r: (r.score == r.score, r.score))
        lines.append(line("", *top[:3], top[3:]))
    return lines
