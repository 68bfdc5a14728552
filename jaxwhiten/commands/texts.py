"""Sentences from files and pipes, one by one, in bounded memory."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from jaxwhiten.commands.arguments import add
from jaxwhiten.errors import DataError, InputError, check_name

FORMATS = ("txt", "tsv", "csv", "jsonl", "parquet")
STDIN = "-"
# Column names that are used by default, in this order.
_USUAL = ("sentence", "text")


def add_texts(parser: argparse.ArgumentParser, what: str = "sentences", **settings: Any) -> None:
    """Adds the positional argument for the input file, --format and --column."""
    endings = ".txt (one per line), or a column of .tsv, .csv, .jsonl or .parquet; - for stdin"
    add(parser, "input", f"{what}: {endings}", **settings)
    add(parser, "--format FORMAT", f"{', '.join(FORMATS)}; default: from the file extension, otherwise txt")
    column = "text column of a table, twice for two sentences per row; default: the only column, or sentence, or text"
    add(parser, "--column NAME", column, action="append")


def sentences(path: str, format: str | None = None, columns: Sequence[str] | None = None) -> Iterator[str]:
    """The sentences of a file, in its order. Blank lines of a text file are sentences, too.

    Lines from stdin are passed on immediately; a table from stdin is first written to a temporary file.
    """
    return (text for _, text in records(path, format, columns))


def records(
    path: str, format: str | None = None, columns: Sequence[str] | None = None, ids: str | None = None
) -> Iterator[tuple[Any, str]]:
    """Like `sentences`, each with its value in the column `ids`, or None."""
    from jaxwhiten.datasets.textfile import BadRows, lines_of, numbered_lines

    format = format_of(path, format)
    if format == "txt" and (columns or ids):
        raise InputError(f"{path}: a text file has no columns: omit --column and --id, or specify --format.")
    if ids and len(columns or ()) > 1:
        raise InputError("--id identifies one text per row: pass --column once.")
    if path != STDIN:
        lines = ((None, line) for _, line in numbered_lines(path)) if format == "txt" else None
        yield from lines or _cells(path, format, columns, ids)
    elif format == "txt":
        try:
            yield from ((None, line) for _, line in lines_of(sys.stdin.buffer.readline, BadRows("stdin")))
        except DataError as error:
            raise DataError(f"{error} Specify --format for a table.") from None
    else:
        with tempfile.NamedTemporaryFile(prefix="jaxwhiten-stdin-") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
            yield from _cells(file.name, format, columns, ids)


def format_of(path: str, format: str | None = None) -> str:
    """The given format, or else the format of the file's ending; txt for unknown endings."""
    from jaxwhiten.datasets.tables import split_name, table_format

    if format is None:
        format = "txt" if path == STDIN or split_name(path)[1] == ".txt" else table_format(path) or "txt"
    check_name("format", format, FORMATS)
    return format


def nonempty(texts: Iterator[str], path: str) -> Iterator[str]:
    """The sentences; DataError if there are none. Some are read at once, so that errors appear before a model is
    loaded.

    From a pipe only one is read, because a pipe may never send more.
    """
    first = list(itertools.islice(texts, 1 if path == STDIN else 1000))
    if not first:
        raise DataError(f"{path}: no sentences in it.")
    return itertools.chain(first, texts)


def text_columns(path: str, format: str, columns: Sequence[str] | None, ids: str | None) -> Sequence[str]:
    """The columns that hold the sentences: the given ones, or the only one, or one with a default name."""
    from jaxwhiten.datasets.tables import read_header

    if columns:
        return columns
    header = [name for name in read_header(path, format) if name != ids]
    usual = [name for name in _USUAL if name in header]
    if len(header) > 1 and not usual:
        raise DataError(f"{path}: specify the text column with --column: {', '.join(header)[:400]}.")
    return usual[:1] or header


def _cells(path: str, format: str, columns: Sequence[str] | None, ids: str | None) -> Iterator[tuple[Any, str]]:
    from jaxwhiten.datasets.tables import table_rows

    columns = text_columns(path, format, columns, ids)
    for line, row in table_rows(path, [*columns, *([ids] if ids else [])], format):
        for name, value in zip(columns, row, strict=False):
            if not isinstance(value, str):
                raise DataError(f"{path}, line {line}: {name!r} is {value!r:.80}, not text.")
            yield (row[-1] if ids else None), value
