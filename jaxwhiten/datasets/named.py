"""Retrieval data by name."""

from __future__ import annotations

import os
from pathlib import Path

from jaxwhiten.datasets.mrpc import load_mrpc
from jaxwhiten.datasets.pydocs import load_pydocs
from jaxwhiten.datasets.quora import load_quora
from jaxwhiten.datasets.retrieval import RetrievalData, read_pairs_file
from jaxwhiten.errors import DataNotFoundError, unknown_name

_LOADERS = {"quora": load_quora, "mrpc": load_mrpc, "pydocs": lambda _: load_pydocs()}
RETRIEVAL_SETS = tuple(_LOADERS)


def load_retrieval(name: str, data_dir: str | os.PathLike[str] | None = None) -> RetrievalData:
    """Loads retrieval data.

    Args:
      name: One of `RETRIEVAL_SETS`, or the path of a file in Quora's columns.
      data_dir: As in `load_quora` and `load_mrpc`; ignored by `pydocs` and files.

    Returns:
      The data.

    Raises:
      InputError: Neither a name nor a file.
      DataNotFoundError: The data is not on this machine and cannot be downloaded.
      DataError: A file is damaged.
    """
    if name in _LOADERS:
        return _LOADERS[name](data_dir)
    if Path(name).is_file():
        return read_pairs_file(name)
    if os.sep in name or "." in name:
        raise DataNotFoundError(f"{name}: no such file; expected question pairs in Quora's columns, split by tabs.")
    raise unknown_name("retrieval data set (or file)", name, RETRIEVAL_SETS)
