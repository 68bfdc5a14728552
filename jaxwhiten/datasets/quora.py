"""Quora duplicate questions, from a local file or downloaded.

References:
  Su et al. 2021 (BERT-whitening), section 4.4. The data are under Quora's terms of use (non-commercial).
"""

from __future__ import annotations

import os
from pathlib import Path

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
      data_dir: A folder that holds `quora_duplicate_questions.tsv` (or `.tsv.gz`), or one named `quora` with it in it.
        By default `$JAXWHITEN_DATA_DIR`; where the file is in neither, it is downloaded once and kept in the cache.

    Returns:
      The data.

    Raises:
      DataNotFoundError: `data_dir` was given and has no such file, or there is no network.
      DataError: The file cannot be read or lacks a column.
    """
    if data_dir and (path := quora_file(data_dir)) is None:
        raise DataNotFoundError(
            f"{data_dir}: no {FILE} in it (nor in {', '.join(name for name in _FOLDERS if name)} below it). Put it"
            " there, name another file in Quora's columns as the data set, or leave data_dir unset to download it."
        )
    folder = data_folder(data_dir)
    path = quora_file(folder) if folder else None
    return read_pairs_file(path or download_quora(cache_dir("downloads")), "quora")


def quora_file(data_dir: str | os.PathLike[str]) -> Path | None:
    """The file of Quora's question pairs below a folder, or None."""
    places = (Path(data_dir, folder, FILE + suffix) for folder in _FOLDERS for suffix in ("", ".gz"))
    return next((path for path in places if path.is_file()), None)


def download_quora(download_dir: str | os.PathLike[str]) -> Path:
    """Downloads Quora's question pairs unless they are there already.

    Args:
      download_dir: The folder below which they are kept.

    Returns:
      The file.

    Raises:
      DataNotFoundError: No network.
    """
    url = os.environ.get(QUORA_URL_VARIABLE) or QUORA_URL
    return remote.fetch(url, Path(download_dir) / f"quora-{content_key(url)}" / FILE, "the Quora question pairs")
