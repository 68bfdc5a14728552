"""Quora duplicate questions, from a local file or downloaded.

References:
  Su et al. 2021 (BERT-whitening), section 4.4. The data are under Quora's terms of use (non-commercial).
"""

from __future__ import annotations

import os

from jaxwhiten.datasets import remote
from jaxwhiten.datasets.protocol import data_folder
from jaxwhiten.datasets.retrieval import RetrievalData, read_pairs_file
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.io import cache_dir, content_key

QUORA_URL = "https://qim.fs.quoracdn.net/quora_duplicate_questions.tsv"
QUORA_URL_VARIABLE = "JAXWHITEN_QUORA_URL"  # for mirrors
FILE = "quora_duplicate_questions.tsv"
_FOLDERS = ("", "quora", "Quora", "pairs/quora", "downstream/quora", "downstream/Quora")


def load_quora(data_dir: str | os.PathLike[str] | None = None) -> RetrievalData:
    """Loads Quora's question pairs as retrieval data: 299,364 documents and 290,654 queries.

    Args:
      data_dir: A folder that holds `quora_duplicate_questions.tsv` (or `.tsv.gz`), itself or in a subfolder `quora`. By
        default `$JAXWHITEN_DATA_DIR`; if that has no such file, it is downloaded once and kept in the cache.

    Returns:
      The data.

    Raises:
      DataNotFoundError: `data_dir` was given and has no such file, or there is no network.
      DataError: The file cannot be read or lacks a column.
    """
    root = data_folder(data_dir)
    places = [root / folder / (FILE + suffix) for folder in _FOLDERS for suffix in ("", ".gz")] if root else []
    path = next((path for path in places if path.is_file()), None)
    if path is None and data_dir:
        raise DataNotFoundError(
            f"{data_dir}: no {FILE} in it (nor in {', '.join(name for name in _FOLDERS if name)} below it). Put it"
            " there, name another file in Quora's columns as the data set, or leave data_dir unset to download it."
        )
    if path is None:
        url = os.environ.get(QUORA_URL_VARIABLE) or QUORA_URL
        path = cache_dir("downloads", f"quora-{content_key(url)}", FILE)
        remote.fetch(url, path, "the Quora question pairs")
    return read_pairs_file(path, "quora")
