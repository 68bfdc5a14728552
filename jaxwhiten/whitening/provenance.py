"""Whether a whitening fits the vectors it is applied to: compares how both say that their vectors were made."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import MismatchError, spelled

# A mismatch in `_DECISIVE` is an error; a mismatch in the other facts is reported.
_DECISIVE = ("fingerprint", "pooling")
_REPORTED = ("model", "pooling", "max_length", "dtype", "engine")


class ProvenanceWarning(UserWarning):
    """A whitening was fitted on vectors that were made in a slightly different way."""


def check_provenance(where: str, fitted: Mapping[str, Any], encoding: Mapping[str, Any]) -> None:
    """Raises MismatchError if a whitening was fitted on vectors of another encoder or pooling, as far as it records it.

    Args:
      where: Name of the whitening in messages, such as its file.
      fitted: Provenance of the whitening.
      encoding: How the vectors to be whitened are made: model, fingerprint, pooling, max_length and dtype.
    """
    keys = (*_DECISIVE, *_REPORTED)
    known = [key for key in keys if fitted.get(key) is not None and encoding.get(key) is not None]
    different = [key for key in known if fitted[key] != encoding[key]]
    named = [key for key in _REPORTED if key in different]
    theirs, ours = (", ".join(f"{key} {facts[key]}" for key in named) for facts in (fitted, encoding))
    if any(key in different for key in _DECISIVE):
        words = f"{theirs}; here they have {ours}" if named else "other weights or another head of the same name"
        remedy = f", with {' and '.join(spelled(key, fitted[key]) for key in named)}" if named else ""
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
