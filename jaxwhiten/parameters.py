"""The parameters of a whitening, each declared once: the estimator, flags, configs and results read them here.

No heavy module is imported, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

SHRINKAGES = ("oas",)


class Parameter(NamedTuple):
    """A constructor argument for command lines; `parse` converts a text to a value, or raises ValueError."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


def _dimensions(text: str) -> int | None:
    return None if text == "none" else int(text)


def _shrinkage(text: str) -> str | float | None:
    if text == "none":
        return None
    return text if text in SHRINKAGES else float(text)


WHITENING = (
    Parameter("n_components", _dimensions, None, "columns kept"),
    Parameter("beta", float, 1.0, "share of the mean that is subtracted, 0 to 1"),
    Parameter("gamma", float, 1.0, "power of the scaling, 0 to 1: 1 is whitening, 0 is PCA"),
    Parameter("shrinkage", _shrinkage, None, "'oas', a number from 0 to 1, or none"),
    Parameter("eigenvalue_floor", float, 1e-6, "least eigenvalue scaled by, as a share of the largest"),
)
KNOBS = {
    parameter.name: "none" if parameter.default is None else f"{parameter.default:g}"
    for parameter in WHITENING
    if parameter.name != "n_components"
}
"""The parameters with their defaults, as an evaluation's config spells them; its `ks` replace n_components."""
DEFAULTS = {parameter.name: parameter.default for parameter in WHITENING}
