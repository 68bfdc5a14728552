"""Readers of tables, one row after the other: delimited text by `csv`, JSON lines by `json`, Parquet by `pyarrow`."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from jaxwhiten.datasets.textfile import BadRows, damage, decoded, numbered_lines
from jaxwhiten.errors import REASON, DataError, optional, turning
from jaxwhiten.io import Identity, identity
from jaxwhiten.types import Json

Rows = Iterator[tuple[int, Sequence[Any]]]  # the line and the values of each row
MISSING = object()  # the value of a key that a row lacks
_DELIMITERS = ",;\t"  # spreadsheets of many countries write semicolons
_BATCH = 1024  # rows of Parquet
_BATCH_BYTES = 1 << 30  # of a column in them
_CELL = 16 << 20  # characters of a cell of CSV; a quotation mark that is never closed may enclose so many
csv.field_size_limit(max(csv.field_size_limit(), _CELL))


class Opened(NamedTuple):
    """A table that is read lazily, in one pass."""

    header: Callable[[], Sequence[str]]
    cells: Callable[[Sequence[str]], Rows]  # takes the names of the columns to read


def check_columns(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raises DataError unless each of the columns occurs once."""
    for name in names:
        if header.count(name) != 1:
            problem = "more than one column" if name in header else "no column"
            listed = ", ".join(header[:20])[:400]
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {listed}. Specify some of these.")


def delimited(path: Path, bad: BadRows, format: str) -> Opened:
    """A table of TSV, or of CSV with the delimiter of its header."""
    lines = decoded(path)
    first = next(lines, "")
    if not first:
        raise DataError(f"{path}, line 1: the file is empty; expected a header line.")
    with turning(DataError, f"{path}, line 1: not a header line ({REASON}).", csv.Error):
        marks = "\t" if format == "tsv" else _DELIMITERS
        delimiter = max(marks, key=lambda mark: len(next(csv.reader([first], delimiter=mark), ())))
    rows = _csv_rows(itertools.chain([first], lines), delimiter, bad)
    header = next(rows, (1, ["\0"]))[1]
    if bad.count or any(map(damage, header)):
        raise DataError(f"{path}, line 1: not a header line: expected the names of columns in UTF-8.")

    def cells(names: Sequence[str]) -> Rows:
        check_columns(path, header, names)
        places = [header.index(name) for name in names]
        for number, row in rows:
            if len(row) == len(header):
                yield number, [row[place] for place in places]
            else:
                bad(number, f"{len(row)} columns, expected {len(header)}")

    return Opened(lambda: header, cells)


def _csv_rows(lines: Iterator[str], delimiter: str, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    """The rows of CSV with the number of their last line; after a bad row, reading resumes at its second line."""
    swallowed = deque[str]()  # lines after the first one of a bad row
    used = list[str]()  # lines of the current row

    def source() -> Iterator[str]:
        while line := swallowed.popleft() if swallowed else next(lines, ""):
            used.append(line)
            yield line

    def reader() -> Iterator[list[str]]:
        return csv.reader(source(), delimiter=delimiter, strict=True)

    number = 0
    rows = reader()
    while True:
        used.clear()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            number += 1
            reason = str(error).partition(" - ")[0]
            bad(number, f"its quotation marks are not valid ({reason}): quote such a cell, and double those in it")
            swallowed.extendleft(reversed(used[1:]))
            rows = reader()
            continue
        number += len(used)
        if row:
            yield number, row


def json_lines(path: Path, bad: BadRows) -> Opened:
    """A table of JSON objects, whose columns are the keys of all of them."""

    def cells(names: Sequence[str]) -> Rows:
        return ((line, [row.get(name, MISSING) for name in names]) for line, row in _objects(path, bad))

    def header() -> Sequence[str]:
        keys = _keys(path, identity(path))
        if not keys:
            next(_objects(path, bad), None)  # raises the error of its first line
        return keys

    return Opened(header, cells)


def _objects(path: Path, bad: BadRows) -> Iterator[tuple[int, Json]]:
    """The objects of JSON lines, each with the number of its line."""
    empty = True
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        empty = False
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad(number, f"not valid JSON ({str(error)[:80]})")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            bad(number, "not a JSON object (one object per line is expected)")
    if empty:
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")


@lru_cache(maxsize=8)  # an entry point asks for them several times
def _keys(path: Path, state: Identity) -> list[str]:
    """The keys of all objects of JSON lines."""
    objects = (value for _, value in _objects(path, BadRows(path, skip=True)))
    return list(dict.fromkeys(itertools.chain.from_iterable(objects)))


def arrow(path: Path, format: str) -> Opened:
    """A table of Parquet, or of Arrow as a file or a stream."""
    with _batches(path, format) as (schema, _):
        header = schema.names

    def cells(names: Sequence[str]) -> Rows:
        check_columns(path, header, names)
        return enumerate(values(names), 1)

    def values(names: Sequence[str]) -> Iterator[Sequence[Any]]:
        with _batches(path, format, list(dict.fromkeys(names))) as (_, batches):
            for batch in batches:
                batch.validate(full=True)  # a damaged file has texts that are not UTF-8, or points beyond them
                yield from zip(*(_values(batch.column(name)).to_pylist() for name in names), strict=True)

    return Opened(lambda: header, cells)


def _values(column: Any) -> Any:
    """A column of a batch without its dictionary; ValueError if that would be large, since a small file can say so."""
    dictionary = getattr(column, "dictionary", None)
    if dictionary is None:
        return column
    if len(column) * dictionary.nbytes > _BATCH_BYTES:
        pc = optional("pyarrow.compute", "data", "Reading Parquet")
        lengths = pc.take(pc.binary_length(dictionary), column.indices)
        if (pc.sum(lengths).as_py() or 0) > _BATCH_BYTES:
            raise ValueError(f"{len(column)} rows contain more than {_BATCH_BYTES >> 20} MB of text: shorten its texts")
    return column.dictionary_decode()


@contextlib.contextmanager
def _batches(path: Path, format: str, names: list[str] | None = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the batches of a file; columns of texts have the dictionary that they are stored with."""
    pa = optional("pyarrow", "data", "Reading Parquet and Arrow")
    kinds = (pa.ArrowException, OSError, ValueError, OverflowError)
    with turning(DataError, f"{path}: not a readable {format.capitalize()} file ({REASON}).", *kinds):
        if format == "parquet":
            parquet = optional("pyarrow.parquet", "data", "Reading Parquet")
            facts = parquet.read_metadata(path)
            stored = map(facts.schema.column, range(facts.num_columns))
            texts = [column.path for column in stored if column.physical_type == "BYTE_ARRAY"]
            coded = {*texts} & {*(names or ())}
            with parquet.ParquetFile(path, metadata=facts, read_dictionary=coded, buffer_size=1 << 20) as file:
                yield file.schema_arrow, file.iter_batches(_BATCH, columns=names)
            return
        with pa.OSFile(str(path)) as file:
            if file.read(6) == b"ARROW1":
                reader = pa.ipc.open_file(file)
                yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
            else:
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                yield reader.schema, reader
