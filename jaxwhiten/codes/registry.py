"""Codes by name. The modules imported here hold all there are."""

from __future__ import annotations

import os
from typing import Any

from jaxwhiten.codes import plain, spectrum  # noqa: F401 - their classes add themselves to CODES
from jaxwhiten.codes.code import CODES, Code
from jaxwhiten.errors import unknown_name
from jaxwhiten.io import load_tensors


def make_code(name: str, **params: Any) -> Any:
    """A code by its name, not fitted yet."""
    if name not in CODES:
        raise unknown_name("code", name, CODES)
    return CODES[name]().set_params(**params)


def load_code(path: str | os.PathLike[str]) -> Code:
    """Loads any fitted code from the file its `save` wrote.

    Raises:
      FormatError: Missing, damaged, or not of a code that this version knows.
    """
    tensors, header = load_tensors(path, kind=tuple(CODES))
    return CODES[header["kind"]].from_tensors(path, tensors, header)
