"""The STS tasks by name, from a local folder or downloaded and prepared with tensorflow-datasets."""

from __future__ import annotations

import os

from jaxwhiten.datasets import protocol
from jaxwhiten.datasets.protocol import SAMPLE, STS_TASKS, STSTask, data_folder
from jaxwhiten.datasets.senteval import load_sample, read_task
from jaxwhiten.errors import unknown_name
from jaxwhiten.io import cache_dir


def load_sts(task: str, data_dir: str | os.PathLike[str] | None = None) -> STSTask:
    """Loads an STS task and checks it against the row counts of the protocol.

    Args:
      task: One of `STS_TASKS`, or `"sts_sample"`.
      data_dir: A SentEval-style folder: the one that holds `downstream`, or `downstream` itself, or its `STS`. By
        default `$JAXWHITEN_DATA_DIR`; if that is unset too, the data is downloaded once and kept in the cache.

    Returns:
      The task; only pairs with a gold score.

    Raises:
      DataNotFoundError: Neither a folder nor a network.
      DataError: A file is truncated, shifted, mis-encoded or mis-counted; the message names file and line.
    """
    if task == SAMPLE:
        return load_sample()
    if task not in protocol.TASK_SPECS:
        raise unknown_name("STS task", task, (*STS_TASKS, SAMPLE))
    if folder := data_folder(data_dir):
        return read_task(protocol.TASK_SPECS[task], folder)

    from jaxwhiten.datasets import builders  # imports tensorflow-datasets, which takes seconds

    builder = builders.make_builder(task, cache_dir("datasets", "prepared"))
    builders.prepare(builder, cache_dir("datasets", "downloads"))
    return builders.read_prepared(builder)
