"""Reads STS and SICK from a SentEval-style folder and checks every file against the protocol's row counts.

References:
  Conneau and Kiela 2018, SentEval; the folder layout is that of its `data/downstream`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxwhiten.datasets.protocol import Count, Pairs, STSTask, TaskSpec
from jaxwhiten.datasets.textfile import read_lines
from jaxwhiten.errors import DataError, DataNotFoundError

_LIMIT = 100_000  # lines; the longest file of the protocol has 5,749
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")

Row = tuple[str, str, float]


def task_folder(spec: TaskSpec, data_dir: str | os.PathLike[str]) -> Path | None:
    """Finds a task's folder below `data_dir`.

    Args:
      spec: The task.
      data_dir: The folder that holds `downstream`, or `downstream` itself, or its `STS`.

    Returns:
      The folder, or None where there is none.
    """
    root = Path(data_dir)
    inside = spec.folder.removeprefix("STS/")
    candidates = [root / middle / spec.folder for middle in ("", "downstream", "data/downstream")]
    candidates += [root / inside, root.parent / inside if root.name == "STS" else root / inside]
    return next((folder for folder in candidates if folder.is_dir()), None)


def _gold(text: str, path: Path, line: int, spec: TaskSpec) -> float:
    """A gold score, refused with file and line when it is no number or out of range."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise DataError(
            f"{path}, line {line}: gold score {text[:40]!r} is not a number; the file is damaged or its rows"
            " are shifted."
        )
    value = float(text)
    if not spec.low <= value <= spec.high:
        raise DataError(f"{path}, line {line}: gold score {value:g} is outside {spec.low:g} to {spec.high:g}.")
    return value


def _check_count(path: Path, found: int, expected: int, what: str = "rows") -> None:
    if found != expected:
        kind = "truncated" if found < expected else "not the expected version"
        raise DataError(f"{path}, line {found}: the file ends after {found} {what}, expected {expected}; it is {kind}.")


def _read_semeval(spec: TaskSpec, folder: Path, subset: str, count: Count) -> list[Row]:
    sentences_path, gold_path = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    sentences, gold = read_lines(sentences_path, limit=_LIMIT), read_lines(gold_path, limit=_LIMIT)
    if len(sentences) != len(gold):
        raise DataError(
            f"{sentences_path} has {len(sentences)} lines but {gold_path} has {len(gold)}: they are shifted from"
            f" line {min(len(sentences), len(gold)) + 1} on at the latest."
        )
    _check_count(sentences_path, len(sentences), count.total)
    rows = []
    for line, (text, score) in enumerate(zip(sentences, gold, strict=True), 1):
        fields = text.split("\t")
        if len(fields) < 2:
            raise DataError(f"{sentences_path}, line {line}: {len(fields)} column, expected two sentences and a tab.")
        if score.strip():
            rows.append((fields[0].strip(), fields[1].strip(), _gold(score, gold_path, line, spec)))
        elif count.scored == count.total:
            raise DataError(f"{gold_path}, line {line}: the gold score is empty, but every pair of {subset} has one.")
    if len(rows) != count.scored:
        raise DataError(f"{gold_path}, line {len(gold)}: {len(rows)} gold scores in the file, expected {count.scored}.")
    return rows


def _read_stsb(spec: TaskSpec, path: Path, count: Count) -> list[Row]:
    rows = []
    for line, text in enumerate(read_lines(path, limit=_LIMIT), 1):
        fields = text.split("\t")  # some sentences hold an unpaired quote: no quoting
        if len(fields) < 7:
            raise DataError(f"{path}, line {line}: {len(fields)} columns, expected at least 7 split by tabs.")
        rows.append((fields[5].strip(), fields[6].strip(), _gold(fields[4], path, line, spec)))
    _check_count(path, len(rows), count.total)
    return rows


def _read_sick(spec: TaskSpec, path: Path, count: Count) -> list[Row]:
    lines = read_lines(path, limit=_LIMIT)
    header = lines[0].split("\t") if lines else []
    missing = [name for name in _SICK_COLUMNS if name not in header]
    if missing:
        raise DataError(f"{path}, line 1: no column {', '.join(missing)} in the header.")
    first, second, score = (header.index(name) for name in _SICK_COLUMNS)
    rows = []
    for line, text in enumerate(lines[1:], 2):
        fields = text.split("\t")
        if len(fields) != len(header):
            raise DataError(f"{path}, line {line}: {len(fields)} columns, expected {len(header)}.")
        rows.append((fields[first].strip(), fields[second].strip(), _gold(fields[score], path, line, spec)))
    _check_count(path, len(rows), count.total)
    return rows


def _pairs(rows: Sequence[Row], subset: Sequence[str]) -> Pairs:
    return Pairs(
        sentence1=[row[0] for row in rows],
        sentence2=[row[1] for row in rows],
        score=np.array([row[2] for row in rows], dtype=np.float64),
        subset=list(subset),
    )


def read_split(spec: TaskSpec, folder: str | os.PathLike[str], split: str) -> Pairs:
    """Reads one split of one task.

    Args:
      spec: The task.
      folder: The task's own folder, as `task_folder` finds it.
      split: The split's name.

    Returns:
      The scored pairs, subset after subset; pairs without a gold score are left out.

    Raises:
      DataError: A file is missing, truncated, shifted, mis-encoded or of another length than the protocol says.
    """
    folder = Path(folder)
    rows: list[Row] = []
    subsets: list[str] = []
    for subset, count in spec.counts[split].items():
        if spec.layout == "semeval":
            part = _read_semeval(spec, folder, subset, count)
        else:
            reader = _read_stsb if spec.layout == "stsb" else _read_sick
            part = reader(spec, folder / spec.files[split], count)
        rows += part
        subsets += [subset] * len(part)
    return _pairs(rows, subsets)


def read_task(spec: TaskSpec, data_dir: str | os.PathLike[str]) -> STSTask:
    """Reads one task from a SentEval-style folder.

    Args:
      spec: The task.
      data_dir: The folder that holds `downstream`, or `downstream` itself, or its `STS`.

    Returns:
      The task with every split.

    Raises:
      DataNotFoundError: There is no such folder.
      DataError: As `read_split`.
    """
    folder = task_folder(spec, data_dir)
    if folder is None:
        raise DataNotFoundError(
            f"{Path(data_dir)}: no folder {spec.folder} in it, so {spec.name} cannot be read. Set --config.data_dir or"
            f" $JAXWHITEN_DATA_DIR to a SentEval-style folder (one that holds downstream/{spec.folder}), or leave both"
            " unset and connect, and the data is downloaded."
        )
    return STSTask(spec.name, {split: read_split(spec, folder, split) for split in spec.counts})
