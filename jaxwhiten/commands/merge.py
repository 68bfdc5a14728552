"""`jaxwhiten merge MOMENTS... --output FILE`: merges moments of the parts of a corpus, and can fit a whitening."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from jaxwhiten.commands.arguments import add
from jaxwhiten.commands.fit import add_outputs, check_outputs, write_outputs
from jaxwhiten.errors import MismatchError

# Entries that must agree between files that have them.
_SAME = ("fingerprint", "pooling", "max_length", "dtype")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "files", "moments files, such as `jaxwhiten fit` writes", nargs="+", metavar="FILE")
    add_outputs(parser, "FILE", "the whitening to write, a .safetensors file")


def run(args: argparse.Namespace) -> None:
    check_outputs(args)
    from jaxwhiten.whitening import Moments

    total, facts, corpora = Moments(), dict[str, Any](), list[str]()
    seen = dict[tuple[int, bytes, bytes], str]()
    for path in args.files:
        part = Moments.load(path)
        for key in _SAME:
            mine, theirs = facts.get(key), part.provenance.get(key)
            if mine is not None and theirs is not None and mine != theirs:
                raise MismatchError(f"{path}: was made with {key} {theirs}, the files before it with {mine}.")
        if total.n and part.n and len(part.mean) != len(total.mean):
            raise MismatchError(f"{path}: of {len(part.mean)} dimensions, the files before it of {len(total.mean)}.")
        if (first := seen.setdefault((part.n, part.mean.tobytes(), part.M2.tobytes()), path)) is not path:
            print(f"warning: {path}: holds the same moments as {first}: its rows count twice", file=sys.stderr)
        total.merge(part)
        corpora.append(str(part.provenance.get("corpus") or path))
        facts = {**part.provenance, **facts}
    write_outputs(args, total, {**facts, "corpus": " + ".join(corpora)})
