"""Tables with named columns, in files or in memory: read lazily and in one pass, or as columns.

A bad row raises an error with file, line and reason, or is counted and dropped.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import check_collected, column_values
from jaxwhiten.datasets.readers import MISSING, Opened, Rows, arrow, check_columns, delimited, json_lines
from jaxwhiten.datasets.textfile import BadRows, damage, split_name, spooled
from jaxwhiten.errors import DataError, InputError, optional, unknown_name
from jaxwhiten.io import PathLike, existing

FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")

Column = str  # a name, or several joined by `+`, whose texts are joined by a line break


class Table(dict[str, list[Any]]):
    """Columns by name, with the line (Parquet: row) of each row in the file, and the number of bad rows dropped.

    >>> read_table("pairs.tsv").numbers("score")
    array([4.5, 0. ])
    """

    def __init__(self, columns: Mapping[str, list[Any]], path: Path, lines: np.ndarray, skipped: int = 0):
        super().__init__(columns)
        self.path = path
        self.lines = lines
        self.skipped = skipped

    @property
    def unit(self) -> str:
        """What `lines` are numbers of: the lines of a file, or rows in memory."""
        return "line" if self.path.is_file() else "row"

    def where(self, row: int) -> str:
        """File and line of a row, for messages; in memory, the row itself."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def numbers(self, column: str) -> np.ndarray:
        """A column in float64; DataError names the line of a value that is not a finite number."""
        values = np.array(list(map(number_of, self[column])), np.float64)
        if not (finite := np.isfinite(values)).all():
            row = int(np.argmin(finite))
            raise DataError(f"{self.where(row)}: {column} is {self[column][row]!r:.40}, expected a finite number.")
        return values

    def texts(self, column: str) -> list[str]:
        """A column of texts; DataError names the line of a value that is not text."""
        for row, value in enumerate(self[column]):
            if not isinstance(value, str):
                raise DataError(f"{self.where(row)}: {column} is {value!r:.40}, not text.")
        return self[column]


def number_of(value: Any) -> float:
    """The number of a cell; NaN if there is none."""
    try:
        return float(value)
    except ValueError:
        return math.nan


def table_format(path: PathLike) -> str | None:
    """The format of a file by its name: tsv, csv, jsonl, parquet or arrow; None for an unknown suffix."""
    return FORMATS.get(split_name(path)[1])


def parts_of(column: Column, header: Collection[str]) -> list[str]:
    """The columns of a table that a column stands for: itself, or those that `+` joins."""
    parts = column.split("+")
    return [column] if column in header or not set(parts) <= set(header) else parts


def _problem(name: str, value: object) -> str | None:
    """What is wrong with the cell of a column; None for text and numbers."""
    if isinstance(value, str):
        reason = damage(value)
        return f"{name!r}: {reason}" if reason else None
    if isinstance(value, int | float | np.number | np.bool_):
        return None if value == value else f"{name!r} is nan, expected text or a number"
    if value is MISSING:
        return f"no key {name!r}"
    return f"{name!r} is {'null' if value is None else 'a ' + type(value).__name__}, expected text or a number"


def where_of(source: PathLike | Table) -> PathLike:
    """The path of a table, or what stands for it in messages."""
    return source.path if isinstance(source, Table) else source


def bad_rows(source: PathLike | Table, skip: bool = False) -> BadRows:
    """What handles the bad rows of a table."""
    return BadRows(where_of(source), skip, unit=source.unit if isinstance(source, Table) else "line")


def _open(source: PathLike | Table, bad: BadRows, format: str | None = None) -> Opened:
    if isinstance(source, Table):
        return _in_memory(source)
    path = Path(source)
    format = format or table_format(path)
    if format is None:
        raise unknown_name(f"ending of the table {path}:", split_name(path)[1], FORMATS)
    existing(path, DataError)
    if format in ("parquet", "arrow"):
        return arrow(path, format)
    if format == "jsonl":
        return json_lines(path, bad)
    return delimited(path, bad, format)


def _in_memory(table: Table) -> Opened:
    def cells(names: Sequence[str]) -> Rows:
        check_columns(table.path, list(table), names)
        return zip(table.lines.tolist(), zip(*map(table.__getitem__, names), strict=True), strict=True)

    return Opened(lambda: list(table), cells)


def read_header(source: PathLike | Table, format: str | None = None) -> list[str]:
    """Column names of a table, from its first line; JSON lines: the keys of all objects.

    A row that lacks one of them is bad if that column is read.

    >>> read_header("pairs.tsv")
    ['sentence1', 'sentence2', 'score']

    Args:
      source: As for `read_table`.
      format: The format of the file; by default that of its ending.
    """
    return list(_open(source, bad_rows(source), format).header())


