"""User tables with named columns: TSV, CSV, JSON lines and Parquet.

TSV and CSV have the usual quotes, as `csv`, pandas and spreadsheets write them; in a line of TSV without valid quotes,
quotation marks are text. Compression is recognized by its content. Bad rows raise an error with file and line, or are
counted and dropped.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import check_collected, column_values
from jaxwhiten.datasets.textfile import (
    MAX_LINE_BYTES,
    MAX_RATIO,
    MAX_UNPACKED,
    BadRows,
    corpus_files,
    is_pipe,
    numbered_lines,
    split_name,
    spooled,
)
from jaxwhiten.errors import REASON, DataError, InputError, optional, turning, unknown_name
from jaxwhiten.io import Identity, PathLike, existing, identity
from jaxwhiten.types import Json, MetadataLike

FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
_BATCH = 65_536
_BATCH_BYTES = 64 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))

Column = str | Sequence[str]  # a name, or several whose texts are joined by a line break; "a+b" is ("a", "b")
_Line = tuple[int, str]
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
        """A column in float64; DataError names the line of a value that is not a finite number."""
        values = np.empty(len(self.lines))
        for row, value in enumerate(self[column]):
            try:
                values[row] = value
            except ValueError:
                raise DataError(f"{self.where(row)}: the {column} {str(value)[:40]!r} is not a number.") from None
        if not (finite := np.isfinite(values)).all():
            row = int(np.argmin(finite))
            raise DataError(f"{self.where(row)}: the {column} is {values[row]}, expected a finite number.")
        return values

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
    if len(parts) > 1 and column not in header and set(parts) <= set(header):
        return parts
    return [column]


def check_columns(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raises DataError unless each of the columns occurs once."""
    counts = Counter(header)  # a line has room for millions of names
    for name in names:
        if counts[name] != 1:
            problem = "no column" if name not in counts else "more than one column"
            listed = ", ".join(header[:20])[:400]
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {listed}. Specify some of these.")


class _Opened(NamedTuple):
    """A table that is read lazily."""

    first: Sequence[str]  # the names of its columns in its first line
    cells: Callable[[Sequence[str]], Rows]  # takes the names of the columns to read
    names: Callable[[], Sequence[str]]  # those that occur in any line
    clean: bool = False  # whether all cells are text


_MISSING = object()  # the value of a key that a row lacks


def _problem(name: str, value: object) -> str | None:
    """What is wrong with the cell of a column; None for text and numbers."""
    if isinstance(value, str):
        wrong = "\0" in value or (not value.isascii() and _SURROGATE.search(value))
        return f"{name!r} contains a NUL or an unpaired surrogate" if wrong else None
    if isinstance(value, int | float | np.number | np.bool_):
        return None
    if value is _MISSING:
        return f"no key {name!r}"
    return f"{name!r} is {'null' if value is None else 'a ' + type(value).__name__}, expected text or a number"


def _checked(rows: Rows, names: Sequence[str], bad: BadRows) -> Rows:
    """The rows whose cells are text and numbers."""
    for number, row in rows:
        if problem := next(filter(None, map(_problem, names, row)), None):
            bad(number, problem)
        else:
            yield number, row


def _separator(line: str) -> str:
    """What gives a header the most cells: spreadsheets of many countries write semicolons."""
    try:
        cells = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in ",;"}
    except csv.Error:
        return ","
    return max(cells, key=cells.__getitem__)


