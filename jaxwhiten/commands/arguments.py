"""Arguments that several commands have, and what is made of them."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxwhiten.errors import InputError, MismatchError

if TYPE_CHECKING:
    from jaxwhiten.encoding.encoder import Encoder
    from jaxwhiten.whitening.whitening import Whitening

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# What decides whether a whitening and an encoder belong together. Another max_length is told, not refused.
_TOGETHER = ("fingerprint", "pooling")
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
    values = {"n_components": args.dimension, "beta": args.beta, "gamma": args.gamma}
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
    from jaxwhiten.encoding.encoder import Encoder

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
      MismatchError: It was fitted on vectors of another encoder or pooling.
      InputError: A knob out of range.
    """
    from jaxwhiten.whitening.whitening import Whitening

    whitening = Whitening.load(path)
    if changes := knobs(args):
        whitening = whitening.with_params(**changes)
    if encoder is not None:
        check_encoder(path, whitening.provenance, encoder)
        if whitening.n_features_in_ != encoder.dimension:
            raise MismatchError(
                f"{path}: takes vectors of {whitening.n_features_in_} dimensions, {encoder.name} gives"
                f" {encoder.dimension}."
            )
    return whitening


def check_encoder(path: str | Path, provenance: dict[str, Any], encoder: Encoder) -> None:
    """Refuses an encoder that a file was not fitted with, as far as its provenance says; tells another max_length.

    Raises:
      MismatchError: Another encoder or pooling.
    """
    from jaxwhiten.search import encoding_of

    found = encoding_of(encoder)
    for key in _TOGETHER:
        told = provenance.get(key)
        if told is not None and told != found[key]:
            name = f" ({provenance.get('model')}, not {found['model']})" if key == "fingerprint" else ""
            raise MismatchError(
                f"{path}: was fitted on vectors whose {key} is {told}, the encoder's is {found[key]}{name}. Encode as"
                " it was fitted, or fit another one."
            )
    told = provenance.get("max_length")
    if told is not None and told != encoder.max_length:
        say(f"{path}: was fitted with sentences of up to {told} tokens, here they have up to {encoder.max_length}")


def say(note: str) -> None:
    """One line on stderr that is not an error."""
    print(f"note: {note}", file=sys.stderr)
