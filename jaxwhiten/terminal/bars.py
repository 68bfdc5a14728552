"""Bars of progress on stderr: a bar on a terminal, a line after 5 seconds and every 30 in a file."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from tqdm import tqdm

from jaxwhiten import terminal

_LINE = "{desc}: {n_fmt} of {total_fmt}{unit}s, {rate_fmt}, {remaining} left"
_LINES = {"mininterval": 30, "miniters": 1, "delay": 5, "bar_format": _LINE}


def _show(bar: weakref.ref[Progress]) -> None:
    if (found := bar()) is not None and not found.disable:
        found.display()


class Progress(tqdm):
    """A bar of tqdm; `show` is whether there is one, and None leaves a file the lines. `unit` is a word, or B."""

    _first: threading.Timer | None = None

    def __init__(self, show: bool | None = None, *, unit: str = "row", **options: Any):
        self._lines = show is None and not sys.stderr.isatty()
        if self._lines:
            options |= _LINES
        if unit != "B":
            unit = f" {unit}"
        super().__init__(disable=show is False or terminal.silent, unit=unit, **options)
        if self._lines and not self.disable:  # before the first step, which compiles, has ended
            self._first = threading.Timer(terminal.SECONDS, _show, [weakref.ref(self)])
            self._first.daemon = True
            self._first.start()

    @classmethod
    def format_meter(cls, *args: object, **options: Any) -> str:
        """The line of tqdm, with a space between a number and its unit."""
        return str(super().format_meter(*args, **options)).replace("s/ ", " s/")

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self._lines:
            self._no_first()
            print(str(self).partition(", ?")[0], file=self.fp, flush=True)
            terminal.printed()
        else:
            super().display(msg, pos)

    def restart(self, desc: str, n: int) -> None:
        """Continues after `n` units under another description; only later units count for the time that is left."""
        if self.disable:
            return
        self.set_description_str(desc, refresh=False)
        self.initial = self.n = self.last_print_n = n
        self.start_t = self.last_print_t = self._time()
        self.refresh()

    def close(self) -> None:
        if self._lines:
            self._no_first()
            self.disable = True  # no last line, which would end with the one before
        super().close()

    def _no_first(self) -> None:
        if self._first is not None:
            self._first.cancel()
            self._first = None