def _cells(lines: Iterator[_Line], mark: str, bad: BadRows, plain: int = 0) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its last line.

    In a line of so many cells as a `plain` one has, quotation marks are text if they are no valid quotes.
    """
    again = deque[_Line]()
    used = list[_Line]()

    def texts() -> Iterator[str]:
        while line := again.popleft() if again else next(lines, None):
            used.append(line)
            yield f"{line[1]}\n"

    while line := again.popleft() if again else next(lines, None):
        number, text = line
        row = text.split(mark)
        if '"' not in text:
            if text:
                yield number, row
            continue
        used[:] = [line]
        problem = ""
        try:
            quoted = next(csv.reader(itertools.chain([f"{text}\n"], texts()), delimiter=mark, strict=True))
        except csv.Error as error:
            problem = str(error).partition(" - ")[0]
        whole = plain == len(row)
        if plain and not problem and len(quoted) != plain:
            problem = f"{len(quoted)} columns, expected {plain}"
        if whole and len(used) > 1 and all(line.count(mark) == plain - 1 for _, line in used):
            problem = "they enclose rows"
        if not problem:
            yield used[-1][0], quoted
            continue
        again.extendleft(reversed(used[1:]))
        if whole:
            yield number, row
        else:
            bad(number, f"its quotation marks are not valid ({problem})")


def _delimited(path: Path, bad: BadRows, format: str) -> _Opened:
    skipped = bad.count
    lines = numbered_lines(path, bad)
    head = next((line for line in lines if line[1]), None)
    if head is None or bad.count > skipped:
        raise DataError(f"{path}, line 1: {'not readable' if head else 'the file is empty'}; expected a header line.")
    mark = "\t" if format == "tsv" else _separator(head[1])
    _, header = next(_cells(itertools.chain([head], lines), mark, BadRows(path)))
    width = len(header)

    def cells(names: Sequence[str]) -> Rows:
        check_columns(path, header, names)
        places = [header.index(name) for name in names]
        for number, row in _cells(lines, mark, bad, plain=width if format == "tsv" else 0):
            if len(row) == width:
                yield number, [row[place] for place in places]
            else:
                bad(number, f"{len(row)} columns, expected {width}")

    return _Opened(header, cells, lambda: header, clean=True)


def _objects(path: Path, bad: BadRows) -> Iterator[tuple[int, Json]]:
    """The objects of JSON lines, each with the number of its line."""
    for number, line in numbered_lines(path, bad):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad(number, f"not valid JSON ({str(error)[:80]})")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            bad(number, "not a JSON object (one object per line is expected)")


def _jsonl(path: Path, bad: BadRows) -> _Opened:
    objects = _objects(path, bad)
    if not (first := list(itertools.islice(objects, 1))):
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")

    def cells(names: Sequence[str]) -> Rows:
        return ((line, [row.get(name, _MISSING) for name in names]) for line, row in itertools.chain(first, objects))

    return _Opened(list(first[0][1]), cells, lambda: _keys(path, identity(path)))


@lru_cache(maxsize=8)  # an entry point asks for them several times
def _keys(path: Path, state: Identity) -> list[str]:
    """The keys of all objects of JSON lines."""
    keys = dict[str, None]()
    for _, value in _objects(path, BadRows(path, skip=True)):
        if not keys.keys() >= value.keys():
            keys |= dict.fromkeys(value)
    return list(keys)


def _values(column: Any) -> list[Any]:
    """The values of a column of Arrow; each text of a dictionary is one object, however often it occurs."""
    import pyarrow as pa

    column.validate(full=True)  # a damaged file has texts that are not UTF-8, or points beyond them
    if not pa.types.is_dictionary(column.type):
        return column.to_pylist()
    texts = column.dictionary.to_pylist()
    return [None if place is None else texts[place] for place in column.indices.to_pylist()]


def _rows_at_once(path: Path, metadata: MetadataLike) -> int:
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
    kinds = (pa.ArrowException, OSError, ValueError, OverflowError)
    with turning(DataError, f"{path}: not a readable Parquet file ({REASON}).", *kinds):
        yield


def _parquet(path: Path) -> _Opened:
    pq = optional("pyarrow.parquet", "data", "Reading Parquet", "pyarrow")
    with _arrow_errors(path):
        schema = pq.read_schema(path)

    def batches(names: Sequence[str]) -> Iterator[Sequence[Any]]:
        # As a dictionary, a column holds repeated texts only once.
        texts = [field.name for field in schema if str(field.type).removeprefix("large_").startswith("string")]
        with _arrow_errors(path), pq.ParquetFile(path, read_dictionary=texts, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(batch_size=_rows_at_once(path, file.metadata), columns=names):
                yield from zip(*(_values(batch.column(name)) for name in names), strict=True)

    def cells(names: Sequence[str]) -> Rows:
        check_columns(path, schema.names, names)
        return enumerate(batches(names), 1)

    return _Opened(schema.names, cells, lambda: schema.names)


def _in_memory(table: Table) -> _Opened:
    def cells(names: Sequence[str]) -> Rows:
        check_columns(table.path, list(table), names)
        return zip(table.lines.tolist(), zip(*map(table.__getitem__, names), strict=True), strict=True)

    return _Opened(list(table), cells, lambda: list(table))


def _bad_rows(source: PathLike | Table, skip: bool = False) -> BadRows:
    return BadRows(source.path if isinstance(source, Table) else str(source), skip)


def _open(source: PathLike | Table, bad: BadRows, format: str | None = None) -> _Opened:
    if isinstance(source, Table):
        return _in_memory(source)
    path = Path(source)
    if path.is_dir():
        return _folder(path, bad, format)
    format = format or table_format(path)
    if format is None:
        raise unknown_name(f"ending of the table {path}:", split_name(path)[1], FORMATS)
    if is_pipe(path):
        raise DataError(f"{path}: is a pipe, which can be read only once: save what it sends in a file.")
    existing(path, DataError)
    if format == "parquet":
        return _parquet(path)
    if format == "jsonl":
        return _jsonl(path, bad)
    return _delimited(path, bad, format)


def _folder(path: Path, bad: BadRows, format: str | None) -> _Opened:
    """The tables of a folder, one after the other."""
    files = corpus_files(path, tuple(FORMATS))

    def cells(names: Sequence[str]) -> Rows:
        for bad.path in files:
            yield from _open(bad.path, bad, format).cells(names)

    def columns() -> list[str]:
        return list(dict.fromkeys(itertools.chain(*(_open(file, BadRows(file), format).names() for file in files))))

    return _Opened(_open(files[0], bad, format).first, cells, columns)


def read_header(source: PathLike | Table, format: str | None = None, *, whole: bool = True) -> list[str]:
    """Column names of a table, from its first line; JSON lines: the keys of all objects.

    A row that lacks one of them is bad if that column is read.

    >>> read_header("pairs.tsv")
    ['sentence1', 'sentence2', 'score']

    Args:
      source: As for `read_table`.
      format: The format of the file; by default that of its ending.
      whole: Whether all JSON lines, and all files of a folder, are read for their keys, or only the first.
    """
    opened = _open(source, _bad_rows(source), format)
    return list(opened.names() if whole else opened.first)


def table_rows(
    source: PathLike | Table, columns: Sequence[Column], format: str | None = None, bad: BadRows | None = None
) -> Rows:
    """Yields, in bounded memory, each row's line in the file and its values in the order of the columns."""
    bad = bad or _bad_rows(source)
    opened = _open(source, bad, format)
    joined = any(isinstance(column, str) and "+" in column for column in columns)
    header = opened.names() if joined else opened.first
    groups = [parts_of(column, header) for column in columns]
    names = list(dict.fromkeys(itertools.chain(*groups)))
    rows = opened.cells(names) if opened.clean else _checked(opened.cells(names), names, bad)
    if groups == [[name] for name in names]:
        yield from rows
        return
    places = [[names.index(name) for name in group] for group in groups]
    for number, row in rows:
        yield number, [_joined([row[at] for at in of]) if len(of) > 1 else row[of[0]] for of in places]


