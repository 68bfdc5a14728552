"""User tables with named columns: TSV, CSV, JSON lines and Parquet.

TSV is split on tabs without quoting, as common corpora are written; CSV has the usual quotes; compression is recognized
by its content. Bad rows raise an error with file and line, or are counted and dropped.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.datasets.textfile import (
    MAX_LINE_BYTES,
    MAX_RATIO,
    MAX_UNPACKED,
    BadRows,
    corpus_files,
    numbered_lines,
    split_name,
)
from jaxwhiten.errors import DataError, InputError, optional, unknown_name
from jaxwhiten.io import PathLike

FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
_BATCH, _BATCH_BYTES = 65_536, 64 << 20
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_HELP = "Specify the column names of this file."
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))

Column = str | Sequence[str]  # a name, or several whose texts are joined by a line break; "a+b" is ("a", "b")
Rows = Iterator[tuple[int, Sequence[Any]]]  # the line and the values of each row


class Table(dict[str, list[Any]]):
    """Columns by name, with the line (Parquet: row) of each row in the file, and the number of bad rows dropped.

    >>> read_table("pairs.tsv").numbers("score")
    array([4.5, 0. ])
    """

    def __init__(self, columns: Mapping[str, list[Any]], path: Path, lines: np.ndarray, skipped: int):
        super().__init__(columns)
        self.path = path
        self.lines = lines
        self.skipped = skipped

    def where(self, row: int) -> str:
        """File and line of a row, for messages; in a folder, or in memory, the row itself."""
        return f"{self.path}, " + (f"line {self.lines[row]}" if self.path.is_file() else f"row {row}")

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


def table_format(path: PathLike) -> str | None:
    """The format of a file by its name: tsv, csv, jsonl or parquet; None for an unknown suffix."""
    return FORMATS.get(split_name(path)[1])


def parts_of(column: Column, header: Collection[str]) -> list[str]:
    """The columns of a table that a column stands for: itself, or those that a list or `+` joins."""
    if not isinstance(column, str):
        return list(column)
    parts = column.split("+")
    return parts if len(parts) > 1 and column not in header and set(parts) <= set(header) else [column]


def check_columns(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raises DataError unless each of the columns occurs once."""
    counts = Counter(header)  # a line has room for millions of names
    for name in names:
        if counts[name] != 1:
            problem = "no column" if name not in counts else "more than one column"
            known = ", ".join(header[:20])[:400]
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {known}. {_HELP}")


# The names of a table's columns, and a function from the names to read to line and values of every row.
_Opened = tuple[Sequence[str], Callable[[Sequence[str]], Rows]]


