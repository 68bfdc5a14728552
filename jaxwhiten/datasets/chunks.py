"""Rows of a corpus' files in chunks of fixed size, from any position; each chunk becomes a part."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten.datasets.tables import table_rows
from jaxwhiten.datasets.textfile import BadRows, numbered_lines
from jaxwhiten.errors import DataError

MAX_TEXT = 1 << 20  # characters; a longer text is a file in the wrong place
_ENDS = 1 << 16


def problem(value: Any) -> str | None:
    """Why a value cannot be embedded; None for a text."""
    if not isinstance(value, str):
        return f"not UTF-8: {value[:40]!r}" if isinstance(value, bytes) else f"{value!r:.80} is not text"
    return f"longer than {MAX_TEXT} characters" if len(value) > MAX_TEXT else None


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of texts: lines, or a column of a table, with a column of ids or the default ids `name:line`."""

    path: str
    format: str = "txt"
    column: str | None = None
    ids: str | None = None
    name: str = ""  # default: the file's own

    def facts(self) -> dict[str, Any]:
        """Facts that identify the contents under a name: the size, and a hash of the first and last bytes."""
        try:
            with open(self.path, "rb") as file:
                size = Path(self.path).stat().st_size
                digest = hashlib.sha256(file.read(_ENDS))
                file.seek(max(0, size - _ENDS))
                digest.update(file.read(_ENDS))
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}): give a file that is there.") from None
        return {**dataclasses.asdict(self), "size": size, "ends": digest.hexdigest()[:24]}


class Position(NamedTuple):
    """The position after a line, counted from 1, and the byte where the next line begins; tables have no byte."""

    line: int = 0
    byte: int = 0


class Row(NamedTuple):
    """A row and the position after it; `text` is None if the row is bad, and `error` gives the reason."""

    text: str | None
    id: str
    error: str
    end: Position


class Chunk(NamedTuple):
    """Rows of one file, including bad ones; `last` is whether they end the file."""

    number: int
    source: Source
    start: Position
    rows: list[Row]
    last: bool

    def record(self) -> dict[str, Any]:
        """The chunk without its texts; `dead` are the lines of bad rows and the reasons."""
        end = self.rows[-1].end if self.rows else self.start
        record = {"part": self.number, "file": self.source.path, "start": self.start, "end": end, "last": self.last}
        return {**record, "dead": [(row.end.line, row.error) for row in self.rows if row.text is None]}


@dataclasses.dataclass
class _Kept(BadRows):
    rows: list[Row] = dataclasses.field(default_factory=list)

    def __call__(self, line: int, reason: str) -> None:
        super().__call__(line, reason)
        self.rows.append(Row(None, "", reason, Position(line, self.tell())))

    def taken(self) -> list[Row]:
        taken, self.rows = self.rows, []
        return taken


def rows(source: Source, start: Position, skip_bad: bool) -> Generator[Row, None, None]:
    """The rows of a file after a position. A text file is read from there, a table from its beginning."""
    bad, name = _Kept(source.path, skip_bad), source.name or Path(source.path).name
    if source.format == "txt":
        found: Any = ((line, (text,)) for line, text in numbered_lines(source.path, bad, start=start))
    else:
        columns = [source.column, source.ids] if source.ids else [source.column]
        found = table_rows(source.path, columns, source.format, bad)  # type: ignore[arg-type]
    for line, (text, *ids) in found:
        yield from (row for row in bad.taken() if row.end.line > start.line)
        if line <= start.line:
            continue
        if why := problem(text):
            bad(line, f"{source.column}: {why}" if source.column else why)
        else:
            yield Row(text, str(ids[0]) if ids else f"{name}:{line}", "", Position(line, bad.tell()))
    yield from (row for row in bad.taken() if row.end.line > start.line)


def chunks(
    inputs: list[dict[str, Any]], size: int, skip_bad: bool, done: Mapping[int, Mapping[str, Any]]
) -> Iterator[Chunk]:
    """The chunks of sources, given by their `facts`, without those `done`: `record` by number."""
    number = 0
    for source in (Source(*(facts[field.name] for field in dataclasses.fields(Source))) for facts in inputs):
        position, last = Position(), False
        while not last:
            if number in done:
                position, last = Position(*done[number]["end"]), done[number]["last"]
                number += 1
                continue
            with contextlib.closing(rows(source, position, skip_bad)) as found:
                upcoming = next(found, None)
                while not last and number not in done:
                    chunk = [upcoming, *itertools.islice(found, size - 1)] if upcoming else []
                    upcoming = next(found, None)
                    last = upcoming is None
                    yield Chunk(number, source, position, chunk, last)
                    position, number = chunk[-1].end if chunk else position, number + 1
