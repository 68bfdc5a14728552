"""The Microsoft Research Paraphrase corpus of a SentEval folder as retrieval data: small, real, no download.

References:
  Dolan & Brockett 2005, "Automatically constructing a corpus of sentential paraphrases".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jaxwhiten.datasets.protocol import data_folder
from jaxwhiten.datasets.retrieval import RetrievalData, from_pairs
from jaxwhiten.datasets.textfile import read_lines
from jaxwhiten.errors import DataError, DataNotFoundError

FILES = {"msr_paraphrase_train.txt": 4076, "msr_paraphrase_test.txt": 1725}
_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
_FOLDERS = ("MRPC", "downstream/MRPC", "data/downstream/MRPC", "")


def load_mrpc(data_dir: str | os.PathLike[str] | None = None) -> RetrievalData:
    """Loads MRPC, train and test together: the first sentence of a pair is the query, the second the document.

    Args:
      data_dir: A SentEval-style folder: the one that holds `downstream/MRPC`, or `downstream`, or `MRPC` itself. By
        default `$JAXWHITEN_DATA_DIR`.

    Returns:
      The data.

    Raises:
      DataNotFoundError: There is no such folder.
      DataError: A file is truncated, shifted or mis-encoded; the message names file and line.
    """
    root = data_folder(data_dir)
    folders = [root / name for name in _FOLDERS] if root else []
    folder = next((folder for folder in folders if all((folder / name).is_file() for name in FILES)), None)
    if folder is None:
        raise DataNotFoundError(
            f"MRPC: {' and '.join(FILES)} are not {f'in {root} or its downstream/MRPC' if root else 'known'}. Set"
            " --config.data_dir or $JAXWHITEN_DATA_DIR to a SentEval-style folder, or use the data set pydocs, which"
            " needs no files."
        )
    return from_pairs("mrpc", (row for name, count in FILES.items() for row in _read(folder / name, count)))


def _read(path: Path, count: int) -> Iterator[tuple[str, str, str, str, bool]]:
    lines = read_lines(path, limit=100_000)
    if not lines or lines[0].split("\t") != _HEADER:
        raise DataError(f"{path}, line 1: not the header of MRPC ({', '.join(_HEADER)}).")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")  # no quoting: sentences hold unpaired quotation marks
        if len(fields) != len(_HEADER) or fields[0] not in ("0", "1"):
            raise DataError(f"{path}, line {number}: not a row of MRPC ({len(fields)} columns): {line[:60]!r}.")
        yield fields[1], fields[2], fields[3].strip(), fields[4].strip(), fields[0] == "1"
    if len(lines) - 1 != count:
        raise DataError(f"{path}, line {len(lines)}: {len(lines) - 1} rows, expected {count}; the file is truncated.")
