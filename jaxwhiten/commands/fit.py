"""`jaxwhiten fit INPUT --output FILE`: a whitening, or the moments it is made of, from sentences or from vectors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxwhiten.commands.arguments import add_knobs, add_model, knobs, load_encoder
from jaxwhiten.commands.texts import STDIN, add_texts, sentences
from jaxwhiten.errors import DataError, InputError

if TYPE_CHECKING:
    from jaxwhiten.whitening.moments import Moments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    add_texts(parser, "sentences, or vectors in a .npy file")
    add_outputs(parser)
    add_model(parser)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """--output, --moments and the knobs of the whitening."""
    parser.add_argument("-o", "--output", metavar="FILE", help="the whitening to write, a .safetensors file")
    parser.add_argument(
        "--moments", metavar="FILE", help="the moments to write: they merge with others and serve every setting"
    )
    add_knobs(parser, fitting=True)


def run(args: argparse.Namespace) -> None:
    """Runs the command.

    Args:
      args: What `add_arguments` defines.
    """
    check_outputs(args)
    from_vectors = args.input != STDIN and args.format is None and args.input.lower().endswith(".npy")
    moments, facts = _of_vectors(args.input) if from_vectors else _of_sentences(args)
    write_outputs(args, moments, {"corpus": Path(args.input).name if args.input != STDIN else "stdin", **facts})


def check_outputs(args: argparse.Namespace) -> None:
    """Refuses a command that would write nothing, before anything is computed."""
    if not args.output and not args.moments:
        raise InputError("Nothing to write: give --output FILE for a whitening, --moments FILE for moments, or both.")
    if not args.output and knobs(args):
        raise InputError("-k, --beta, --gamma and --shrinkage belong to a whitening: give --output FILE with them.")


def write_outputs(args: argparse.Namespace, moments: Moments, provenance: dict[str, Any]) -> None:
    """Writes the moments, the whitening, or both, and says so on stderr."""
    if args.moments:
        moments.save(args.moments, provenance)
        print(f"{args.moments}: moments of {moments.n:,} rows, {len(moments.mean)} dimensions", file=sys.stderr)
    if args.output:
        from jaxwhiten.whitening.whitening import Whitening

        whitening = Whitening.from_moments(moments, **knobs(args), provenance=provenance)
        whitening.save(args.output)
        k = whitening.n_components or whitening.n_features_in_
        print(
            f"{args.output}: whitening of {whitening.n_features_in_} to {k} dimensions, β={whitening.beta:g},"
            f" γ={whitening.gamma:g}, fitted on {moments.n:,} rows of rank {whitening.rank_}",
            file=sys.stderr,
        )


def _of_sentences(args: argparse.Namespace) -> tuple[Moments, dict[str, Any]]:
    from jaxwhiten.search import encoding_of
    from jaxwhiten.whitening.moments import Moments

    texts = (text for text in sentences(args.input, args.format, args.column) if text.strip())
    first = next(texts, None)
    if first is None:
        raise DataError(f"{args.input}: no sentences in it.")
    encoder = load_encoder(args)
    moments = Moments()

    def stream() -> Iterator[str]:
        yield first
        yield from texts

    for block in encoder.encode_stream(stream()):
        moments.update(block)
    return moments, encoding_of(encoder)


def _of_vectors(path: str) -> tuple[Moments, dict[str, Any]]:
    from jaxwhiten.commands.vectors import open_vectors
    from jaxwhiten.whitening.moments import Moments

    vectors = open_vectors(path)
    if not len(vectors):
        raise DataError(f"{path}: no vectors in it.")
    return Moments().update(vectors), {}
