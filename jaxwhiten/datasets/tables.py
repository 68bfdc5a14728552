"""User tables with named columns: TSV, CSV, JSON lines and Parquet.

TSV is split on tabs without quoting, as common corpora are written; CSV has the usual quotes; gzip is recognised by its
content. Bad rows raise an error with file and line, or are counted and dropped.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.datasets.textfile import MAX_LINE_BYTES, MAX_RATIO, MAX_UNPACKED, BadRows, numbered_lines
from jaxwhiten.errors import DataError, optional, unknown_name
from jaxwhiten.io import PathLike

_FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
_FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
_BATCH, _BATCH_BYTES = 65_536, 64 << 20
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_HELP = "Specify the column names of this file."


class Table(dict[str, list[Any]]):
    """Columns by name, with the line (Parquet: row) of each row in the file, and the number of bad rows dropped."""

    def __init__(self, columns: Mapping[str, list[Any]], path: Path, lines: np.ndarray, skipped: int):
        super().__init__(columns)
        self.path = path
        self.lines = lines
        self.skipped = skipped

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.path}, line {self.lines[row]}"

    def numbers(self, column: str) -> np.ndarray:
        """A column in float64; DataError names the line of a value that is not a number."""
        found = np.empty(len(self.lines))
        for row, value in enumerate(self[column]):
            try:
                found[row] = value
            except ValueError:
                raise DataError(f"{self.where(row)}: the {column} {str(value)[:40]!r} is not a number.") from None
        return found

    def texts(self, column: str) -> list[str]:
        """A column of texts; DataError names the line of a value that is not text."""
        for row, value in enumerate(self[column]):
            if not isinstance(value, str):
                raise DataError(f"{self.where(row)}: {column} is {value!r:.40}, not text.")
        return self[column]


def split_name(path: PathLike) -> tuple[str, str]:
    """A file's name without its ending, and the ending in lower case, both without `.gz`."""
    name = Path(path).name
    stem, ending = os.path.splitext(name[:-3] if name.lower().endswith(".gz") else name)
    return stem, ending.lower()


def table_format(path: PathLike) -> str | None:
    """The format of a file by its name: tsv, csv, jsonl or parquet; None for an unknown suffix."""
    return _FORMATS.get(split_name(path)[1])


