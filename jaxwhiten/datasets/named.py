"""Retrieval data by name: Quora's duplicate questions, docstrings of Python's library, or the user's files.

References:
  Su et al. 2021 (BERT-whitening), section 4.4: Quora. The data are under Quora's terms of use (non-commercial).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxwhiten.datasets import remote
from jaxwhiten.datasets.protocol import data_folder
from jaxwhiten.datasets.pydocs import load_pydocs
from jaxwhiten.datasets.retrieval import RetrievalData, read_own, read_pairs_file
from jaxwhiten.errors import DataNotFoundError, unknown_name
from jaxwhiten.io import PathLike, cache_dir, content_key

QUORA_URL = "https://qim.fs.quoracdn.net/quora_duplicate_questions.tsv"
QUORA_URL_VARIABLE = "JAXWHITEN_QUORA_URL"  # for mirrors
QUORA_FILE = "quora_duplicate_questions.tsv"
_QUORA_FOLDERS = ("", "quora", "Quora", "pairs/quora", "downstream/quora", "downstream/Quora")


def load_retrieval(name: str, data_dir: PathLike | None = None) -> RetrievalData:
    """Loads retrieval data.

    Args:
      name: `"quora"`, `"pydocs"`, or the path of a folder or file (`read_own`).
      data_dir: For Quora, a folder that contains `quora_duplicate_questions.tsv` (or `.tsv.gz`), directly or in a
        subfolder `quora`. By default `$JAXWHITEN_DATA_DIR`; without a file there, Quora is downloaded once and kept in
        the cache.

    Returns:
      The data. Quora has 299,364 documents and 290,654 queries.

    Raises:
      DataNotFoundError: The data is not on this machine and cannot be downloaded.
      DataError: A file is truncated, shifted or mis-encoded, or lacks a column; the message names file and line.
    """
    if name in RETRIEVAL:
        return RETRIEVAL[name](data_dir)
    if Path(name).exists():
        return read_own(name)
    if os.sep in name or "." in name:
        raise DataNotFoundError(
            f"{name}: no such file; expected a BEIR folder, a table of query and document, or Quora's columns."
        )
    raise unknown_name("retrieval data set (or file)", name, RETRIEVAL)


def _load_quora(data_dir: PathLike | None) -> RetrievalData:
    root = data_folder(data_dir)
    places = [root / at / (QUORA_FILE + suffix) for at in _QUORA_FOLDERS for suffix in ("", ".gz")] if root else []
    path = next((path for path in places if path.is_file()), None)
    if path is None and data_dir:
        raise DataNotFoundError(
            f"{data_dir}: no {QUORA_FILE} in it (nor in {', '.join(filter(None, _QUORA_FOLDERS))} below it). Put it"
            " there, specify a different file in Quora's columns, or leave `data_dir` unset to"
            " download it."
        )
    if path is None:
        url = os.environ.get(QUORA_URL_VARIABLE) or QUORA_URL
        path = cache_dir("downloads", f"quora-{content_key(url)}", QUORA_FILE)
        remote.fetch(url, path, "the Quora question pairs")
    return read_pairs_file(path, "quora")


RETRIEVAL: Mapping[str, Callable[[PathLike | None], RetrievalData]] = {
    "quora": _load_quora,
    "pydocs": lambda _: load_pydocs(),
}
"""Loaders of retrieval data by name; each takes the folder to look in."""
