"""User tables with named columns: TSV, CSV, JSON lines and Parquet.

CSV has the usual quotes. TSV is split on tabs, as common corpora are written, but for the cells that libraries quote:
those with a tab, a line break or a doubled quotation mark in quotes, and all cells below a header in quotes.
Compression is recognized by its content. Bad rows raise an error with file and line, or are counted and dropped.
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
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import column_values
from jaxwhiten.coded import check_collected
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
from jaxwhiten.typing import Json, MetadataLike

FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".parquet": "parquet"}
FORMATS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl")
_BATCH = 65_536
_BATCH_BYTES = 64 << 20
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_HELP = "Specify the column names of this file."
# A quotation mark is stray if all lines that follow it within its quotes read as rows, with more separators than these.
_STRAY_AFTER = 16
_UNCLOSED = "unexpected end"  # the error of `csv` for quotes that are open where the text ends
_JSON_KINDS = {str, int, float, bool}
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
        self.gaps: frozenset[str] = frozenset()  # columns that some rows lack; reading them makes these rows bad

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
            raise DataError(f"{path}, line 1: {problem} {name!r}; the columns are {listed}. {_HELP}")


class _Opened(NamedTuple):
    """A table that is read lazily."""

    first: Sequence[str]  # the names of its columns in its first line
    rows: Callable[[Sequence[str]], Rows]  # takes the names of the columns to read
    names: Callable[[], Sequence[str]]  # those that occur in any line


_Line = tuple[int, str]


def _separator(line: str) -> str:
    """What gives a header the most cells: spreadsheets of many countries write semicolons."""
    try:
        cells = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in ",;"}
    except csv.Error:
        return ","
    return max(cells, key=cells.__getitem__)


class _Quotes:
    """Reads the rows that quotes extend over several lines, and gives back lines that were read in vain."""

    def __init__(self, lines: Iterator[_Line], mark: str, width: int):
        self.lines = lines
        self.mark = mark
        self.width = width  # of a row; 0 if lines that read as rows say nothing
        self.again = deque[_Line]()  # lines to be read once more
        self.used: list[_Line] = []  # the lines of the row
        self._alike = 0  # lines in quotes that read as a row
        self._begin()

    def _begin(self) -> None:
        self._reader = csv.reader(iter(self._text, None), delimiter=self.mark, strict=True)

    def row(self, line: _Line) -> list[str] | str:
        """The cells of the row that begins in a line, or what is wrong with its quotes."""
        self.again.appendleft(line)
        self.used = []
        self._alike = 0
        try:
            return next(self._reader, [])
        except csv.Error as error:
            self._begin()
            return str(error).partition(" - ")[0]

    def _text(self) -> str | None:
        used = self.used
        line = self.again.popleft() if self.again else next(self.lines, None)
        if line is None:
            return None
        used.append(line)
        if len(used) == 1:
            return line[1]
        self._alike += line[1].count(self.mark) == self.width - 1
        stray = self._alike == len(used) - 1 and self._alike * max(1, self.width - 1) > _STRAY_AFTER
        if stray:
            return None
        return f"\n{line[1]}"

    def give_back(self) -> None:
        """Gives back the lines of the latest row but its first."""
        self.again.extendleft(reversed(self.used[1:]))

    def hold_rows(self, lines: Sequence[_Line]) -> bool:
        """Whether every line reads as a row of its own, so that quotes around them are stray."""
        return self.width > 1 and all(line.count(self.mark) == self.width - 1 for _, line in lines)


def _csv_cells(lines: Iterator[_Line], bad: BadRows, mark: str, width: int) -> Rows:
    """The cells of each row, with the number of its last line.

    A row with a stray quotation mark is bad, and the lines after its first are read once more.
    """
    quotes = _Quotes(lines, mark, width if width > 1 else 0)
    line: _Line | None
    for line in lines:
        while line:
            number, text = line
            if '"' not in text and "\r" not in text:
                if text:
                    yield number, text.split(mark)
            else:
                cells = quotes.row(line)
                if isinstance(cells, list) and len(quotes.used) == 1:
                    yield number, cells
                else:
                    yield from _long_row(cells, quotes, bad)
            line = quotes.again.popleft() if quotes.again else None


def _long_row(cells: list[str] | str, quotes: _Quotes, bad: BadRows) -> Rows:
    """The cells of a row of several lines, unless its quotes are stray."""
    (number, _), *inner = quotes.used
    end = inner.pop()[0] if inner else number
    if isinstance(cells, list) and (len(cells) <= quotes.width or not inner or not quotes.hold_rows(inner)):
        yield end, cells
        return
    why = cells if isinstance(cells, str) else f"its quotes hold {len(inner):,} rows"
    bad(number, f"not valid CSV ({why})")
    quotes.give_back()


def tsv_cells(lines: Iterator[_Line], bad: BadRows, width: int, *, quora: bool = False) -> Rows:
    """The cells of each row of a TSV file without a quoted header, with the number of its last line.

    A cell that begins with a quotation mark may be quoted, as libraries write cells with tabs, line breaks and
    quotation marks, or plain, as most corpora are written. Files contain both. In Quora's file, texts in quotes are
    quoted whatever they contain, and blank lines are rows.
    """
    quotes = _Quotes(lines, "\t", width)
    line: _Line | None
    for line in lines:
        while line:
            number, text = line
            if '"' not in text or not (text[0] == '"' or '\t"' in text):
                if text or quora:
                    yield number, text.split("\t")
            else:
                yield from _tsv_row(quotes.row(line), line, quotes, bad, quora)
            line = quotes.again.popleft() if quotes.again else None


def _tsv_row(cells: list[str] | str, line: _Line, quotes: _Quotes, bad: BadRows, quora: bool) -> Rows:
    """The cells of a row, one of which begins with a quotation mark."""
    (number, text), width, used = line, quotes.width, quotes.used
    plain = text.split("\t")
    alone = len(plain) == width
    whole = isinstance(cells, list) and len(cells) == width
    if isinstance(cells, list) and len(used) == 1 and len(cells) == len(plain):
        yield number, cells if quora else list(map(_unquoted, plain, cells))
    elif whole and not (alone and (len(used) == 1 or quotes.hold_rows(used[1:]))):
        yield used[-1][0], cells
    else:
        quotes.give_back()
        # Text after a closing quotation mark is no quoting, but a text with quotation marks.
        text_after = isinstance(cells, str) and len(used) == 1 and not cells.startswith(_UNCLOSED)
        if alone or text_after:
            yield number, plain
        else:
            bad(number, f"{len(plain)} columns, expected {width}, because of a quotation mark at the start of a cell")


def _unquoted(plain: str, cell: str) -> str:
    """A cell as it was meant: quotes around a text that needs none are its own."""
    return plain if plain == f'"{cell}"' and cell else cell


def _delimited(path: Path, bad: BadRows, format: str, names: Sequence[str] = ()) -> _Opened:
    skipped = bad.count
    numbered = numbered_lines(path, bad)
    head = next((line for line in numbered if line[1]), None)
    if head is None or bad.count > skipped:
        raise DataError(f"{path}, line 1: {'not readable' if head else 'the file is empty'}; expected a header line.")
    mark = "\t" if format == "tsv" else _separator(head[1])
    header = head[1].split(mark)
    quoted = format == "csv" or (not names and any(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in header))
    lines = numbered
    if names:  # the first line is a row
        lines = itertools.chain([head], numbered)
        header = list(names)
    elif quoted:
        cells = _Quotes(numbered, mark, 0).row(head)
        if isinstance(cells, str):
            raise DataError(f"{path}, line {head[0]}: not valid CSV ({cells}); expected a header line.")
        header = cells
    width = len(header)

    def rows(names: Sequence[str]) -> Rows:
        check_columns(path, header, names)
        at = {name: place for place, name in enumerate(header)}
        places = [at[name] for name in names]
        least = max(places, default=0) + 1
        pick = itemgetter(*places) if len(places) > 1 else lambda row: tuple(row[place] for place in places)
        for number, row in _csv_cells(lines, bad, mark, width) if quoted else tsv_cells(lines, bad, width):
            if least <= len(row) <= width:
                yield number, pick(row)
            else:
                lacks = f", so {header[least - 1]!r} is missing" if len(row) < least else ""
                bad(number, f"{len(row)} columns, expected {width}{lacks}")

    return _Opened(header, rows, lambda: header)


def _objects(path: Path, bad: BadRows) -> Iterator[tuple[int, Json, bool]]:
    """The objects of JSON lines, each with the number of its line, and whether the line has escapes."""
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


def _jsonl(path: Path, bad: BadRows) -> _Opened:
    def rows(names: Sequence[str]) -> Rows:
        for number, value, escaped in itertools.chain(first, objects):
            row = [value.get(name) for name in names]
            # `numbered_lines` refuses NULs and surrogates; only escapes can still hold them.
            suspect = escaped or not _JSON_KINDS.issuperset(map(type, row))
            if suspect and (problem := next(filter(None, (_json_problem(value, name) for name in names)), None)):
                bad(number, problem)
            else:
                yield number, row

    objects = _objects(path, bad)
    if not (first := list(itertools.islice(objects, 1))):
        raise DataError(f"{path}, line 1: the file is empty; expected one JSON object per line.")
    return _Opened(list(first[0][1]), rows, lambda: _keys(path, identity(path)))


@lru_cache(maxsize=8)  # an entry point asks for them several times
def _keys(path: Path, state: Identity) -> list[str]:
    """The keys of all objects of JSON lines."""
    keys = dict[str, None]()
    for _, value, _ in _objects(path, BadRows(path, skip=True)):
        if not keys.keys() >= value.keys():
            keys |= dict.fromkeys(value)
    return list(keys)


def _json_problem(value: Json, name: str) -> str | None:
    if name not in value:
        return f"no key {name!r}; the keys are {', '.join(value)[:400]}"
    item = value[name]
    if not isinstance(item, str | int | float):
        return f"{name!r} is {'null' if item is None else 'a ' + type(item).__name__}, expected text or a number"
    if isinstance(item, str) and _NOT_TEXT.search(item):
        return f"{name!r} contains a NUL or an unpaired surrogate, which is not text"
    return None


class _Bad(str):
    """What is wrong with a cell."""


_NULL = _Bad("is null")
_LACKING = _Bad("no key")


def _text(data: bytes | None) -> str:
    if data is None:
        return _NULL
    if len(data) > MAX_LINE_BYTES:
        return _Bad(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        if b"\0" in data:
            return _Bad("contains a NUL byte")
        return data.decode()
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

    return _Opened(schema.names, rows, lambda: schema.names)


def _in_memory(table: Table, bad: BadRows) -> _Opened:
    def rows(names: Sequence[str]) -> Rows:
        check_columns(table.path, list(table), names)
        numbered = zip(table.lines.tolist(), zip(*map(table.__getitem__, names), strict=True), strict=True)
        if table.gaps.isdisjoint(names):
            yield from numbered
            return
        for number, row in numbered:
            if _Bad in (kinds := list(map(type, row))):
                wrong = kinds.index(_Bad)
                bad(number, f"{row[wrong]} {names[wrong]!r}")
            else:
                yield number, row

    return _Opened(list(table), rows, lambda: list(table))


def _bad_rows(source: PathLike | Table, skip: bool = False) -> BadRows:
    return BadRows(source.path if isinstance(source, Table) else str(source), skip)


def _open(source: PathLike | Table, bad: BadRows, format: str | None = None, names: Sequence[str] = ()) -> _Opened:
    if isinstance(source, Table):
        return _in_memory(source, bad)
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
        return _parquet(path, bad)
    if format == "jsonl":
        return _jsonl(path, bad)
    return _delimited(path, bad, format, names)


def _folder(path: Path, bad: BadRows, format: str | None) -> _Opened:
    """The tables of a folder, one after the other."""
    files = corpus_files(path, tuple(FORMATS))

    def rows(names: Sequence[str]) -> Rows:
        for bad.path in files:
            yield from _open(bad.path, bad, format).rows(names)

    def columns() -> list[str]:
        return list(dict.fromkeys(itertools.chain(*(_open(file, BadRows(file), format).names() for file in files))))

    return _Opened(_open(files[0], bad, format).first, rows, columns)


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
    opened = _open(source, bad or _bad_rows(source), format)
    rows = opened.rows
    joined = any(isinstance(column, str) and "+" in column for column in columns)
    header = opened.names() if joined else opened.first
    groups = [parts_of(column, header) for column in columns]
    names = list(dict.fromkeys(itertools.chain(*groups)))
    if groups == [[name] for name in names]:
        yield from rows(names)
        return
    places = [[names.index(name) for name in group] for group in groups]
    for number, row in rows(names):
        yield number, [_joined([row[at] for at in of]) if len(of) > 1 else row[of[0]] for of in places]


def metadata_rows(path: PathLike, format: str, names: Sequence[str]) -> Iterator[tuple[int, Json]]:
    """Yields each row's line in the file and its values in columns, as JSON has them; None where there is no value.

    Dates and other values that JSON does not have are text.
    """
    if format == "jsonl":
        header = read_header(path, format)
        check_columns(Path(path), header, names)
        for number, value, _ in _objects(Path(path), _bad_rows(path)):
            yield number, {name: value.get(name) for name in names}
    elif format == "parquet":
        pq = optional("pyarrow.parquet", "data", "Reading Parquet", "pyarrow")
        with _arrow_errors(Path(path)), pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            check_columns(Path(path), schema.names, names)
            for name in names:
                if "binary" in str(schema.field(name).type):
                    raise DataError(f"{path}: column {name!r} is of type {schema.field(name).type}, not text.")
            number = 0
            for batch in file.iter_batches(batch_size=_rows_at_once(Path(path), file.metadata), columns=list(names)):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _as_json(row[name]) for name in names}
    else:
        for number, row in table_rows(path, names, format):
            yield number, dict(zip(names, row, strict=True))


def _as_json(value: object) -> Any:
    """A value of Arrow as JSON has it."""
    if isinstance(value, float) and math.isnan(value):
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
    bad = _bad_rows(source, skip_bad_rows)
    if header:
        parsed = list(_open(source, bad, names=header).rows(header))
    else:
        if columns is None:
            columns = {name: name for name in read_header(source)}
        parsed = list(table_rows(source, list(columns.values()), bad=bad))
        header = list(columns)
    values = {name: [row[i] for _, row in parsed] for i, name in enumerate(header)}
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
        if is_pipe(rows):
            return spooled(rows)
        return rows
    check_collected(rows)
    gaps = set[str]()
    names = list(rows) if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is not None:
        _check_names(names)
        columns = {str(name): list(column_values(rows[name])) for name in names}
    elif isinstance(rows, bytes) or not isinstance(rows, Iterable):
        raise InputError(f"Expected rows: a path, a table, tuples or dicts; got {type(rows).__name__}.")
    else:
        listed: list[Any] = [(row,) if isinstance(row, str) else row for row in rows]
        if listed and isinstance(listed[0], Mapping):
            columns, gaps = _columns_of(listed)
        else:
            columns = _columns_by_place(listed)
    if len(lengths := {len(column) for column in columns.values()}) != 1 or 0 in lengths:
        raise InputError(f"Expected at least one row and columns of one length, got {sorted(lengths)} rows.")
    for name, column in columns.items():
        for number, value in enumerate(column):
            if not isinstance(value, str | int | float | np.number | np.bool_) or value != value:
                raise InputError(f"Row {number}: {name} is {value!r:.60}, expected text or a number.")
    table = Table(columns, Path("rows"), np.arange(len(next(iter(columns.values())))), 0)
    table.gaps = frozenset(gaps)
    return table


def _check_names(names: Iterable[Any]) -> None:
    """Raises InputError if two columns have one name."""
    if repeated := [name for name, count in Counter(map(str, names)).items() if count > 1]:
        raise InputError(f"The rows have more than one column {repeated[0]!r}: rename or drop one.")


def _columns_of(rows: Sequence[Any]) -> tuple[dict[str, list[Any]], set[str]]:
    """The columns of dicts by name, and those that some of them lack."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"Row {number}: expected a dict as in row 0, got {row!r:.60}.")
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    _check_names(names)
    gaps = {str(name) for name in names if not all(name in row for row in rows)}
    return {str(name): [row.get(name, _LACKING) for row in rows] for name in names}, gaps


def _columns_by_place(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of tuples, which have no names."""
    width = len(rows[0]) if rows and isinstance(rows[0], Sequence) else 0
    for number, row in enumerate(rows):
        if not isinstance(row, Sequence) or len(row) != width:
            raise InputError(f"Row {number}: expected a tuple of {width} items, got {row!r:.60}.")
    return {f"column{place + 1}": list(cells) for place, cells in enumerate(zip(*rows, strict=True))}
