"""Quora's question pairs (Su et al. 2021, section 4.4), under Quora's terms of use (non-commercial)."""

from __future__ import annotations

import os
from pathlib import Path

from eval.data.lines import read_columns
from eval.data.protocol import data_folder
from eval.data.remote import fetch
from jaxwhiten.datasets import RetrievalData, from_pairs
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.io import PathLike, cache_dir, content_key

URL = "https://qim.fs.quoracdn.net/quora_duplicate_questions.tsv"
URL_VARIABLE = "JAXWHITEN_QUORA_URL"  # for mirrors
FILE = "quora_duplicate_questions.tsv"
COLUMNS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
_FOLDERS = ("", "quora", "Quora", "pairs/quora", "downstream/quora", "downstream/Quora")


def load_quora(data_dir: str | None) -> RetrievalData:
    """299,364 documents and 290,654 queries, from a folder, or downloaded once and kept in the cache."""
    root = data_folder(data_dir)
    places = [root / folder / (FILE + suffix) for folder in _FOLDERS for suffix in ("", ".gz")] if root else []
    path = next((path for path in places if path.is_file()), None)
    if path is None and data_dir:
        raise DataNotFoundError(
            f"{data_dir}: no {FILE} in it (nor in {', '.join(filter(None, _FOLDERS))} below it). Put it"
            " there, specify a different file in Quora's columns, or leave `data_dir` unset to download it."
        )
    if path is None:
        url = os.environ.get(URL_VARIABLE) or URL
        path = fetch(url, cache_dir("downloads", f"quora-{content_key(url)}", FILE), "the Quora question pairs")
    return read_quora(path, "quora")


def read_quora(path: PathLike, name: str | None = None) -> RetrievalData:
    """Reads a file in Quora's columns: tab-separated, with quotes and a header, plain or gzip.

    Rows with a wrong number of columns, an empty id, a label other than 0 and 1, or invalid text are dropped and
    counted as malformed. By default the data set is named after the file.
    """
    path = Path(path)
    table = read_columns(path, {name: name for name in COLUMNS[1:]}, skip_bad_rows=True)
    rows = [tuple(map(str.strip, row)) for row in zip(*table.values(), strict=True)]
    whole = [row for row in rows if row[0] and row[1] and row[4] in ("0", "1")]
    malformed = table.skipped + len(rows) - len(whole)
    pairs = ((*row[:4], row[4] == "1") for row in whole)
    return from_pairs(name or path.name, pairs, {"malformed_rows": malformed})