def metadata_rows(path: PathLike, format: str, names: Sequence[str]) -> Iterator[tuple[int, Json]]:
    """Yields each row's line in the file and its values in columns, as JSON has them; None where there is no value.

    Dates and other values that JSON does not have are text.
    """
    opened = _open(path, BadRows(path), format)
    check_columns(Path(path), opened.names(), names)
    for number, row in opened.cells(names):
        if any(isinstance(value, bytes) for value in row):
            raise DataError(f"{path}, line {number}: binary values cannot be metadata: keep other columns.")
        yield number, dict(zip(names, map(_as_json, row), strict=True))


def _as_json(value: object) -> Any:
    """A value of a cell as JSON has it."""
    if value is _MISSING or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _as_json(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def _joined(values: Sequence[Any]) -> str:
    return "\n".join(filter(str.strip, map(str, values)))


def read_table(
    source: PathLike | Table,
    columns: Mapping[str, Column] | None = None,
    *,
    skip_bad_rows: bool = False,
) -> Table:
    """Reads named columns of a table.

    >>> read_table("searches.tsv", {"text": "document"})
    {'text': ['A dog runs.', 'It rains.']}

    Args:
      source: A `.tsv`, `.txt` (tabs), `.csv`, `.jsonl` or `.parquet` file, all but Parquet also compressed by gzip,
        bzip2 or xz; a folder of such files; or the result of `as_table`.
      columns: Maps names in the result to names in the file, several of which are joined by a line break; by default
        all columns under their own names.
      skip_bad_rows: Whether to skip bad rows and count them in `skipped`, instead of raising an error.

    Returns:
      The columns as lists: text from TSV and CSV, text and numbers from JSON lines and Parquet.

    Raises:
      DataError: A column is missing, or a row is bad (wrong number of columns, not UTF-8, not JSON, null); the message
        names file and line.
    """
    bad = _bad_rows(source, skip_bad_rows)
    if columns is None:
        columns = {name: name for name in read_header(source)}
    parsed = list(table_rows(source, list(columns.values()), bad=bad))
    values = {name: [row[i] for _, row in parsed] for i, name in enumerate(columns)}
    path = source.path if isinstance(source, Table) else Path(source)
    return Table(values, path, np.fromiter((line for line, _ in parsed), np.int64, len(parsed)), bad.count)


def as_table(rows: Any) -> Table | PathLike:
    """Rows of any kind as a table: tuples, dicts, columns, a DataFrame, a `datasets.Dataset`. A path stays a path.

    The columns of dicts are the keys of all of them. What a pipe sends is copied to a file.

    Raises:
      InputError: These are no rows, they differ in length, two columns have one name, or they hold something else than
        text and numbers.
    """
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, str | os.PathLike):
        return spooled(rows)
    columns = _columns(rows)
    if len(lengths := {len(column) for column in columns.values()}) != 1 or 0 in lengths:
        raise InputError(f"Expected at least one row and columns of one length, got {sorted(lengths)} rows.")
    for name, column in columns.items():
        for number, value in enumerate(column):
            if value != value or (value is not _MISSING and _problem(name, value)):
                raise InputError(f"Row {number}: {name} is {value!r:.60}, expected text or a number.")
    return Table(columns, Path("rows"), np.arange(len(next(iter(columns.values())))), 0)


