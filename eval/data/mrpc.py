"""MRPC, paraphrases from news: pairs for `eval.classification`, and a search.

References:
  Dolan & Brockett 2005, "Automatically constructing a corpus of sentential paraphrases".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from eval.data.lines import read_lines
from eval.data.protocol import data_folder
from jaxwhiten.datasets import Pairs, RetrievalData, from_pairs
from jaxwhiten.errors import DataError, DataNotFoundError
from jaxwhiten.io import PathLike

Row = tuple[str, str, str, str, bool]  # as `from_pairs` takes them
MRPC_FILES = {"msr_paraphrase_train.txt": 4076, "msr_paraphrase_test.txt": 1725}
_MRPC_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
_MRPC_FOLDERS = ("MRPC", "downstream/MRPC", "data/downstream/MRPC", "")


def load_mrpc(data_dir: PathLike | None = None) -> dict[str, Pairs]:
    """MRPC as scored pairs, `train` and `test`: 1 for a paraphrase, else 0. `data_dir` is SentEval-style."""
    splits = {}
    for split, rows in _mrpc_splits(data_dir):
        label = np.array([row[4] for row in rows], np.float64)
        splits[split] = Pairs([row[2] for row in rows], [row[3] for row in rows], label, [split] * len(rows))
    return splits


def _mrpc_splits(data_dir: PathLike | None) -> Iterator[tuple[str, list[Row]]]:
    root = data_folder(data_dir)
    folders = []
    if root:
        folders = [root / name for name in _MRPC_FOLDERS]
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
    lines = read_lines(path)
    if not lines or lines[0].split("\t") != _MRPC_HEADER:
        raise DataError(f"{path}, line 1: not the header of MRPC ({', '.join(_MRPC_HEADER)}).")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")  # no quoting: sentences hold unpaired quotation marks
        if len(fields) != len(_MRPC_HEADER) or fields[0] not in ("0", "1"):
            raise DataError(f"{path}, line {number}: not a row of MRPC ({len(fields)} columns): {line[:60]!r}.")
        yield fields[1], fields[2], fields[3].strip(), fields[4].strip(), fields[0] == "1"
    if len(lines) - 1 != count:
        raise DataError(f"{path}, line {len(lines)}: {len(lines) - 1} rows, expected {count}; the file is truncated.")


def search(data_dir: PathLike | None) -> RetrievalData:
    """Train and test joined; the first sentences are the queries and the second sentences the documents."""
    return from_pairs("mrpc", (row for _, rows in _mrpc_splits(data_dir) for row in rows))