def _csv_rows(path: Path, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    last, lines = 0, numbered_lines(path, bad)
    head = list(itertools.islice(lines, 1))

    def feed() -> Iterator[str]:
        nonlocal last
        for last, line in itertools.chain(head, lines):  # noqa: B007 (read by the outer function)
            yield line + "\n"

    # Spreadsheets of many countries write semicolons: what separates the cells is what gives the header most of them.
    cells = {mark: len(next(csv.reader([line for _, line in head], delimiter=mark), [])) for mark in ",;"}
    reader = csv.reader(feed(), delimiter=max(cells, key=cells.__getitem__), strict=True)
    while True:
        try:
            for row in reader:
                if row:
                    yield last, row
            return
        except csv.Error as error:
            bad(last, f"not valid CSV ({str(error).partition(' - ')[0]})")


def _delimited(path: Path, bad: BadRows, format: str, names: Sequence[str] = ()) -> _Opened:
    tsv = ((number, line.split("\t")) for number, line in numbered_lines(path, bad) if line)
    lines: Iterator[tuple[int, list[str]]] = tsv if format == "tsv" else _csv_rows(path, bad)
    number, header = next(lines, (0, []))
    if not header:
        raise DataError(f"{path}, line 1: the file is empty; expected a header line.")
    if names:  # the first line is a row
        lines, header = itertools.chain([(number, header)], lines), list(names)
    width = len(header)

    def rows(names: Sequence[str]) -> Rows:
        check_columns(path, header, names)
        at = {name: place for place, name in enumerate(header)}
        places = [at[name] for name in names]
        least = max(places, default=0) + 1
        for number, row in lines:
            if least <= len(row) <= width:
                yield number, [row[place] for place in places]
            else:
                lacks = f", so {header[least - 1]!r} is missing" if len(row) < least else ""
                bad(number, f"{len(row)} columns, expected {width}{lacks}")

    return header, rows


def _jsonl(path: Path, bad: BadRows) -> _Opened:
    def objects() -> Iterator[tuple[int, dict[str, Any], bool]]:
        for number, line in numbered_lines(path, bad):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                bad(number, f"not valid JSON ({str(error)[:80]})")
                continue
            if isinstance(value, dict):
                yield number, value, "\\u" in line
            else:
                bad(number, "not a JSON object (one object per line is expected)")

    def rows(names: Sequence[str]) -> Rows:
        for number, value, escaped in itertools.chain(first, found):
            # `numbered_lines` refuses NULs and surrogates; only escapes can still hold them.
            if problem := next(filter(None, (_json_problem(value, name, escaped) for name in names)), None):
                bad(number, problem)
            else:
                yield number, [value[name] for name in names]

    found = objects()
    if not (first := list(itertools.islice(found, 1))):
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")
    return list(first[0][1]), rows


def _json_problem(value: dict[str, Any], name: str, escaped: bool) -> str | None:
    if name not in value:
        return f"no key {name!r}; the keys are {', '.join(value)[:400]}"
    item = value[name]
    if not isinstance(item, str | int | float):
        return f"{name!r} is {'null' if item is None else 'a ' + type(item).__name__}, expected text or a number"
    if escaped and isinstance(item, str) and _NOT_TEXT.search(item):
        return f"{name!r} contains a NUL or an unpaired surrogate, which is not text"
    return None


class _Bad(str):
    """What is wrong with a cell."""


_NULL = _Bad("is null")


def _text(data: bytes | None) -> str:
    if data is None:
        return _NULL
    if len(data) > MAX_LINE_BYTES:
        return _Bad(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        return _Bad("contains a NUL byte") if b"\0" in data else data.decode()
    except UnicodeDecodeError as error:
        return _Bad(f"is not UTF-8 (byte 0x{data[error.start]:02x} at position {error.start})")


def _cells(column: Any) -> list[Any]:
    """The values of a column of Arrow; `_Bad` replaces those that are not text."""
    import pyarrow as pa

    places = column.indices if pa.types.is_dictionary(column.type) else column
    places.validate(full=True)
    if places is column:
        return [_NULL if cell is None else cell for cell in column.to_pylist()]
    large = pa.types.is_large_string(column.type.value_type)
    texts = column.dictionary.view(pa.large_binary() if large else pa.binary())
    pa.DictionaryArray.from_arrays(places, texts).validate(full=True)  # a damaged file points beyond its texts
    cells = list(map(_text, texts.to_pylist()))
    return [_NULL if place is None else cells[place] for place in places.to_pylist()]


def _rows_at_once(path: Path, metadata: Any) -> int:
    """The rows of a batch of moderate size; DataError for a file that unpacks to far more than its own size."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    most = max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size)
    if (size := sum(group.total_byte_size for group in groups)) > most:
        raise DataError(f"{path}: unpacks to {size:,} bytes, over {MAX_RATIO} times its size. Write it uncompressed.")
    width = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
    return int(min(_BATCH, max(1, _BATCH_BYTES // max(1, width))))


@contextlib.contextmanager
def _arrow_errors(path: Path) -> Iterator[None]:
    pa = optional("pyarrow", "data", "Reading Parquet")
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0][:200]}).") from error


def _parquet(path: Path, bad: BadRows) -> _Opened:
    pq = optional("pyarrow.parquet", "data", "Reading Parquet", "pyarrow")
    import pyarrow as pa

    types = pa.types
    strings = (types.is_string, types.is_large_string, types.is_string_view)
    accepted = (*strings, types.is_integer, types.is_floating, types.is_boolean)
    with _arrow_errors(path):
        schema = pq.read_schema(path)

    def rows(names: Sequence[str]) -> Rows:
        check_columns(path, schema.names, names)
        for field in map(schema.field, names):
            kind = field.type.value_type if types.is_dictionary(field.type) else field.type
            if not any(is_kind(kind) for is_kind in accepted):
                raise DataError(f"{path}: column {field.name!r} is of type {field.type}, expected text or numbers.")
        # As a dictionary, a column holds repeated texts only once.
        texts = [field.name for field in schema if any(kind(field.type) for kind in strings)]
        with _arrow_errors(path), pq.ParquetFile(path, read_dictionary=texts, buffer_size=1 << 20) as file:
            first = 1
            for batch in file.iter_batches(batch_size=_rows_at_once(path, file.metadata), columns=names):
                cells = [_cells(batch.column(name)) for name in names]
                for number, row in enumerate(zip(*cells, strict=True), first):
                    if _Bad in (kinds := list(map(type, row))):
                        wrong = kinds.index(_Bad)
                        bad(number, f"{names[wrong]!r} {row[wrong]}")
                    else:
                        yield number, row
                first += batch.num_rows

    return schema.names, rows


def _open(source: PathLike | Table, bad: BadRows, format: str | None = None, names: Sequence[str] = ()) -> _Opened:
    if isinstance(source, Table):
        lines = source.lines.tolist()
        return list(source), lambda names: zip(lines, zip(*map(source.__getitem__, names), strict=True), strict=True)
    path = Path(source)
    if path.is_dir():
        return _folder(path, bad, format)
    format = format or table_format(path)
    if format is None:
        raise unknown_name(f"ending of the table {path}:", split_name(path)[1], FORMATS)
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    if format == "parquet":
        return _parquet(path, bad)
    return _jsonl(path, bad) if format == "jsonl" else _delimited(path, bad, format, names)


def _folder(path: Path, bad: BadRows, format: str | None) -> _Opened:
    """The tables of a folder, one after the other."""
    files = corpus_files(path, tuple(FORMATS))

    def rows(names: Sequence[str]) -> Rows:
        for bad.path in files:
            yield from _open(bad.path, bad, format)[1](names)

    return _open(files[0], bad, format)[0], rows


def read_header(source: PathLike | Table, format: str | None = None) -> list[str]:
    """Column names of a table, from its first line (JSON lines: the keys of the first object).

    >>> read_header("pairs.tsv")
    ['sentence1', 'sentence2', 'score']
    """
    return list(_open(source, BadRows(str(source)), format)[0])


def table_rows(
    source: PathLike | Table, columns: Sequence[Column], format: str | None = None, bad: BadRows | None = None
) -> Rows:
    """Yields, in bounded memory, each row's line in the file and its values in the order of the columns."""
    header, rows = _open(source, bad or BadRows(str(source)), format)
    groups = [parts_of(column, header) for column in columns]
    names = list(dict.fromkeys(itertools.chain(*groups)))
    if groups == [[name] for name in names]:
        yield from rows(names)
        return
    places = [[names.index(name) for name in group] for group in groups]
    for number, row in rows(names):
        yield number, [_joined([row[at] for at in of]) if len(of) > 1 else row[of[0]] for of in places]


def _joined(values: Sequence[Any]) -> str:
    return "\n".join(filter(str.strip, map(str, values)))


def read_table(
    source: PathLike | Table,
    columns: Mapping[str, Column] | None = None,
    *,
    skip_bad_rows: bool = False,
    header: Sequence[str] = (),
) -> Table:
    """Reads named columns of a table; a row of TSV or CSV may be short if the columns read are there.

    >>> read_table("searches.tsv", {"text": "document"})
    {'text': ['A dog runs.', 'It rains.']}

    Args:
      source: A `.tsv`, `.txt` (tabs), `.csv`, `.jsonl` or `.parquet` file, all but Parquet also compressed by gzip,
        bzip2 or xz; a folder of such files; or the result of `as_table`.
      columns: Maps names in the result to names in the file, several of which are joined by a line break; by default
        all columns under their own names.
      skip_bad_rows: Whether to skip bad rows and count them in `skipped`, instead of raising an error.
      header: Column names of a TSV or CSV file whose first line is a row.

    Returns:
      The columns as lists: text from TSV and CSV, text and numbers from JSON lines and Parquet.

    Raises:
      DataError: A column is missing, or a row is bad (wrong number of columns, not UTF-8, not JSON, null); the message
        names file and line.
    """
    bad = BadRows(str(source), skip_bad_rows)
    if header:
        found = list(_open(source, bad, names=header)[1](header))
    else:
        columns = {name: name for name in read_header(source)} if columns is None else columns
        found = list(table_rows(source, list(columns.values()), bad=bad))
        header = list(columns)
    values = {name: [row[i] for _, row in found] for i, name in enumerate(header)}
    path = source.path if isinstance(source, Table) else Path(source)
    return Table(values, path, np.fromiter((line for line, _ in found), np.int64, len(found)), bad.count)


def as_table(rows: Any) -> Table | PathLike:
    """Rows of any kind as a table: tuples, dicts, columns, a DataFrame, a `datasets.Dataset`. A path stays a path.

    Raises:
      InputError: These are no rows, or they differ in length, or hold something else than text and numbers.
    """
    if isinstance(rows, Table | str | os.PathLike):
        return rows
    names = list(rows) if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is not None:
        columns = {str(name): list(getattr(rows[name], "to_pylist", rows[name].__iter__)()) for name in names}
    elif isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise InputError(f"Expected rows: a path, a table, tuples or dicts; got {type(rows).__name__}.")
    else:
        listed: list[Any] = [(row,) if isinstance(row, str) else row for row in rows]
        if listed and isinstance(listed[0], Mapping):
            return as_table({name: [row.get(name) for row in listed] for name in listed[0]})
        width = len(listed[0]) if listed and isinstance(listed[0], Sequence) else 0
        for number, row in enumerate(listed):
            if not isinstance(row, Sequence) or len(row) != width:
                raise InputError(f"Row {number}: expected a tuple of {width} items, got {row!r:.60}.")
        columns = {f"column{place + 1}": list(cells) for place, cells in enumerate(zip(*listed, strict=True))}
    if len(lengths := {len(column) for column in columns.values()}) != 1 or 0 in lengths:
        raise InputError(f"Expected at least one row and columns of one length, got {sorted(lengths)} rows.")
    for name, column in columns.items():
        for number, value in enumerate(column):
            if not isinstance(value, str | int | float | np.number) or value != value:
                raise InputError(f"Row {number}: {name} is {value!r:.60}, expected text or a number.")
    return Table(columns, Path("rows"), np.arange(len(next(iter(columns.values())))), 0)
