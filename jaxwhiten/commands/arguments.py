"""Arguments that several commands have, and what is made of them."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from jaxwhiten.errors import InputError

if TYPE_CHECKING:
    from jaxwhiten.encoding import Encoder
    from jaxwhiten.whitening import Whitening

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_TOLD = "what the file was made with"


def add_model(parser: argparse.ArgumentParser, *, default: str | None = DEFAULT_MODEL) -> None:
    """--model, --pooling, --max-length and --dtype.

    Args:
      parser: Gets the arguments.
      default: The model taken where none is named; None where a file says how its vectors were made.
    """
    parser.add_argument("--model", default=default, help=f"hub id or folder; default: {default or _TOLD}")
    pooling, length, dtype = ("auto", "what the model's folder says, or 64", "float32") if default else [None] * 3
    parser.add_argument(
        "--pooling", default=pooling, help=f"default: {'auto, what the folder says' if default else _TOLD}"
    )
    parser.add_argument("--max-length", type=int, metavar="TOKENS", help=f"default: {length or _TOLD}")
    parser.add_argument("--dtype", default=dtype, help=f"float32 or bfloat16; default: {dtype or _TOLD}")


def add_knobs(parser: argparse.ArgumentParser, *, fitting: bool = False) -> None:
    """-k, --beta and --gamma, and --shrinkage where a whitening is fitted.

    Args:
      parser: Gets the arguments.
      fitting: Whether a whitening is fitted; otherwise the arguments change those of a saved one.
    """
    default = {"k": "all", "one": "1"} if fitting else {"k": "the file's", "one": "the file's"}
    parser.add_argument("-k", "--dimension", type=int, help=f"dimensions kept; default: {default['k']}")
    parser.add_argument("--beta", type=float, help=f"share of the mean subtracted, 0 to 1; default: {default['one']}")
    parser.add_argument("--gamma", type=float, help=f"power of the scaling, 0 to 1; default: {default['one']}")
    if fitting:
        parser.add_argument(
            "--shrinkage", metavar="A", help="'ledoit-wolf', or a number from 0 to 1; default: no shrinkage"
        )


def knobs(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `Whitening` that were given.

    Raises:
      InputError: A shrinkage that is neither a number nor a name.
    """
    values = {
        "n_components": args.dimension,
        "beta": getattr(args, "beta", None),
        "gamma": getattr(args, "gamma", None),
    }
    shrinkage = getattr(args, "shrinkage", None)
    if shrinkage is not None:
        try:
            values["shrinkage"] = float(shrinkage)
        except ValueError:
            values["shrinkage"] = shrinkage
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} is {value}; it must be a number from 0 to 1.")
    return {name: value for name, value in values.items() if value is not None}


def load_encoder(args: argparse.Namespace) -> Encoder:
    """The encoder that `add_model`'s arguments name."""
    from jaxwhiten.encoding import Encoder

    return Encoder.from_pretrained(
        args.model, pooling=args.pooling or "auto", max_length=args.max_length, dtype=args.dtype
    )


def load_whitening(path: str, args: argparse.Namespace, encoder: Encoder | None = None) -> Whitening:
    """A saved whitening with the k, β and γ of the command line.

    Args:
      path: The file.
      args: What `add_knobs` defines.
      encoder: Makes the vectors to be whitened; None where they come from a file.

    Raises:
      FormatError: Not a whitening.
      MismatchError: It was fitted on vectors of another encoder, pooling or width.
      InputError: A knob out of range.
    """
    from jaxwhiten.whitening import Whitening

    whitening = Whitening.load(path)
    if encoder is not None:
        encoder.check_whitening(whitening, path)
    changes = knobs(args)
    return whitening.with_params(**changes) if changes else whitening


def whitened_encoder(args: argparse.Namespace, *, normalize: bool = True) -> Encoder:
    """The encoder that the arguments name, with the whitening they name behind it, if any.

    Args:
      args: What `add_model` and `add_knobs` define, and `whitening`.
      normalize: Whether whitened vectors are scaled to unit length.

    Raises:
      InputError: Knobs without a whitening, or out of range.
      FormatError, MismatchError: As `load_whitening`.
    """
    if args.whitening is None:
        if knobs(args):
            raise InputError("-k, --beta and --gamma belong to a whitening: give --whitening FILE with them.")
        return load_encoder(args)
    whitening = load_whitening(args.whitening, args)
    return load_encoder(args).with_whitening(whitening, normalize=normalize, where=args.whitening)
