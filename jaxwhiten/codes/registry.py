"""Codes by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxwhiten.codes.code import Code
from jaxwhiten.codes.plain import Binary, Int8, UBinary, UInt8
from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.errors import unknown_name
from jaxwhiten.io import load_tensors

CODES: Mapping[str, type[Any]] = {code.name: code for code in (SpectrumCode, Int8, UInt8, Binary, UBinary)}
"""Every code by name: called with parameters, it gives a code to be fitted."""


def make_code(name: str, **params: Any) -> Any:
    """A code by its name.

    Args:
      name: One of `CODES`.
      **params: Arguments of its constructor.

    Returns:
      The code, not fitted yet.

    Raises:
      InputError: No such code, or no such parameter.
    """
    if name not in CODES:
        raise unknown_name("code", name, CODES)
    return CODES[name]().set_params(**params)


def load_code(path: str | os.PathLike[str]) -> Code:
    """Loads any fitted code.

    Args:
      path: The file its `save` wrote.

    Returns:
      The fitted code.

    Raises:
      FormatError: Missing, damaged, or not of a code that this version knows.
    """
    tensors, header = load_tensors(path, kind=tuple(CODES))
    return CODES[header["kind"]].from_tensors(path, tensors, header)
