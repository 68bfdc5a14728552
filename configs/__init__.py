"""The record of each experiment: one file per config."""

import sys

from jaxwhiten.commands import cli
from jaxwhiten.errors import MissingDependencyError, check_installed


def need(module: str, extra: str) -> None:
    """Checks that a package all programs of a folder need is installed; `python -m` ends in one line if it is not."""
    try:
        check_installed(module, extra, f"A program of {extra}/")
    except MissingDependencyError as error:
        if sys.argv[:1] != ["-m"]:
            raise
        sys.exit(cli.say(error))
