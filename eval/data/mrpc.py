"""MRPC, paraphrases from news, as a search.

References:
  Dolan & Brockett 2005, "Automatically constructing a corpus of sentential paraphrases".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eval.data.lines import read_lines
from eval.data.protocol import data_folder
from jaxwhiten.datasets import RetrievalData, from_pairs
from jaxwhiten.errors import DataError, DataNotFoundError
from jaxwhiten.io import PathLike

Row = tuple[str, str, str, str, bool]  # as `from_pairs` takes them
MRPC_FILES = {"msr_paraphrase_train.txt": 4076, "msr_paraphrase_test.txt": 1725}
_MRPC_HEADER = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
_MRPC_FOLDERS = ("MRPC", "downstream/MRPC", "data/downstream/MRPC", "")


def search(data_dir: PathLike | None) -> RetrievalData:
    """Train and test joined; the first sentences are the queries and the second sentences the documents."""
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
    rows = (row for name, count in MRPC_FILES.items() for row in _mrpc_rows(folder / name, count))
    return from_pairs("mrpc", rows)


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