def table_rows(
    source: PathLike | Table,
    columns: Sequence[Column],
    format: str | None = None,
    bad: BadRows | None = None,
    keep: Sequence[str] = (),
) -> Rows:
    """Yields, in bounded memory, each row's line in the file and its values in the order of the columns.

    Values in the columns `keep` follow as JSON has them: None where there is none, dates and the like as text.
    """
    bad = bad or bad_rows(source)
    opened = _open(source, bad, format)
    groups = [parts_of(column, opened.header()) if "+" in column else [column] for column in columns]
    names = list(dict.fromkeys(itertools.chain(*groups)))
    places = [[names.index(name) for name in group] for group in groups]
    if keep:
        check_columns(Path(where_of(source)), opened.header(), keep)
    for number, row in opened.cells([*names, *keep]):
        if problem := next(filter(None, map(_problem, names, row)), None):
            bad(number, problem)
        elif keep and bytes in map(type, row[len(names) :]):
            bad(number, "binary values cannot be metadata: keep other columns")
        else:
            values = [_joined([row[place] for place in group]) for group in places]
            yield number, values + list(map(_as_json, row[len(names) :])) if keep else values


def _joined(values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    return "\n".join(filter(str.strip, map(str, values)))


def _as_json(value: object) -> Any:
    """A value of a cell as JSON has it."""
    if value is MISSING or isinstance(value, str):
        return None if value is MISSING else value
    return json.loads(json.dumps(value, default=str), parse_constant=lambda constant: None)


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
      source: A `.tsv` or `.txt` (tabs), `.csv` (commas, semicolons or tabs, as in its header) or `.jsonl` file, also
        compressed (`.gz`, `.bz2`, `.xz`); a `.parquet`, `.arrow` or `.feather` file; or the result of `as_table`.
      columns: Maps names in the result to names in the file, several of which are joined by a line break; by default
        all columns under their own names.
      skip_bad_rows: Whether to skip bad rows and count them in `skipped`, instead of raising an error.

    Returns:
      The columns as lists: text from TSV and CSV, text and numbers from JSON lines, Parquet and Arrow.

    Raises:
      DataError: A column is missing, or a row is bad (wrong number of columns, not UTF-8, not JSON, null); the message
        names file and line.
    """
    bad = bad_rows(source, skip_bad_rows)
    if columns is None:
        columns = {name: name for name in read_header(source)}
    rows = list(table_rows(source, list(columns.values()), bad=bad))
    values = {name: [row[place] for _, row in rows] for place, name in enumerate(columns)}
    lines = np.array([line for line, _ in rows], np.int64)
    return Table(values, Path(where_of(source)), lines, bad.count)


def as_table(rows: Any) -> Table | PathLike:
    """Rows of any kind as a table: tuples, dicts, columns, a DataFrame, a `datasets.Dataset`. A path stays a path.

    Rows are read in one pass, because a stream may shuffle them for each. The columns of dicts are the keys of all of
    them. What a pipe sends is copied to a file.

    >>> as_table([{"query": "a dog", "document": "A dog runs."}])
    {'query': ['a dog'], 'document': ['A dog runs.']}

    Raises:
      InputError: These are no rows, they differ in length, or two columns have one name.
    """
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, str | os.PathLike):
        return spooled(rows)
    columns = _columns(rows)
    if len(lengths := {len(column) for column in columns.values()}) != 1 or 0 in lengths:
        raise InputError(f"Expected at least one row and columns of one length, got {sorted(lengths)} rows.")
    return Table(columns, Path("rows"), np.arange(*lengths))


def _columns(rows: Any) -> dict[str, list[Any]]:
    """The columns of rows by name."""
    check_collected(rows)
    if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "__array__"):  # a query, as of DuckDB
        rows = optional("pyarrow", "data", "Reading Arrow").table(rows)
    if hasattr(rows, "__len__") or not isinstance(rows, Iterable):  # a stream has no length
        names = [*rows] if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
        if hasattr(rows, "iter"):  # a `datasets.Dataset`, whose format may show some of its columns
            batches = list(map(_columns, rows.iter(batch_size=1000)))
            return {name: [value for batch in batches for value in batch[name]] for name in (batches or [{}])[0]}
        if names is not None:
            return {name: list(column_values(rows[key])) for name, key in _names(names).items()}
    if isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise InputError(f"Expected rows: a path, a table, tuples or dicts; got {type(rows).__name__}.")
    listed: list[Any] = [(row,) if isinstance(row, str) else row for row in rows]
    first: Any = next(iter(listed), ())
    kind: Any = Mapping if isinstance(first, Mapping) else Sequence
    for number, row in enumerate(listed):
        if not isinstance(row, kind) or (kind is Sequence and len(row) != len(first)):
            expected = "a dict as in row 0" if kind is Mapping else f"a tuple of {len(first)} items"
            raise InputError(f"Row {number}: expected {expected}, got {row!r:.60}.")
    if kind is Sequence:
        return {f"column{place}": list(cells) for place, cells in enumerate(zip(*listed, strict=True), 1)}
    keys = dict.fromkeys(itertools.chain.from_iterable(listed))
    return {name: [row.get(key, MISSING) for row in listed] for name, key in _names(keys).items()}


def _names(keys: Iterable[Any]) -> dict[str, Any]:
    """The keys of columns by their names; InputError if two have one name."""
    names = dict[str, Any]()
    for key in keys:
        if str(key) in names:
            raise InputError(f"The rows have more than one column {str(key)!r}: rename or drop one.")
        names[str(key)] = key
    return names
