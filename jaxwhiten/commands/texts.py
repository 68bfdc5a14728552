"""Sentences from files and pipes, one by one, in bounded memory."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxwhiten.commands import arguments
from jaxwhiten.commands.arguments import add
from jaxwhiten.errors import REASON, DataError, InputError, check_name, turning
from jaxwhiten.options import Rule, check_options
from jaxwhiten.types import Json

if TYPE_CHECKING:
    from jaxwhiten.datasets.chunks import Source
    from jaxwhiten.datasets.columns import Columns
    from jaxwhiten.search import Index

FORMATS = ("txt", "tsv", "csv", "jsonl", "parquet", "arrow")
STDIN = "-"
_NO_COLUMNS = Rule(
    ("column", "ids", "metadata"),
    "{path}: a text file has no columns: omit {given}, or specify --format.",
    beside=("text",),
)


def add_texts(parser: argparse.ArgumentParser, what: str = "sentences", **settings: Any) -> None:
    """Adds the positional argument for the input, and `add_format`."""
    endings = ".txt (one per line), .tsv, .csv, .jsonl or .parquet, a folder of such files; - for stdin"
    add(parser, "input", f"{what}: {endings}", type=arguments.Source, **settings)
    add_format(parser)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds --format and --column."""
    add(parser, "--format FORMAT", f"{', '.join(FORMATS)}; default: from the file extension, otherwise txt")
    column = (
        "text column of a table; repeated, the columns are joined by a line break. Default: the only one, sentence or"
        " text"
    )
    add(parser, "--column NAME", column, action="append")


def is_parts(path: str) -> bool:
    """Whether a path is a folder of `jaxwhiten embed`."""
    return os.path.isfile(os.path.join(path, "plan.json"))


def sentences(path: str, format: str | None = None, columns: Sequence[str] | None = None) -> Iterator[str]:
    """The sentences of a file, in its order, blank ones too.

    Lines from stdin are passed on immediately; a table from stdin is first written to a temporary file.
    """
    return (record.text for record in records(path, format, columns))


class Record(NamedTuple):
    """A sentence with its value in the column of IDs, or its file and line, and with its values in other columns."""

    id: Any
    text: str
    metadata: Json | None = None


def records(
    path: str,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    ids: str | None = None,
    keep: Sequence[str] = (),
) -> Iterator[Record]:
    """Like `sentences`, with IDs and with the values in the columns `keep`."""
    from jaxwhiten.datasets.chunks import rows
    from jaxwhiten.datasets.tables import metadata_rows
    from jaxwhiten.datasets.textfile import is_pipe, spooled, spooled_stream

    if path == STDIN and format in (None, "txt"):
        check_columns(path, "txt", columns, ids, keep)
        with turning(DataError, f"{REASON} Specify --format for a table.", DataError):
            yield from (Record(None, line) for line in stdin_lines())
        return
    if path == STDIN:
        path = str(spooled_stream(stdin(), "stdin"))
    elif is_pipe(path) and format_of(path, format) != "txt":
        path = str(spooled(path))
    for source in sources([path], format, columns, ids, keep):
        parsed = rows(source, blank=True)
        if not keep:
            yield from (Record(row.id, row.text or "") for row in parsed)
            continue
        for row, (_, metadata) in zip(parsed, metadata_rows(source.path, source.format, keep), strict=True):
            yield Record(row.id, row.text or "", metadata)


def stdin_lines() -> Iterator[str]:
    """The lines of stdin, in UTF-8 whatever the locale is, each at once."""
    from jaxwhiten.datasets.textfile import BadRows, lines_of

    return (line for _, line in lines_of(stdin().readline, BadRows("stdin")))


def stdin() -> Any:
    """The bytes of stdin; InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("stdin is closed: specify the input, or redirect stdin from a file or a pipe.")
    return sys.stdin.buffer


def sources(
    words: Sequence[str],
    format: str | None = None,
    columns: Sequence[str] | None = None,
    ids: str | None = None,
    keep: Sequence[str] = (),
) -> list[Source]:
    """The files that files, folders and patterns name, each with its format and its column of texts.

    A note says which columns were chosen by their names.
    """
    from jaxwhiten.datasets import corpus_files
    from jaxwhiten.datasets.chunks import Source
    from jaxwhiten.datasets.columns import TEXTS
    from jaxwhiten.datasets.tables import FORMATS as KNOWN
    from jaxwhiten.terminal import note

    paths = [str(path) for word in words for path in corpus_files(word, tuple(KNOWN))]
    root = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    result = []
    chosen = dict[str, None]()
    for path in paths:
        kind = format_of(path, format)
        check_columns(path, kind, columns, ids, keep)
        column = "+".join(columns or ()) or None
        if kind != "txt" and not column:
            text_name = text_column(path, kind, [*([ids] if ids else []), *keep])
            chosen[text_name.words(TEXTS)] = None
            column = str(*text_name.sentences)
        result.append(Source(path, kind, column, ids, Path(os.path.relpath(os.path.abspath(path), root)).as_posix()))
    for what in chosen:
        note(what)
    return result


def check_columns(
    path: str, format: str, columns: Sequence[str] | None, ids: str | None, keep: Sequence[str] = ()
) -> None:
    options = {"column": columns, "ids": ids, "metadata": list(keep), "path": path, "text": format == "txt"}
    check_options([_NO_COLUMNS], options)


def format_of(path: str, format: str | None = None) -> str:
    """The given format, or else the format of the file's ending; txt for unknown endings."""
    from jaxwhiten.datasets.tables import table_format
    from jaxwhiten.datasets.textfile import split_name

    if format is None:
        format = "txt" if split_name(path)[1] == ".txt" else table_format(path) or "txt"
    check_name("format", format, FORMATS)
    return format


def nonempty(texts: Iterator[str], path: str) -> Iterator[str]:
    """The sentences; DataError if there are none. Some are read at once, so that errors appear before a model is
    loaded.

    From a pipe only one is read, because a pipe may never send more.
    """
    first = list(itertools.islice(texts, 1 if path == STDIN else 1000))
    if not first:
        raise DataError(f"{path}: contains no texts.")
    return itertools.chain(first, texts)


def text_column(path: str, format: str, others: Collection[str]) -> Columns:
    """The column of the sentences by its name; `others` contain none."""
    from jaxwhiten.datasets.columns import TEXT, TEXTS, guess, roles
    from jaxwhiten.datasets.sts import check_header
    from jaxwhiten.datasets.tables import read_header

    header = [name for name in read_header(path, format, whole=False) if name not in others]
    if len(header) == 1 and roles(header).get(header[0]) != TEXT:  # of the first object of JSON lines
        header = [name for name in read_header(path, format) if name not in others]
    check_header(path, header)
    return guess(header, TEXTS, path)


def ids_in(path: str, format: str | None = None, column: Sequence[str] | None = None) -> list[Any]:
    """The ids in a file of lines, or in the column of a table, exactly as written."""
    return [id for id in sentences(path, format, column) if id != ""]


def as_stored(ids: list[Any] | None, index: Index) -> list[Any] | None:
    """Converts ids to the kind of the index, since a file or command line may not distinguish numbers from text."""
    if index.id_type == "string":
        return ids and [str(id) if type(id) is int else id for id in ids]
    return ids and [int(id) if isinstance(id, str) and re.fullmatch("0|[1-9][0-9]*", id) else id for id in ids]
