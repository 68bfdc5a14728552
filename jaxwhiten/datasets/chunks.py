"""Rows of a corpus' files in chunks of fixed size, from any position; each chunk becomes a part."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten import io
from jaxwhiten.datasets.tables import table_rows
from jaxwhiten.datasets.textfile import BadRows, numbered_lines
from jaxwhiten.errors import REASON, DataError, turning
from jaxwhiten.types import Fields, Json

MAX_TEXT = 1 << 20  # characters; a longer text is a file in the wrong place


def problem(value: object) -> str | None:
    """Why a value cannot be embedded; None for a text."""
    if not isinstance(value, str):
        if isinstance(value, bytes):
            return f"not UTF-8: {value[:40]!r}"
        return f"{value!r:.80} is not text"
    if len(value) > MAX_TEXT:
        return f"longer than {MAX_TEXT} characters"
    return None


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of texts: lines, or a column of a table (`tables.Column`), with ids of a column, or `name:line`."""

    path: str
    format: str = "txt"
    column: str | None = None
    ids: str | None = None
    name: str = ""  # default: the file's own

    def stat(self) -> list[int]:
        """The size and more, by which an unchanged file is recognized (`io.identity`)."""
        with turning(DataError, f"{self.path}: cannot be read ({REASON}): specify an existing file.", OSError):
            return [*io.identity(self.path)]

    @property
    def key(self) -> tuple[str, str | None]:
        """What records name a source by."""
        return self.path, self.column


class Position(NamedTuple):
    """The position after a line, counted from 1, and the byte where the next line begins; tables have no byte."""

    line: int = 0
    byte: int = 0


START = Position()


class TextRow(NamedTuple):
    """A row and the position after it; `text` is None if the row is bad, and `error` gives the reason."""

    text: str | None
    id: str | int
    error: str
    end: Position
    metadata: Json | None = None


class Chunk(NamedTuple):
    """Rows of one file, including bad ones; `last` is whether they end the file in its state `stat`."""

    number: int
    source: Source
    start: Position
    rows: list[TextRow]
    last: bool
    stat: list[int]

    def record(self) -> Json:
        """The chunk without its texts; `dead` are the lines of bad rows and the reasons."""
        end = self.rows[-1].end if self.rows else self.start
        record = {"part": self.number, "file": self.source.path, "column": self.source.column, "stat": self.stat}
        record |= {"start": self.start, "end": end, "last": self.last}
        return {**record, "dead": [(row.end.line, row.error) for row in self.rows if row.text is None]}


@dataclasses.dataclass
class _Kept(BadRows):
    rows: list[TextRow] = dataclasses.field(default_factory=list)

    def __call__(self, line: int, reason: str) -> None:
        super().__call__(line, reason)
        self.rows.append(TextRow(None, "", reason, Position(line, self.tell())))

    def taken(self, after: int) -> list[TextRow]:
        """The rows that were met since the last call, but those up to a line."""
        taken, self.rows = self.rows, []
        return [row for row in taken if row.end.line > after]


def rows(
    source: Source, start: Position = START, skip_bad: bool = False, blank: bool = False, keep: Sequence[str] = ()
) -> Generator[TextRow, None, None]:
    """The rows of a file after the position `start`, without blank ones, or with them; columns `keep` are metadata."""
    bad = _Kept(source.path, skip_bad)
    name = source.name or Path(source.path).name
    if source.format == "txt":
        lines: Any = ((line, (text,)) for line, text in numbered_lines(source.path, bad))
    else:
        names = [source.column or "", *filter(None, [source.ids])]
        lines = table_rows(source.path, names, source.format, bad, keep)
    for line, (text, *values) in lines:
        yield from bad.taken(start.line)
        if line <= start.line or (not blank and isinstance(text, str) and not text.strip()):
            continue
        id = whole_id(values[0]) if source.ids else f"{name}:{line}"
        if why := problem(text):
            bad(line, f"{source.column}: {why}" if source.column else why)
        elif not isinstance(id, str | int):
            bad(line, f"{source.ids}: {id!r:.80} is not an ID, expected text or an integer")
        else:
            metadata = dict(zip(keep, values[-len(keep) :], strict=True)) if keep else None
            yield TextRow(text, id, "", Position(line, bad.tell()), metadata)
    yield from bad.taken(start.line)


def whole_id(id: object) -> Any:
    """An id, as an integer if it is a whole number in floating point, as libraries write integers with gaps.

    From 2^53 on, numbers in floating point stay what they are: they may be other integers, rounded.
    """
    if isinstance(id, float) and id.is_integer() and abs(id) < 2**53:
        return int(id)
    return id


def by_source(records: Iterable[Fields]) -> dict[tuple[str, str | None], list[Fields]]:
    """Records by the `key` of their source."""
    grouped = dict[tuple[str, str | None], list[Mapping[str, Any]]]()
    for record in records:
        grouped.setdefault((record["file"], record["column"]), []).append(record)
    return grouped


def chunks(
    inputs: Iterable[Source],
    size: int,
    skip_bad: bool,
    done: Mapping[int, Fields],
    changed: Callable[[Source], None] = lambda source: None,
) -> Iterator[Chunk]:
    """The chunks of sources, without those `done`: `record` by number.

    `changed` is called with a source that is no longer in the state in which it was read; it may raise.
    """
    longest_last = sorted(done.values(), key=lambda part: part["end"])
    parts = {(part["file"], part["column"], part["start"][0]): part for part in longest_last}
    finished = by_source(done.values())
    unused = (number for number in itertools.count() if number not in done)
    for source in inputs:
        key = source.key
        position = Position()
        ended = False
        stat = source.stat()
        if key in finished and all(part["stat"] != stat for part in finished[key]):
            changed(source)
        while not ended:
            if part := parts.pop((*key, position.line), None):
                position = Position(*part["end"])
                ended = part["last"] and part["stat"] == stat and (*key, position.line) not in parts
                continue
            with contextlib.closing(rows(source, position, skip_bad)) as remaining:
                upcoming = next(remaining, None)
                while not ended and (*key, position.line) not in parts:
                    chunk = [upcoming, *itertools.islice(remaining, size - 1)] if upcoming else []
                    upcoming = next(remaining, None)
                    ended = upcoming is None
                    if (now := source.stat()) != stat:
                        changed(source)
                        stat = now
                    if chunk or not position.line:  # an empty file has a part, too
                        yield Chunk(next(unused), source, position, chunk, ended, stat)
                    position = chunk[-1].end if chunk else position
