"""Notes on stderr, and whether there are any, or bars (`jaxwhiten.bars`)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

silent = False


@contextlib.contextmanager
def quiet(wanted: bool = True) -> Iterator[None]:
    """Neither notes nor progress in the block, if `wanted`."""
    global silent
    before, silent = silent, wanted
    try:
        yield
    finally:
        silent = before


def say(text: object) -> None:
    """Prints a line on stderr, above a bar."""
    if not silent and sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(str(text), sys.stderr)
    elif not silent:
        print(text, file=sys.stderr)


def note(text: object) -> None:
    """`say`, as a note."""
    say(f"note: {text}")
