"""`jaxwhiten merge MOMENTS... --output FILE`: merges moments of the parts of a corpus, and can fit a whitening."""

from __future__ import annotations

import argparse
import sys

from jaxwhiten.commands.arguments import Report, Source, add
from jaxwhiten.commands.fit import add_outputs, check_outputs, write_outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "files", "moments files, such as `jaxwhiten fit` writes", type=Source, nargs="+", metavar="FILE")
    add_outputs(parser, "FILE", "the whitening to write, a .safetensors file")


def run(args: argparse.Namespace) -> Report:
    check_outputs(args)
    from jaxwhiten.whitening import Moments

    total = Moments()
    corpora = list[str]()
    folders_by_key = dict[tuple[int, bytes, bytes], str]()
    for path in args.files:
        part = Moments.load(path)
        total.merge(part, path)
        if (first := folders_by_key.setdefault((part.n, part.mean.tobytes(), part.M2.tobytes()), path)) is not path:
            print(f"warning: {path}: contains the same moments as {first}: its rows count twice", file=sys.stderr)
        corpora.append(str(part.provenance.get("corpus") or path))
    return write_outputs(args, total, {"corpus": " + ".join(corpora)})
