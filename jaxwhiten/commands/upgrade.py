"""`jaxwhiten upgrade INDEX --model NEW`: searches an existing index by a better encoder."""

from __future__ import annotations

import argparse
import shutil

from jaxwhiten.bars import Progress
from jaxwhiten.commands.arguments import Report, Source, add, add_model, load_encoder
from jaxwhiten.errors import InputError

_AT_ONCE = 1024  # texts embedded between two updates of the progress bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "index", "a folder that `jaxwhiten index` wrote", type=Source)
    add_model(parser, default=None)
    add(parser, "--candidates C", "documents that the new encoder ranks per query; default: 100", type=int)
    what = "embed N more documents now; the old vectors are removed after the last one"
    add(parser, "--fill N", what, type=int, default=0)


def run(args: argparse.Namespace) -> Report:
    from jaxwhiten.search import Upgraded, load_index
    from jaxwhiten.search.encoders import located
    from jaxwhiten.search.upgraded import read_upgrade

    index = load_index(args.index)
    old = index.views
    assert old is not None
    upgrade = read_upgrade(args.index, index.encoding) or {"new": {"model": args.model}, "candidates": 100}
    if upgrade["new"]["model"] is None:
        raise InputError(f"{args.index}: no upgrade in progress: specify the new encoder with --model.")
    candidates = upgrade["candidates"] if args.candidates is None else args.candidates
    new = upgrade["new"] if args.model else located(upgrade["new"], args.index)
    encoder = load_encoder(args, new)
    upgraded = Upgraded(index, old, encoder, candidates, folder=args.index)
    with Progress(total=args.fill, desc="embed", unit="text") as bar:
        for start in range(0, args.fill, _AT_ONCE):
            bar.update(upgraded.fill(min(_AT_ONCE, args.fill - start)))
    advice = f"stored in {upgraded.folder}; delete it to cancel"
    if upgraded.share == 1:
        upgraded.finished().save(args.index)
        shutil.rmtree(str(upgraded.folder))
        advice = "old vectors removed"
    text = f"{args.index}: {upgraded.share:.1%} of the documents embedded with {encoder.name}, {advice}"
    return Report(text, {"index": args.index, "share": upgraded.share, "model": encoder.name})
