"""Reads STS and SICK from a SentEval-style folder and checks row counts against the protocol.

References:
  Conneau and Kiela 2018, SentEval; the folders are laid out as in its `data/downstream`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

from eval.data.lines import read_lines
from eval.data.protocol import Count, TaskSpec
from jaxwhiten.datasets import Pairs, STSTask
from jaxwhiten.errors import DataError, DataNotFoundError
from jaxwhiten.io import PathLike

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_STSB_PLACES = (5, 6, 4)
_SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")

Row = tuple[str, str, float]


def task_folder(spec: TaskSpec, data_dir: PathLike) -> Path | None:
    """A task's folder, found from the folder above `downstream`, `downstream` itself or its `STS`; None if missing."""
    root = Path(data_dir)
    inside = spec.folder.removeprefix("STS/")
    candidates = [root / middle / spec.folder for middle in ("", "downstream", "data/downstream")]
    candidates += [root / inside, root.parent / inside if root.name == "STS" else root / inside]
    return next((folder for folder in candidates if folder.is_dir()), None)


def _gold(text: str, path: Path, line: int, spec: TaskSpec) -> float:
    """A gold score, which must be a number within the task's range."""
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


def _check_count(path: Path, found: int, expected: int) -> None:
    if found != expected:
        kind = "truncated" if found < expected else "not the expected version"
        raise DataError(f"{path}, line {found}: the file ends after {found} rows, expected {expected}; it is {kind}.")


def _read_semeval(spec: TaskSpec, folder: Path, subset: str, count: Count) -> list[Row]:
    sentences_path = folder / f"STS.input.{subset}.txt"
    gold_path = folder / f"STS.gs.{subset}.txt"
    sentences = read_lines(sentences_path)
    gold = read_lines(gold_path)
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


def _read_table(spec: TaskSpec, path: Path, count: Count) -> list[Row]:
    """The rows of STS-B, which has no header and some extra columns at the end, or of SICK."""
    lines = read_lines(path)
    if spec.layout == "stsb":
        places = list(_STSB_PLACES)
        least = max(_STSB_PLACES) + 1
        most = sys.maxsize
        start = 0
    else:
        header = lines[0].split("\t") if lines else []
        if missing := [name for name in _SICK_COLUMNS if name not in header]:
            raise DataError(f"{path}, line 1: no column {', '.join(missing)} in the header.")
        places = [header.index(name) for name in _SICK_COLUMNS]
        least = len(header)
        most = len(header)
        start = 1
    rows = []
    for line, text in enumerate(lines[start:], start + 1):
        fields = text.split("\t")  # no quoting: some sentences hold an unpaired quote
        if not least <= len(fields) <= most:
            expected = f"at least {least}" if most > least else least
            raise DataError(f"{path}, line {line}: {len(fields)} columns, expected {expected} split by tabs.")
        sentence1, sentence2, score = (fields[place].strip() for place in places)
        rows.append((sentence1, sentence2, _gold(score, path, line, spec)))
    _check_count(path, len(rows), count.total)
    return rows


def read_split(spec: TaskSpec, folder: PathLike, split: str) -> Pairs:
    """Reads one split from a task's folder, subset after subset, without pairs that lack a gold score."""
    folder = Path(folder)
    rows: list[Row] = []
    subsets: list[str] = []
    for subset, count in spec.counts[split].items():
        if spec.layout == "semeval":
            part = _read_semeval(spec, folder, subset, count)
        else:
            part = _read_table(spec, folder / spec.files[split], count)
        rows += part
        subsets += [subset] * len(part)
    sentence1, sentence2, scores = map(list, zip(*rows, strict=True))
    return Pairs(sentence1, sentence2, np.array(scores, dtype=np.float64), subsets)


def read_task(spec: TaskSpec, data_dir: PathLike) -> STSTask:
    """Reads every split of one task from a SentEval-style folder."""
    folder = task_folder(spec, data_dir)
    if folder is None:
        raise DataNotFoundError(
            f"{Path(data_dir)}: no folder {spec.folder} in it, so {spec.name} cannot be read. Set"
            " `data_dir` or $JAXWHITEN_DATA_DIR to a SentEval-style folder (one that contains"
            f" downstream/{spec.folder}), or unset both and connect to the network to download the data."
        )
    return STSTask(spec.name, {split: read_split(spec, folder, split) for split in spec.counts})