def _check_columns(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    counts = Counter(header)  # a line has room for millions of names
    for name in names:
        if counts[name] != 1:
            problem = "no column" if name not in counts else "more than one column"
            known = ", ".join(header[:20])[:400]
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {known}. {_HELP}")


def _csv_rows(path: Path, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    last = 0

    def feed() -> Iterator[str]:
        nonlocal last
        for last, line in numbered_lines(path, bad):  # noqa: B007 (read by the outer function)
            yield line + "\n"

    reader = csv.reader(feed(), strict=True)
    while True:
        try:
            for row in reader:
                if row:
                    yield last, row
            return
        except csv.Error as error:
            bad(last, f"not valid CSV ({error})")


# A reader takes the columns to read (None for all); it yields their names, then line and values of every row.
Reader = Generator[Any, None, None]


def _read_delimited(
    path: Path, columns: Sequence[str] | None, bad: BadRows, rows: Iterator[tuple[int, list[str]]]
) -> Reader:
    _, header = next(rows, (0, []))
    if not header:
        raise DataError(f"{path}, line 1: the file is empty; expected a header line.")
    names, width = header if columns is None else columns, len(header)
    if columns is not None:
        _check_columns(path, header, names)
    yield names
    places = range(width) if columns is None else [header.index(name) for name in names]
    least = max(places, default=0) + 1
    for number, row in rows:
        if least <= len(row) <= width:
            yield number, [row[place] for place in places]
        else:
            bad(number, f"{len(row)} columns, expected {width}")


def _json_problem(value: Any, names: Sequence[str], escaped: bool) -> str | None:
    if not isinstance(value, dict):
        return "not a JSON object (one object per line is expected)"
    for name in names:
        if name not in value:
            return f"no key {name!r}"
        item = value[name]
        if not isinstance(item, str | int | float):
            return f"{name!r} is {'null' if item is None else 'a ' + type(item).__name__}, expected text or a number"
        if escaped and isinstance(item, str) and _NOT_TEXT.search(item):
            return f"{name!r} contains a NUL or an unpaired surrogate, which is not text"
    return None


def _read_jsonl(path: Path, names: Sequence[str] | None, bad: BadRows) -> Reader:
    if names is not None:
        yield names
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad(number, f"not valid JSON ({str(error)[:80]})")
            continue
        if names is None and isinstance(value, dict):
            names = list(value)
            yield names
        # `numbered_lines` refuses NULs and surrogates; only escapes can still hold them.
        if problem := _json_problem(value, names or (), "\\u" in line):
            bad(number, problem)
        else:
            yield number, [value[name] for name in names or ()]
    if names is None:
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")


_TOO_LONG = object()


def _cells(pa: Any, column: Any) -> list[Any]:
    """The values of a column; `_TOO_LONG` replaces texts of more than `MAX_LINE_BYTES` characters."""
    column.validate(full=True)  # in a damaged file, indices may lie outside the dictionary
    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    texts = [
        _TOO_LONG if isinstance(text, str) and len(text) > MAX_LINE_BYTES else text
        for text in column.dictionary.to_pylist()
    ]
    return [None if place is None else texts[place] for place in column.indices.to_pylist()]


def _rows_at_once(path: Path, metadata: Any) -> int:
    """The rows of a batch of moderate size; DataError for a file that unpacks to far more than its own size."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    most = max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size)
    if (size := sum(group.total_byte_size for group in groups)) > most:
        raise DataError(f"{path}: unpacks to {size:,} bytes, over {MAX_RATIO} times its size. Write it uncompressed.")
    width = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return int(min(_BATCH, max(1, _BATCH_BYTES // max(1, width))))


def _read_parquet(path: Path, columns: Sequence[str] | None, bad: BadRows) -> Reader:
    pq = optional("pyarrow.parquet", "data", "Reading Parquet", "pyarrow")
    import pyarrow as pa

    types = pa.types
    accepted = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    try:
        # As a dictionary, a column holds repeated texts only once.
        strings = (types.is_string, types.is_large_string)
        texts = [field.name for field in pq.read_schema(path) if any(kind(field.type) for kind in strings)]
        with pq.ParquetFile(path, read_dictionary=texts, buffer_size=1 << 20) as file:
            schema = file.schema_arrow
            names = schema.names if columns is None else columns
            _check_columns(path, schema.names, names)
            for field in map(schema.field, names):
                kind = field.type.value_type if types.is_dictionary(field.type) else field.type
                if not any(is_kind(kind) for is_kind in accepted):
                    raise DataError(f"{path}: column {field.name!r} is of type {field.type}, expected text or numbers.")
            yield names
            first = 1
            for batch in file.iter_batches(batch_size=_rows_at_once(path, file.metadata), columns=names):
                cells = [_cells(pa, batch.column(name)) for name in names]
                for number, row in enumerate(zip(*cells, strict=True), first):
                    if None in row:
                        bad(number, f"{names[row.index(None)]!r} is null")
                    elif _TOO_LONG in row:
                        bad(number, f"{names[row.index(_TOO_LONG)]!r} is longer than {MAX_LINE_BYTES} bytes")
                    else:
                        yield number, row
                first += batch.num_rows
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0][:200]}).") from error


def _read(path: Path, columns: Sequence[str] | None, bad: BadRows, format: str | None = None) -> Reader:
    format = format or table_format(path)
    if format is None:
        raise unknown_name(f"ending of the table {path}:", split_name(path)[1], _FORMATS)
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    if format == "parquet":
        return _read_parquet(path, columns, bad)
    if format == "jsonl":
        return _read_jsonl(path, columns, bad)
    tsv = ((number, line.split("\t")) for number, line in numbered_lines(path, bad) if line)
    return _read_delimited(path, columns, bad, tsv if format == "tsv" else _csv_rows(path, bad))


def read_header(path: PathLike, format: str | None = None) -> list[str]:
    """Column names of a table, from its first line (JSON lines: the keys of the first object)."""
    with contextlib.closing(_read(Path(path), None, BadRows(path), format)) as rows:
        return next(rows)


def table_rows(
    path: PathLike, columns: Sequence[str], format: str | None = None, bad: BadRows | None = None
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yields, in bounded memory, each row's line in the file and its values in the order of the columns."""
    rows = _read(Path(path), columns, bad or BadRows(path), format)
    next(rows)
    yield from rows


def read_table(
    path: PathLike,
    columns: Mapping[str, str] | None = None,
    *,
    skip_bad_rows: bool = False,
    header: Sequence[str] = (),
) -> Table:
    """Reads named columns of a table; a row of TSV or CSV may be short if the columns read are there.

    Args:
      path: A `.tsv`, `.txt` (tabs), `.csv`, `.jsonl` or `.parquet` file; all but Parquet also gzipped.
      columns: Maps names in the result to names in the file; by default all columns under their own names.
      skip_bad_rows: Whether to skip bad rows and count them in `skipped`, instead of raising an error.
      header: Column names of a TSV or CSV file whose first line is a row.

    Returns:
      The columns as lists: text from TSV and CSV, text and numbers from JSON lines and Parquet.

    Raises:
      DataError: A column is missing, or a row is bad (wrong number of columns, not UTF-8, not JSON, null); the message
        names file and line.
    """
    path = Path(path)
    bad = BadRows(path, skip_bad_rows)
    rows = _read(path, None if header or columns is None else list(columns.values()), bad)
    first = next(rows)
    if not header:
        _check_columns(path, first, first)
    found = [(1, first), *rows] if header else list(rows)
    values = {name: [row[i] for _, row in found] for i, name in enumerate(header or columns or first)}
    return Table(values, path, np.fromiter((line for line, _ in found), np.int64, len(found)), bad.count)
