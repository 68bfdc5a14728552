"""The record of each experiment: one file per config."""

import sys

from jaxwhiten.commands import cli
from jaxwhiten.errors import MissingDependencyError, optional
from jaxwhiten.parameters import WHITENING

KNOBS = {
    parameter.name: "none" if parameter.default is None else f"{parameter.default:g}"
    for parameter in WHITENING
    if parameter.name != "n_components"
}
"""A whitening's parameters and defaults, as an evaluation's config spells them; its `ks` replace n_components."""


def need_config(extra: str) -> None:
    """Checks that the packages for a program's config are installed; `python -m` ends in one line if they are not."""
    try:
        optional("ml_collections", extra, f"A program with a config, such as those of {extra}/,", "ml-collections")
    except MissingDependencyError as error:
        if sys.argv[:1] != ["-m"]:
            raise
        sys.exit(cli.say(error))
