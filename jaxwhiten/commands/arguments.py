"""Arguments that several commands have, and what is made of them."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxwhiten.errors import InputError

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.whitening import Whitening

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def add_model(parser: argparse.ArgumentParser, *, default: str | None = DEFAULT_MODEL) -> None:
    """--model, --pooling, --max-length and --dtype; no default where a file says how its vectors were made."""
    defaults = (default, "auto, what the folder says", "what the model's folder says, or 64", "float32")
    model, pooling, length, dtype = defaults if default else ["what the file was made with"] * 4
    parser.add_argument("--model", default=default, help=f"hub id or folder; default: {model}")
    parser.add_argument("--pooling", default=default and "auto", help=f"default: {pooling}")
    parser.add_argument("--max-length", type=int, metavar="TOKENS", help=f"default: {length}")
    parser.add_argument("--dtype", default=default and "float32", help=f"float32 or bfloat16; default: {dtype}")


def add_knobs(parser: argparse.ArgumentParser, *, fitting: bool = False) -> None:
    """-k, --beta and --gamma of a saved whitening, or of one to be fitted, then with --shrinkage."""
    k, share = ("all", "1") if fitting else ("the file's", "the file's")
    parser.add_argument("-k", "--dimension", type=int, help=f"dimensions kept; default: {k}")
    parser.add_argument("--beta", type=float, help=f"share of the mean subtracted, 0 to 1; default: {share}")
    parser.add_argument("--gamma", type=float, help=f"power of the scaling, 0 to 1; default: {share}")
    if fitting:
        parser.add_argument(
            "--shrinkage", metavar="A", help="'ledoit-wolf', or a number from 0 to 1; default: no shrinkage"
        )


def knobs(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `Whitening` that were given."""
    values: dict[str, Any] = {name: getattr(args, name, None) for name in ("beta", "gamma", "shrinkage")}
    values["n_components"] = args.dimension
    with contextlib.suppress(TypeError, ValueError):  # not given, or the name of a method
        values["shrinkage"] = float(values["shrinkage"])
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} is {value}; it must be a number from 0 to 1.")
    return {name: value for name, value in values.items() if value is not None}


def named_values(option: str, words: list[str], read: Callable[[str], Any], expected: str) -> dict[str, Any]:
    """The NAME=VALUE words of an option that is given any number of times."""
    values = {}
    for word in words:
        name, _, value = word.rpartition("=")
        try:
            values[name] = read(value)
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"{option} {word}: expected {expected}.")
    return values


def load_encoder(args: argparse.Namespace) -> Encoder:
    """The encoder that `add_model`'s arguments name."""
    from jaxwhiten.encoding import Encoder

    return Encoder.from_pretrained(
        args.model, pooling=args.pooling or "auto", max_length=args.max_length, dtype=args.dtype
    )


def load_whitening(path: str, args: argparse.Namespace, encoder: Encoder | None = None) -> Whitening:
    """A saved whitening with the k, β and γ of the command line; it must fit the encoder, if one is given."""
    from jaxwhiten.whitening import Whitening

    whitening = Whitening.load(path)
    if encoder is not None:
        encoder.check_whitening(whitening, path)
    changes = knobs(args)
    return whitening.with_params(**changes) if changes else whitening


def whitened_encoder(args: argparse.Namespace, *, normalize: bool = True) -> Encoder:
    """The encoder that the arguments name, with the whitening they name behind it, if any."""
    if args.whitening is None:
        if knobs(args):
            raise InputError("-k, --beta and --gamma belong to a whitening: give --whitening FILE with them.")
        return load_encoder(args)
    whitening = load_whitening(args.whitening, args)
    return load_encoder(args).with_whitening(whitening, normalize=normalize, where=args.whitening)
