"""Bars of progress on stderr: a bar on a terminal, a line after 5 seconds and every 30 in a file."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from jaxwhiten import progress

_LINE = "{desc}: {n_fmt} of {total_fmt}{unit}s, {rate_fmt}, {remaining} left"
_LINES = {"mininterval": 30, "miniters": 1, "delay": 5, "bar_format": _LINE}


class Progress(tqdm):
    """A bar of tqdm; `show` is whether there is one, and None leaves a file the lines. `unit` is a word, or B."""

    def __init__(self, show: bool | None = None, *, unit: str = "row", **options: Any):
        self._lines = show is None and not sys.stderr.isatty()
        if self._lines:
            options |= _LINES
        if unit != "B":
            unit = f" {unit}"
        super().__init__(disable=show is False or progress.silent, unit=unit, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self._lines:
            print(self, file=self.fp, flush=True)
        else:
            super().display(msg, pos)

    def close(self) -> None:
        if self._lines:
            self.disable = True  # no last line, which would end with the one before
        super().close()
