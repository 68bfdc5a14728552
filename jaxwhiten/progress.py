"""Notes on stderr, whether there are any, or bars (`jaxwhiten.bars`), and numbers of things in sentences."""

from __future__ import annotations

import contextlib
import re
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


def counted(number: int, things: str) -> str:
    """A number with a noun, which is given in the plural.

    >>> counted(1, "queries"), counted(1234, "rows")
    ('1 query', '1,234 rows')
    """
    if number == 1:
        things = re.sub(r"(?<=ch)es\b|ies\b|s\b", lambda end: "y" if end[0] == "ies" else "", things, count=1)
    return f"{number:,} {things}"


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
