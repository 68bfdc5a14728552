"""The STS tasks by name, from a folder or downloaded."""

from __future__ import annotations

import jaxwhiten
from eval.data import protocol
from eval.data.protocol import SAMPLE, STS_TASKS, data_folder
from eval.data.senteval import read_task
from jaxwhiten.datasets import STSTask
from jaxwhiten.errors import check_name
from jaxwhiten.io import PathLike, cache_dir


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
        return jaxwhiten.load_sts(SAMPLE)
    check_name("STS task", task, (*STS_TASKS, SAMPLE))
    if folder := data_folder(data_dir):
        return read_task(protocol.TASK_SPECS[task], folder)

    from eval.data import builders  # imports tensorflow-datasets, which takes seconds

    builder = builders.make_builder(task, cache_dir("datasets", "prepared"))
    builders.prepare(builder, cache_dir("datasets", "downloads"))
    return builders.read_prepared(builder)
