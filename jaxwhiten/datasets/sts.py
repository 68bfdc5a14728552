"""Scored pairs: the STS tasks by name, from a folder or downloaded, and the user's own tables."""

from __future__ import annotations

from collections.abc import Sequence

from jaxwhiten.datasets import protocol
from jaxwhiten.datasets.protocol import SAMPLE, STS_TASKS, Pairs, STSTask, data_folder
from jaxwhiten.datasets.senteval import load_sample, read_task
from jaxwhiten.datasets.tables import read_header, read_table
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.io import PathLike, cache_dir

_COLUMNS = ("sentence1", "sentence2", "score")


def load_sts(task: str, data_dir: PathLike | None = None) -> STSTask:
    """Loads an STS task and checks it against the row counts of the protocol.

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


def read_pairs(path: PathLike, columns: Sequence[str] = ()) -> Pairs:
    """Reads scored pairs from a table.

    Args:
      path: A `.tsv`, `.csv`, `.jsonl` or `.parquet` file.
      columns: Names of both sentences and of the score. By default `sentence1`, `sentence2` and `score`, or the columns
        of a table of three, the score last. A first line whose third of three cells is a number is a row, not a header.

    Raises:
      DataError: A column is missing, or a score is not a number; the message names the line.
    """
    if len(columns) not in (0, 3):
        raise InputError(f"columns={','.join(columns)!r}: expected three names, as {','.join(_COLUMNS)}.")
    found = read_header(path)
    bare = not columns and len(found) == 3 and found[2].lstrip("+-").replace(".", "", 1).isdecimal()
    names = columns or (_COLUMNS if bare or len(found) != 3 or set(found) == set(_COLUMNS) else found)
    table = read_table(path, dict(zip(_COLUMNS, names, strict=True)), header=_COLUMNS if bare else ())
    first, second = (table.texts(column) for column in _COLUMNS[:2])
    return Pairs(first, second, table.numbers("score"), [str(path)] * len(first))
