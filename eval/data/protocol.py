"""Definitions of the STS tasks: files, subsets and row counts.

References:
  SemEval STS 2012-2016; Cer et al. 2017 (STS benchmark); Marelli et al. 2014 (SICK).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from jaxwhiten.io import PathLike


@dataclass(frozen=True)
class Count:
    """Rows of a file, and rows with a gold score."""

    total: int
    scored: int


@dataclass(frozen=True)
class TaskSpec:
    """The files of a task in a SentEval folder and their expected contents."""

    name: str
    layout: str  # "semeval" (one input and one gold file per subset), "stsb" or "sick"
    folder: str  # relative to `downstream`
    counts: Mapping[str, Mapping[str, Count]]  # expected rows by split and subset
    files: Mapping[str, str]  # by split; empty for "semeval"
    low: float = 0.0  # the gold scores lie between `low` and `high`
    high: float = 5.0


def _sts(year: int, subsets: dict[str, int | tuple[int, int]]) -> TaskSpec:
    counts = {name: Count(*((rows, rows) if isinstance(rows, int) else rows)) for name, rows in subsets.items()}
    return TaskSpec(f"STS{year}", "semeval", f"STS/STS{year}-en-test", {"test": counts}, {})


def _single(name: str, layout: str, folder: str, files: dict[str, tuple[str, int]], low: float) -> TaskSpec:
    counts = {split: {name: Count(rows, rows)} for split, (_, rows) in files.items()}
    return TaskSpec(name, layout, folder, counts, {split: file for split, (file, _) in files.items()}, low)


# One number counts rows that are all scored. Two numbers count rows and scored rows.
_SPECS = (
    _sts(12, {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399}),
    _sts(13, {"FNWN": 189, "headlines": 750, "OnWN": 561}),
    _sts(14, {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750}),
    _sts(
        15,
        {
            "answers-forums": (2000, 375),
            "answers-students": (1500, 750),
            "belief": (2000, 375),
            "headlines": (1500, 750),
            "images": (1500, 750),
        },
    ),
    _sts(
        16,
        {
            "answer-answer": (1572, 254),
            "headlines": (1498, 249),
            "plagiarism": (1271, 230),
            "postediting": (3287, 244),
            "question-question": (1555, 209),
        },
    ),
    _single(
        "STS-B",
        "stsb",
        "STS/STSBenchmark",
        {"train": ("sts-train.csv", 5749), "dev": ("sts-dev.csv", 1500), "test": ("sts-test.csv", 1379)},
        low=0.0,
    ),
    _single(
        "SICK-R",
        "sick",
        "SICK",
        {"train": ("SICK_train.txt", 4500), "dev": ("SICK_trial.txt", 500), "test": ("SICK_test_annotated.txt", 4927)},
        low=1.0,
    ),
)

TASK_SPECS: Mapping[str, TaskSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})
STS_TASKS = tuple(TASK_SPECS)
SAMPLE = "sts_sample"


def data_folder(data_dir: PathLike | None) -> Path | None:
    """The folder to read data from: `data_dir`, else `$JAXWHITEN_DATA_DIR`, else None."""
    folder = data_dir or os.environ.get("JAXWHITEN_DATA_DIR")
    return Path(folder) if folder else None
