"""Sentences from files and pipes, one by one, in bounded memory."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxwhiten.commands.arguments import TableOptions
from jaxwhiten.errors import REASON, DataError, InputError, check_name, turning

if TYPE_CHECKING:
    from jaxwhiten.datasets.chunks import Source
    from jaxwhiten.search import Index

STDIN = "-"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?")


def is_parts(path: str) -> bool:
    """Whether a path is a folder of `jaxwhiten embed`."""
    return os.path.isfile(os.path.join(path, "plan.json"))


def sentences(path: str, table: TableOptions = TableOptions()) -> Iterator[str]:
    """The sentences of a file, in its order, blank ones too.

    Lines from stdin are passed on immediately; a table from stdin is first written to a temporary file.
    """
    return (record.text for record in records(path, table))


class InputRow(NamedTuple):
    """A sentence with its value in the column of IDs, or its file and line, and with its values in other columns."""

    id: Any
    text: str
    metadata: Any = None
    written: bool = False  # whether all values are texts, as the file has no others


def records(path: str, table: TableOptions, ids: str | None = None, keep: Sequence[str] = ()) -> Iterator[InputRow]:
    """Like `sentences`, with IDs and with the values in the columns `keep`."""
    from jaxwhiten.datasets.chunks import rows
    from jaxwhiten.datasets.textfile import spooled, spooled_stream

    if path == STDIN and table.format in (None, "txt"):
        _check_columns(path, "txt", table, ids, keep)
        with turning(DataError, f"{REASON} Specify --format for a table.", DataError):
            yield from (InputRow(None, line) for line in stdin_lines())
        return
    if path == STDIN:
        path = str(spooled_stream(stdin(), "stdin"))
    elif _format_of(path, table) != "txt":
        path = str(spooled(path))
    for source in sources([path], table, ids, keep):
        written = source.format in ("csv", "tsv")
        for row in rows(source, blank=True, keep=keep):
            yield InputRow(row.id, row.text or "", row.metadata, written)


def stdin_lines() -> Iterator[str]:
    """The lines of stdin, in UTF-8 whatever the locale is, each at once."""
    from jaxwhiten.datasets.textfile import BadRows, clean_lines, decoded_stream

    return (line for _, line in clean_lines(decoded_stream(stdin().readline), BadRows("stdin")))


def stdin() -> Any:
    """The bytes of stdin; InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("stdin is closed: specify the input, or redirect stdin from a file or a pipe.")
    return sys.stdin.buffer


def sources(
    words: Sequence[str], table: TableOptions, ids: str | None = None, keep: Sequence[str] = ()
) -> list[Source]:
    """The files that files, folders and patterns name, each with its format and its column of texts.

    A note says which columns were chosen by their names.
    """
    from jaxwhiten.datasets.chunks import Source
    from jaxwhiten.datasets.columns import TEXTS, guess
    from jaxwhiten.datasets.tables import FORMATS, read_header
    from jaxwhiten.datasets.textfile import corpus_files
    from jaxwhiten.terminal import note

    paths = [str(path) for word in words for path in corpus_files(word, tuple(FORMATS))]
    places = [Path(os.path.abspath(path)) for path in paths]
    root = os.path.commonpath([place.parent for place in places])
    result = []
    chosen = dict[str, None]()
    for path, place in zip(paths, places, strict=True):
        kind = _format_of(path, table)
        _check_columns(path, kind, table, ids, keep)
        column = "+".join(table.column) or None
        if kind != "txt" and not column:
            text_name = guess([name for name in read_header(path, kind) if name not in {ids, *keep}], TEXTS, path)
            chosen[text_name.words(TEXTS)] = None
            column = str(*text_name.sentences)
        result.append(Source(path, kind, column, ids, place.relative_to(root).as_posix()))
    for what in chosen:
        note(what)
    return result


def _check_columns(path: str, format: str, table: TableOptions, ids: str | None, keep: Sequence[str]) -> None:
    given = [f"`{name}`" for name, value in {"column": table.column, "id": ids, "keep": keep}.items() if value]
    if format == "txt" and given:
        raise InputError(f"{path}: a text file has no columns: omit {', '.join(given)}, or specify --format.")


def _format_of(path: str, table: TableOptions) -> str:
    """The given format, or else the format of the file's ending; txt for unknown endings."""
    from jaxwhiten.datasets.tables import FORMATS, table_format
    from jaxwhiten.datasets.textfile import split_name

    if table.format is not None:
        check_name("format", table.format, {"txt", *FORMATS.values()})
        return table.format
    return "txt" if split_name(path)[1] == ".txt" else table_format(path) or "txt"


def nonempty(texts: Iterator[str], path: str) -> Iterator[str]:
    """The sentences; DataError if there are none. Some are read at once, so that errors appear before a model is
    loaded.

    From a pipe only one is read, because a pipe may never send more.
    """
    first = list(itertools.islice(texts, 1 if path == STDIN else 1000))
    if not first:
        raise DataError(f"{path}: contains no texts.")
    return itertools.chain(first, texts)


def ids_in(path: str, column: str | None = None) -> list[Any]:
    """The IDs in a file, one per line, or in the column of a table, exactly as written."""
    if column is None:
        return list(filter(None, sentences(path)))
    from jaxwhiten.datasets.chunks import whole_id
    from jaxwhiten.datasets.tables import as_table, table_rows

    return [whole_id(id) for _, (id,) in table_rows(as_table(path), [column])]


def as_stored(ids: list[Any] | None, index: Index) -> list[Any] | None:
    """Converts ids to the kind of the index, since a file or command line may not distinguish numbers from text."""
    if index.id_type == "string":
        return ids and [str(id) if type(id) is int else id for id in ids]
    return ids and [int(id) if isinstance(id, str) and re.fullmatch("0|[1-9][0-9]*", id) else id for id in ids]


class InputDocuments(NamedTuple):
    """What an index stores, without blank texts, and a remark on the number of blank ones."""

    ids: list[Any] | None
    texts: list[str]
    metadata: list[Any] | None
    skipped: str
    numbers: list[str]  # the kept columns of numbers


def read_documents(
    path: str, table: TableOptions, id: str | None, keep: Sequence[str], numbers: Sequence[str] | None = None
) -> InputDocuments:
    """The documents of a file, with their values in the columns `id` and `keep`.

    CSV and TSV have texts only. Of columns in `numbers`, by default those with nothing else, numbers as JSON writes
    them are kept as numbers, and no text as None: "007" stays text, and with it its column.
    """
    from jaxwhiten.search.text import without_blank
    from jaxwhiten.terminal import counted

    rows = list(records(path, table, id, keep))
    read = {name: [_as_number(row, name) for row in rows] for name in keep}
    found = [name for name in keep if set() < {*map(type, read[name])} - {type(None)} <= {int, float}]
    for name in {*keep} & {*(found if numbers is None else numbers)}:
        for row, value in zip(rows, read[name], strict=True):
            row.metadata[name] = value
    texts, ids, metadata, blank = without_blank(
        [row.text for row in rows],
        [row.id for row in rows] if id else None,
        [row.metadata for row in rows] if keep else None,
    )
    nonempty(iter(texts), path)
    advice = "`encode` keeps them: to align the two, remove them from the file"
    remark = f" ({counted(blank, 'blank texts')} skipped; {advice})" if blank else ""
    return InputDocuments(ids, texts, metadata, remark, found)


def _as_number(row: InputRow, name: str) -> Any:
    """The number that a text of CSV writes, None for no text; other values stay what they are."""
    value = row.metadata[name]
    return json.loads(value or "null") if row.written and (not value or _NUMBER.fullmatch(value)) else value
