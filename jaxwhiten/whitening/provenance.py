"""Whether a whitening and vectors belong together: what each says of how the vectors were made."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import MismatchError, spelled

# What decides; a difference in the others is told.
_DECISIVE = ("fingerprint", "pooling")
_TOLD = ("model", "pooling", "max_length", "dtype", "engine")


class ProvenanceWarning(UserWarning):
    """A whitening whose vectors were made in a slightly different way."""


def check_provenance(where: str, fitted: Mapping[str, Any], encoding: Mapping[str, Any]) -> None:
    """Refuses a whitening that was fitted on vectors of another encoder or pooling, as far as it says so.

    Args:
      where: What the whitening is called in messages, such as its file.
      fitted: Its provenance.
      encoding: How the vectors to be whitened are made: model, fingerprint, pooling, max_length and dtype.
    """
    either = [key for key in (*_DECISIVE, *_TOLD) if fitted.get(key) is not None and encoding.get(key) is not None]
    different = [key for key in either if fitted[key] != encoding[key]]
    told = [key for key in _TOLD if key in different]
    theirs, ours = (", ".join(f"{key} {facts[key]}" for key in told) for facts in (fitted, encoding))
    if any(key in different for key in _DECISIVE):
        words = f"{theirs}; here they have {ours}" if told else "other weights or another head of the same name"
        remedy = f", with {' and '.join(spelled(key, fitted[key]) for key in told)}" if told else ""
        raise MismatchError(
            f"{where} was fitted on vectors of {words}. Encode as it was fitted{remedy}, or fit another one."
        )
    if "max_length" in different:
        warnings.warn(
            f"{where} was fitted with sentences of up to {fitted['max_length']} tokens, here they have up to"
            f" {encoding['max_length']}.",
            ProvenanceWarning,
            stacklevel=3,
        )