def _columns(rows: Any) -> dict[str, list[Any]]:
    """The columns of rows by name, read in one pass: what is read twice may be shuffled."""
    check_collected(rows)
    names = list(rows) if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    stream = isinstance(rows, Iterable) and not hasattr(rows, "__len__")
    if names is not None and not stream:
        if hasattr(rows, "iter"):  # a `datasets.Dataset`, whose format may show some of its columns
            batches = list(map(_columns, rows.iter(batch_size=1000)))
            return {name: [value for batch in batches for value in batch[name]] for name in (batches or [{}])[0]}
        _check_names(names)
        return {str(name): list(column_values(rows[name])) for name in names}
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise InputError(f"Expected rows: a path, a table, tuples or dicts; got {type(rows).__name__}.")
    listed: list[Any] = [(row,) if isinstance(row, str) else row for row in rows]
    if listed and isinstance(listed[0], Mapping):
        return _columns_of(listed)
    width = len(listed[0]) if listed and isinstance(listed[0], Sequence) else 0
    for number, row in enumerate(listed):
        if not isinstance(row, Sequence) or len(row) != width:
            raise InputError(f"Row {number}: expected a tuple of {width} items, got {row!r:.60}.")
    return {f"column{place + 1}": list(cells) for place, cells in enumerate(zip(*listed, strict=True))}


def _columns_of(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of dicts by name."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"Row {number}: expected a dict as in row 0, got {row!r:.60}.")
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    _check_names(names)
    return {str(name): [row.get(name, _MISSING) for row in rows] for name in names}


def _check_names(names: Iterable[Any]) -> None:
    """Raises InputError if two columns have one name."""
    if repeated := [name for name, count in Counter(map(str, names)).items() if count > 1]:
        raise InputError(f"The rows have more than one column {repeated[0]!r}: rename or drop one.")
