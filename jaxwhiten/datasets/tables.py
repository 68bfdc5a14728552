"""User tables with named columns: TSV, CSV, JSON lines and Parquet.

TSV is split on tabs without quoting, as the common corpora are written; CSV has the usual quotes; gzip is recognised
by its content. Bad rows are refused with file and line, or counted and left out.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.datasets.textfile import MAX_LINE_BYTES, BadRows, line_blocks
from jaxwhiten.errors import DataError, InputError, missing_dependency, unknown_name

_FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
_FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
_BATCH = 65_536
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_HELP = "Give the column names of this file."


class Table(dict[str, list[Any]]):
    """Columns by name, all of equal length, with the origin of their rows.

    Attributes:
      path: The file.
      lines: Line (Parquet: row) of the file for each row, counted from 1.
      skipped: Number of bad rows left out.
    """

    def __init__(self, columns: Mapping[str, list[Any]], path: Path, lines: np.ndarray, skipped: int):
        super().__init__(columns)
        self.path = path
        self.lines = lines
        self.skipped = skipped

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.path}, line {self.lines[row]}"


def split_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """A file's name without its ending, and the ending in lower case, both without `.gz`."""
    name = Path(path).name
    stem, ending = os.path.splitext(name[:-3] if name.lower().endswith(".gz") else name)
    return stem, ending.lower()


def table_format(path: str | os.PathLike[str]) -> str | None:
    """The format of a file by its name: tsv, csv, jsonl or parquet; None for an unknown suffix."""
    return _FORMATS.get(split_name(path)[1])


def _columns_of(path: Path, header: Sequence[str], columns: Mapping[str, str] | None) -> tuple[list[str], list[int]]:
    """Names of the result's columns and their positions in the header."""
    columns = {name: name for name in header} if columns is None else columns
    for name in columns.values():
        if header.count(name) != 1:
            problem = "no column" if name not in header else "more than one column"
            known = ", ".join(header[:20])[:400]
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {known}. {_HELP}")
    return list(columns), [header.index(name) for name in columns.values()]


def _good_rows(
    numbers: Sequence[int], rows: Sequence[Any], problem_of: Callable[[Any], str | None], bad: BadRows
) -> tuple[Sequence[int], list[Any]]:
    """The rows without a problem, with their numbers; the others go to `bad`."""
    kept = []
    for i, row in enumerate(rows):
        if problem := problem_of(row):
            bad(numbers[i], problem)
        else:
            kept.append(i)
    return [numbers[i] for i in kept], [rows[i] for i in kept]


def _numbered_rows(path: Path, bad: BadRows, format: str) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """Rows of a TSV or CSV file in blocks, header included, blank lines left out."""
    if format == "tsv":
        for numbers, lines in line_blocks(path, bad):
            filled = [i for i, line in enumerate(lines) if line]
            yield [numbers[i] for i in filled], [lines[i].split("\t") for i in filled]
        return
    last = 0

    def feed() -> Iterator[str]:
        nonlocal last
        for numbers, lines in line_blocks(path, bad):
            for last, line in zip(numbers, lines, strict=True):  # noqa: B007 (read by the outer function)
                yield line + "\n"

    reader = csv.reader(feed(), strict=True)
    found: list[int] = []
    rows: list[list[str]] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            bad(last, f"not valid CSV ({error})")
            continue
        if row is None:
            break
        if row:
            found.append(last)
            rows.append(row)
        if len(rows) == _BATCH:
            yield found, rows
            found, rows = [], []
    yield found, rows


def _read_delimited(
    path: Path, format: str, columns: Mapping[str, str] | None, bad: BadRows, ragged: bool
) -> Generator[Any, None, None]:
    """Yields the column names, then batches."""
    blocks = ((numbers, rows) for numbers, rows in _numbered_rows(path, bad, format) if rows)
    first_numbers, first_rows = next(blocks, ((), []))
    if not first_rows:
        raise DataError(f"{path}, line 1: the file is empty; expected a header line.")
    header = first_rows[0]
    width = len(header)
    names, places = _columns_of(path, header, columns)
    yield names
    least = max(places, default=0) + 1 if ragged else width

    def problem_of(row: list[str]) -> str | None:
        return None if least <= len(row) <= width else f"{len(row)} columns, expected {width}"

    for numbers, rows in itertools.chain([(first_numbers[1:], first_rows[1:])], blocks):
        numbers, rows = _good_rows(numbers, rows, problem_of, bad)
        yield numbers, [[row[place] for place in places] for row in rows]


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
            return f"{name!r} holds a NUL or an unpaired surrogate, which is not text"
    return None


def _read_jsonl(path: Path, columns: Mapping[str, str] | None, bad: BadRows) -> Generator[Any, None, None]:
    """Yields the column names, then batches."""
    names = None if columns is None else list(columns.values())
    if columns is not None:
        yield list(columns)
    for numbers, lines in line_blocks(path, bad):
        found, rows = [], []
        for number, line in zip(numbers, lines, strict=True):
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
            # `line_blocks` refuses NULs and surrogates; only escapes can still hold them.
            if problem := _json_problem(value, names or [], "\\u" in line):
                bad(number, problem)
                continue
            found.append(number)
            rows.append([value[name] for name in names or []])
        if names is not None:
            yield found, rows
    if names is None:
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")


