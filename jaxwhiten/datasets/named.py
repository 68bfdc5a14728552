"""Retrieval data by name: Quora's duplicate questions, MRPC, docstrings of Python's library, or the user's files.

References:
  Su et al. 2021 (BERT-whitening), section 4.4: Quora. The data are under Quora's terms of use (non-commercial).
  Dolan & Brockett 2005, "Automatically constructing a corpus of sentential paraphrases": MRPC.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from jaxwhiten.datasets import remote
from jaxwhiten.datasets.protocol import Pairs, data_folder
from jaxwhiten.datasets.pydocs import load_pydocs
from jaxwhiten.datasets.retrieval import RetrievalData, Row, from_pairs, read_own, read_pairs_file
from jaxwhiten.datasets.textfile import read_lines
from jaxwhiten.errors import DataError, DataNotFoundError, unknown_name
from jaxwhiten.io import PathLike, cache_dir, content_key

QUORA_URL = "https://qim.fs.quoracdn.net/quora_duplicate_questions.tsv"
QUORA_URL_VARIABLE = "JAXWHITEN_QUORA_URL"  # for mirrors
QUORA_FILE = "quora_duplicate_questions.tsv"
_QUORA_FOLDERS = ("", "quora", "Quora", "pairs/quora", "downstream/quora", "downstream/Quora")
MRPC_FILES = {"msr_paraphrase_train.txt": 4076, "msr_paraphrase_test.txt": 1725}
_MRPC_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
_MRPC_FOLDERS = ("MRPC", "downstream/MRPC", "data/downstream/MRPC", "")


def load_retrieval(name: str, data_dir: PathLike | None = None) -> RetrievalData:
    """Loads retrieval data.

    Args:
      name: `"quora"`, `"mrpc"`, `"pydocs"`, or the path of a folder or file (`read_own`).
      data_dir: For Quora, a folder that holds `quora_duplicate_questions.tsv` (or `.tsv.gz`), directly or in a
        subfolder `quora`. For MRPC, a SentEval-style folder: the one that holds `downstream/MRPC`, or `downstream`, or
        `MRPC` itself. By default `$JAXWHITEN_DATA_DIR`; without a Quora file there, Quora is downloaded once and kept
        in the cache. Ignored by `pydocs` and files.

    Returns:
      The data. Quora has 299,364 documents and 290,654 queries. MRPC joins train and test; the first sentences are the
      queries and the second sentences the documents.

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
            " there, name another file in Quora's columns as the data set, or leave `data_dir` unset to"
            " download it."
        )
    if path is None:
        url = os.environ.get(QUORA_URL_VARIABLE) or QUORA_URL
        path = cache_dir("downloads", f"quora-{content_key(url)}", QUORA_FILE)
        remote.fetch(url, path, "the Quora question pairs")
    return read_pairs_file(path, "quora")


def load_mrpc(data_dir: PathLike | None = None) -> dict[str, Pairs]:
    """MRPC as scored pairs, `train` and `test`: 1 for a paraphrase, else 0. `data_dir` is as for `load_retrieval`."""
    splits = {}
    for split, rows in _mrpc_splits(data_dir):
        same = np.array([row[4] for row in rows], np.float64)
        splits[split] = Pairs([row[2] for row in rows], [row[3] for row in rows], same, [split] * len(rows))
    return splits


def _mrpc_splits(data_dir: PathLike | None) -> Iterator[tuple[str, list[Row]]]:
    root = data_folder(data_dir)
    folders = [root / name for name in _MRPC_FOLDERS] if root else []
    folder = next((folder for folder in folders if all((folder / name).is_file() for name in MRPC_FILES)), None)
    if folder is None:
        raise DataNotFoundError(
            f"MRPC: {' and '.join(MRPC_FILES)} are not {f'in {root} or its downstream/MRPC' if root else 'known'}. Set"
            " `data_dir` or $JAXWHITEN_DATA_DIR to a SentEval-style folder, or use the data set pydocs,"
            " which needs no files."
        )
    for name, count in MRPC_FILES.items():
        yield name.removesuffix(".txt").rpartition("_")[2], list(_mrpc_rows(folder / name, count))


def _mrpc_rows(path: Path, count: int) -> Iterator[Row]:
    lines = read_lines(path, limit=100_000)
    if not lines or lines[0].split("\t") != _MRPC_HEADER:
        raise DataError(f"{path}, line 1: not the header of MRPC ({', '.join(_MRPC_HEADER)}).")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")  # no quoting: sentences hold unpaired quotation marks
        if len(fields) != len(_MRPC_HEADER) or fields[0] not in ("0", "1"):
            raise DataError(f"{path}, line {number}: not a row of MRPC ({len(fields)} columns): {line[:60]!r}.")
        yield fields[1], fields[2], fields[3].strip(), fields[4].strip(), fields[0] == "1"
    if len(lines) - 1 != count:
        raise DataError(f"{path}, line {len(lines)}: {len(lines) - 1} rows, expected {count}; the file is truncated.")


RETRIEVAL: Mapping[str, Callable[[PathLike | None], RetrievalData]] = {
    "quora": _load_quora,
    "mrpc": lambda data_dir: from_pairs("mrpc", (row for _, rows in _mrpc_splits(data_dir) for row in rows)),
    "pydocs": lambda _: load_pydocs(),
}
"""Loaders of retrieval data by name; each takes the folder to look in."""
