"""Sentences from files and pipes, one after the other, in bounded memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxwhiten.errors import DataError, InputError, unknown_name

FORMATS = ("txt", "tsv", "csv", "jsonl", "parquet")
STDIN = "-"
# Column names taken without being asked for, in this order.
_USUAL = ("sentence", "text")


def add_texts(parser: argparse.ArgumentParser, what: str = "sentences") -> None:
    """The positional argument for the input file, --format and --column."""
    parser.add_argument(
        "input",
        help=f"{what}: .txt with one a line, .tsv, .csv, .jsonl or .parquet with a column of them; - for stdin",
    )
    parser.add_argument(
        "--format", metavar="FORMAT", help=f"{', '.join(FORMATS)}; default: by the ending, and txt for others"
    )
    parser.add_argument(
        "--column",
        action="append",
        metavar="NAME",
        help="of a table; given twice, each row is two sentences. Default: the only column, or sentence, or text",
    )


def sentences(path: str, format: str | None = None, columns: Sequence[str] | None = None) -> Iterator[str]:
    """Sentences of a file, in its order. Blank lines of a text file are sentences, too.

    Args:
      path: The file, plain or gzip, or `-` for stdin. Lines from stdin are passed on as they come; a table from stdin
        is first kept in a temporary file.
      format: One of `FORMATS`; by default what the ending says.
      columns: Columns of a table.

    Yields:
      The sentences.

    Raises:
      DataError: The file cannot be read, a column is missing or a row is bad; the message names file and line.
      InputError: An unknown format, or columns of a text file.
    """
    format = _format(path, format)
    if format == "txt":
        if columns:
            raise InputError(f"{path}: a text file has no columns; leave --column out, or say --format.")
        yield from _stdin_lines() if path == STDIN else _lines(path)
        return
    with _as_file(path) as file:
        yield from _cells(file, format, columns)


def _format(path: str, format: str | None) -> str:
    if format is not None:
        if format not in FORMATS:
            raise unknown_name("format", format, FORMATS)
        return format
    from jaxwhiten.datasets.tables import table_format

    if path == STDIN or Path(path.lower().removesuffix(".gz")).suffix == ".txt":
        return "txt"
    return table_format(path) or "txt"


def _lines(path: str) -> Iterator[str]:
    from jaxwhiten.datasets.textfile import line_blocks

    for _, block in line_blocks(path):
        yield from block


def _stdin_lines() -> Iterator[str]:
    from jaxwhiten.datasets.textfile import MAX_LINE_BYTES

    stream = sys.stdin.buffer
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(f"stdin, line {number}: longer than {MAX_LINE_BYTES} bytes.")
        if b"\0" in raw:
            raise DataError(f"stdin, line {number}: holds a NUL byte: not text. Say --format for a table.")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"stdin, line {number}: not UTF-8 ({error.reason}).") from None
        yield line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def _as_file(path: str) -> Iterator[str]:
    if path != STDIN:
        yield path
        return
    handle, name = tempfile.mkstemp(prefix="jaxwhiten-stdin-")
    try:
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield name
    finally:
        os.unlink(name)


def _cells(path: str, format: str, columns: Sequence[str] | None) -> Iterator[str]:
    from jaxwhiten.datasets.tables import read_header, table_rows

    if not columns:
        header = read_header(path, format)
        usual = [name for name in _USUAL if name in header]
        if len(header) > 1 and not usual:
            raise DataError(f"{path}: say with --column which column holds the sentences: {', '.join(header)[:400]}.")
        columns = usual[:1] or header
    for line, row in table_rows(path, columns, format):
        for name, value in zip(columns, row, strict=True):
            if not isinstance(value, str):
                raise DataError(f"{path}, line {line}: {name!r} is {value!r:.80}, not text.")
            yield value
