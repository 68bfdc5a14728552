"""`jaxwhiten verify FOLDER`: checks an encoder's vectors against its own files, and against sentence-transformers."""

from __future__ import annotations

import argparse

from jaxwhiten.commands.arguments import add
from jaxwhiten.commands.doctor import report
from jaxwhiten.commands.texts import sentences
from jaxwhiten.errors import InputError

_PEER = "sentence-transformers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "folder", "a model's folder, or a hub id")
    add(parser, "--against PEER", f"{_PEER}: compare with its vectors, too; needs the extra parity", choices=[_PEER])
    add(parser, "--texts FILE", "your own texts for that comparison, in a format that encode reads")
    add(parser, "--json", "one JSON object")


def run(args: argparse.Namespace) -> int:
    """Runs the command; the exit code is 1 if a check fails."""
    if args.texts and not args.against:
        raise InputError(f"--texts has nothing to be compared with: give --against {_PEER}, too.")
    texts = list(sentences(args.texts)) if args.texts else []
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.encoding.verification import Finding, verify
    from jaxwhiten.text import uncounted

    def line(found: Finding) -> str:
        figures = [f"{value:>9.1e}" if value is not None else " " * 9 for value in (found.difference, found.allowed)]
        return f"{found.name:<34}{''.join(figures)}  {' '.join(found.detail.split())}"

    encoder = Encoder.from_pretrained(args.folder)
    if not args.json:
        print(f"{encoder}\n\n     {'check':<34}{'apart by':>9}{'at most':>9}  what")
    with uncounted():  # its texts are of every length
        return report(verify(encoder, args.folder, against=args.against is not None, texts=texts), args.json, line)
