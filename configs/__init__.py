"""The record of each experiment: one file per config."""

import sys

from jaxwhiten.commands import cli
from jaxwhiten.errors import MissingDependencyError, check_installed
from jaxwhiten.terminal import interrupts


def need(module: str, extra: str) -> None:
    """Checks that a package all programs of a folder need is installed; `python -m` ends in one line if it is not.

    `python -m` also ends at Ctrl-C, from here on: nothing heavy is imported yet.
    """
    started = sys.argv[:1] == ["-m"]  # Python replaces it once it has found the module, which lies inside the package
    if started:
        interrupts.handle()
    try:
        check_installed(module, extra, f"A program of {extra}/")
    except MissingDependencyError as error:
        if not started:
            raise
        sys.exit(cli.say(error))
