"""Scored pairs: the STS tasks by name, from a folder or downloaded, and the user's own tables."""

from __future__ import annotations

from collections.abc import Sequence

from jaxwhiten.datasets import protocol
from jaxwhiten.datasets.columns import PAIRS, Columns, guess, labels_of, shown
from jaxwhiten.datasets.protocol import SAMPLE, STS_TASKS, Pairs, STSTask, data_folder
from jaxwhiten.datasets.senteval import NUMBER, load_sample, read_task
from jaxwhiten.datasets.tables import Column, Table, read_header, read_table, table_format
from jaxwhiten.errors import DataError, InputError, check_name
from jaxwhiten.io import PathLike, cache_dir
from jaxwhiten.progress import note

_COLUMNS = ("sentence1", "sentence2", "score")
_NAME = 3  # words of a column's name


def load_sts(task: str, data_dir: PathLike | None = None) -> STSTask:
    """Loads an STS task and checks it against the row counts of the protocol.

    >>> pairs = load_sts("sts_sample").splits["test"]
    >>> len(pairs.score), pairs.sentence1[0]
    (390, 'A bus crash in the Andes killed 21 people on Friday.')

    Args:
      task: One of `STS_TASKS`, or `"sts_sample"`.
      data_dir: A SentEval-style folder: the one that holds `downstream`, or `downstream` itself, or its `STS`. By
        default `$JAXWHITEN_DATA_DIR`; if that is unset too, the data is downloaded once and kept in the cache.

    Returns:
      The task, with only the pairs that have a gold score.

    Raises:
      DataNotFoundError: The data is not in a folder, and cannot be downloaded.
      DataError: A file is truncated, shifted, mis-encoded or mis-counted; the message names file and line.
    """
    if task == SAMPLE:
        return load_sample()
    check_name("STS task", task, (*STS_TASKS, SAMPLE))
    if folder := data_folder(data_dir):
        return read_task(protocol.TASK_SPECS[task], folder)

    from jaxwhiten.datasets import builders  # imports tensorflow-datasets, which takes seconds

    builder = builders.make_builder(task, cache_dir("datasets", "prepared"))
    builders.prepare(builder, cache_dir("datasets", "downloads"))
    return builders.read_prepared(builder)


def read_pairs(source: PathLike | Table, columns: Sequence[Column] = ()) -> Pairs:
    """Reads scored pairs from a table.

    >>> read_pairs("pairs.tsv").score
    array([4.5, 0. ])

    Args:
      source: A `.tsv`, `.csv`, `.jsonl` or `.parquet` file, or the result of `as_table`.
      columns: Names of both sentences and of the score. By default usual names, and the order for at most two others;
        a note says which. A first line whose third of three cells is a number is a row, not a header.

    Raises:
      InputError: The names do not settle which columns these are.
      DataError: A column is missing, or a score is not a number; the message names the line.
    """
    if len(columns) not in (0, 3):
        raise InputError(f"columns={','.join(map(str, columns))!r}: expected three names, as {','.join(_COLUMNS)}.")
    header = read_header(source)
    bare = not columns and len(header) == 3 and NUMBER.fullmatch(header[2].strip()) and is_row(header)
    if not bare and not columns:
        check_header(source, header)
    where = source.path if isinstance(source, Table) else source
    if bare:
        taken = Columns(("column 1", "column 2"), "column 3")
    elif columns:
        score = columns[2]
        taken = Columns(tuple(columns[:2]), score if isinstance(score, str) else "+".join(score))
    else:
        taken = _pair_columns(where, header)
    read_from: Sequence[Column] = (*taken.sentences, taken.label or "")
    names = _COLUMNS if bare else read_from
    table = read_table(source, dict(zip(_COLUMNS, names, strict=True)), header=_COLUMNS if bare else ())
    note(taken.words(PAIRS))
    first, second = (table.texts(column) for column in _COLUMNS[:2])
    columns_read = tuple(shown([name]) for name in read_from)
    return Pairs(first, second, table.numbers("score"), [str(table.path)] * len(first), columns_read)


def is_row(header: Sequence[str]) -> bool:
    """Whether a first line is a row rather than names: it has a number with other cells, or a cell of four words."""
    numbers = [NUMBER.fullmatch(cell.strip()) is not None for cell in header]
    return (any(numbers) and not all(numbers)) or any(len(cell.split()) > _NAME for cell in header)


def check_header(source: PathLike | Table, header: Sequence[str]) -> None:
    """Raises DataError for a first line of TSV or CSV that is a row, which would be lost as names of columns."""
    if not isinstance(source, Table) and table_format(source) in ("tsv", "csv") and is_row(header):
        raise DataError(
            f"{source}, line 1: {', '.join(header)[:80]!r} looks like a row: add a line with the names of the columns,"
            " or specify the column if this is its name."
        )


def _pair_columns(where: object, header: Sequence[str]) -> Columns:
    if len(header) == 2 and not labels_of(header):
        raise InputError(
            f"{where}: two columns and no score: add a column score, of numbers or of 0 and 1; or name the columns"
            " query and document, to score a search."
        )
    return guess(header, PAIRS, where)