_TOO_LONG = object()


def _cells(pa: Any, column: Any) -> list[Any]:
    """The values of a column, with `_TOO_LONG` for texts of more than `MAX_LINE_BYTES` characters."""
    column.validate(full=True)  # the indices of a damaged file can lie outside its dictionary
    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    texts = [
        _TOO_LONG if isinstance(text, str) and len(text) > MAX_LINE_BYTES else text
        for text in column.dictionary.to_pylist()
    ]
    return [None if place is None else texts[place] for place in column.indices.to_pylist()]


def _read_parquet(path: Path, columns: Mapping[str, str] | None, bad: BadRows) -> Generator[Any, None, None]:
    """Yields the column names, then batches."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_dependency("pyarrow", "data", "Reading Parquet") from None
    types = pa.types
    accepted = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    try:
        # Read as a dictionary, a column holds a text that many rows share only once.
        texts = [field.name for field in pq.read_schema(path) if types.is_string(field.type)]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            header = file.schema_arrow.names
            names, places = _columns_of(path, header, columns)
            for place in places:
                field = file.schema_arrow.field(place)
                kind = field.type.value_type if types.is_dictionary(field.type) else field.type
                if not any(is_kind(kind) for is_kind in accepted):
                    raise DataError(f"{path}: column {field.name!r} is of type {field.type}, expected text or numbers.")
            yield names

            def problem_of(row: tuple[Any, ...]) -> str | None:
                if None in row:
                    return f"{names[row.index(None)]!r} is null"
                if _TOO_LONG in row:
                    return f"{names[row.index(_TOO_LONG)]!r} is longer than {MAX_LINE_BYTES} bytes"
                return None

            first = 1
            for batch in file.iter_batches(batch_size=_BATCH, columns=[header[place] for place in places]):
                values = [_cells(pa, batch.column(header[place])) for place in places]
                numbers = range(first, first + batch.num_rows)
                first += batch.num_rows
                yield _good_rows(numbers, list(zip(*values, strict=True)), problem_of, bad)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DataError | InputError):
            raise
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0][:200]}).") from error


def _read(
    path: Path, columns: Mapping[str, str] | None, bad: BadRows, ragged: bool, format: str | None = None
) -> Generator[Any, None, None]:
    format = format or table_format(path)
    if format is None:
        raise unknown_name(f"ending of the table {path}:", split_name(path)[1], _FORMATS)
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    if format == "parquet":
        return _read_parquet(path, columns, bad)
    if format == "jsonl":
        return _read_jsonl(path, columns, bad)
    return _read_delimited(path, format, columns, bad, ragged)


def read_header(path: str | os.PathLike[str], format: str | None = None) -> list[str]:
    """Column names of a table, read from its first line (JSON lines: the keys of the first object)."""
    rows = _read(Path(path), None, BadRows(path), False, format)
    try:
        return next(rows)
    finally:
        rows.close()


def table_rows(
    path: str | os.PathLike[str], columns: Sequence[str], format: str | None = None
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yields each row's line in the file and its values in the order of the columns, in bounded memory."""
    batches = _read(Path(path), {name: name for name in columns}, BadRows(path), True, format)
    next(batches)
    for numbers, rows in batches:
        yield from zip(numbers, rows, strict=True)


def read_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    *,
    skip_bad_rows: bool = False,
    ragged: bool = False,
) -> Table:
    """Reads named columns of a table.

    Args:
      path: A `.tsv`, `.txt` (tabs), `.csv`, `.jsonl` or `.parquet` file; all but Parquet also gzipped.
      columns: From name in the result to name in the file; by default all columns under their own names.
      skip_bad_rows: Whether to skip bad rows and count them in `skipped`, instead of raising an error.
      ragged: Whether rows of TSV and CSV may lack unused columns at the end.

    Returns:
      The columns as lists: text from TSV and CSV, text and numbers from JSON lines and Parquet.

    Raises:
      DataError: A column is missing, or a row is bad (wrong number of columns, not UTF-8, not JSON, null); the message
        names file and line.
      InputError: Unknown file suffix.
    """
    path = Path(path)
    bad = BadRows(path, skip_bad_rows)
    batches = _read(path, columns, bad, ragged)
    names = next(batches)
    values: list[list[Any]] = [[] for _ in names]
    lines: list[np.ndarray] = []
    for numbers, rows in batches:
        lines.append(np.asarray(numbers, dtype=np.int64))
        for column, part in zip(values, zip(*rows, strict=True), strict=False):
            column.extend(part)
    where = np.concatenate(lines) if lines else np.zeros(0, np.int64)
    return Table(dict(zip(names, values, strict=True)), path, where, bad.count)
