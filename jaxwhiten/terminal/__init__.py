"""What people read: notes on stderr, whether there are any or bars (`terminal.bars`), numbers, and tables of results.

Whatever an object holds, its repr has at most ten lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

silent = False
# Texts that this process has tokenized, and the "cut" ones of "all", by maximum length in tokens.
COUNTS: Counter[tuple[int, str]] = Counter()
SHOWN = 8  # rows of a table in a repr, without its head
SECONDS = 5.0  # of silence, before `watched` breaks it
_named: Callable[[str], str] = str  # a line with the names that parameters have for its reader
_doing = ""  # the work at hand
_since = 0.0  # when it began
_printed = 0.0  # when something was last printed


@contextlib.contextmanager
def quiet(wanted: bool = True) -> Iterator[None]:
    """Neither notes nor progress in the block, if `wanted`."""
    global silent
    before = silent
    silent = wanted
    try:
        yield
    finally:
        silent = before


@contextlib.contextmanager
def naming(spell: Callable[[str], str]) -> Iterator[None]:
    """Lines in the block name parameters as `spell` does, such as by the flags of a command."""
    global _named
    before = _named
    _named = spell
    try:
        yield
    finally:
        _named = before


def named(text: str) -> str:
    """A text with the names that parameters have for its reader, see `naming`.

    >>> with naming(lambda text: text.replace("`k`", "--top")):
    ...     named("Pass `k`.")
    'Pass --top.'
    """
    return _named(text)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Whenever nothing was printed for 5 seconds in the block, says which work is at hand, and for how long."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(max(0.1, _printed + SECONDS - time.monotonic())):
            now = time.monotonic()
            if _doing and now - _printed >= SECONDS:
                say(f"{_doing}: {now - _since:.0f} s")

    begin("")
    printed()
    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def begin(work: str) -> None:
    """Names the work that begins now, for `watched`."""
    global _doing, _since
    _doing = work
    _since = time.monotonic()


def printed() -> None:
    """Notes that a line is printed now, on stdout or stderr."""
    global _printed
    _printed = time.monotonic()


def say(text: object) -> None:
    """Prints a line on stderr, above a bar."""
    printed()
    line = _named(str(text))
    if not silent and sys.stderr.isatty():
        from tqdm import tqdm

        tqdm.write(line, sys.stderr)
    elif not silent:
        print(line, file=sys.stderr)


def note(text: object) -> None:
    """`say`, as a note."""
    say(f"note: {text}")


def counted(number: int, things: str) -> str:
    """A number with a noun, which is given in the plural.

    >>> counted(1, "queries"), counted(1, "axes"), counted(1234, "rows")
    ('1 query', '1 axis', '1,234 rows')
    """
    if number == 1:
        ends = {"ies": "y", "axes": "axis"}
        things = re.sub(r"\baxes\b|(?<=ch)es\b|ies\b|s\b", lambda end: ends.get(end[0], ""), things, count=1)
    return f"{number:,} {things}"


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """The lines of a table, whose first row is its head; columns `left` are aligned on the left, others on the right.

    >>> table([["", "bytes"], ["raw", "1,536"]])
    ['     bytes', 'raw  1,536']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = ["<" if column in left else ">" for column in range(len(widths))]
    return ["  ".join(map("{:{}{}}".format, row, align, widths)).rstrip() for row in rows]


def as_html(rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """The table in HTML, for notebooks.

    >>> as_html([["id"], ["<7>"]])
    '<table><caption></caption><tr><th>id</th></tr><tr><td>&lt;7&gt;</td></tr></table>'
    """
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


def brief(self: Any) -> str:
    """The repr of a dataclass or named tuple, with the sizes of what holds many values."""
    names = getattr(self, "_fields", None) or [field.name for field in dataclasses.fields(self)]
    parts = []
    for name in names:
        value = getattr(self, name)
        sized = isinstance(value, Sized) and not isinstance(value, str)
        parts.append(f"{name}=<{type(value).__name__} of {len(value):,}>" if sized else f"{name}={value!r:.80}")
    return f"{type(self).__name__}({', '.join(parts)})"


def one_line(text: str | None, width: int = 80) -> str:
    """The start of a text, on one line.

    >>> one_line("A dog\\n runs.", 8)
    'A dog r…'
    """
    line = " ".join((text or "")[: 4 * width].split())
    return line if len(line) <= width else f"{line[: width - 1]}…"
