"""Scored pairs: the sample that ships with the package, and the user's own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from jaxwhiten.datasets.columns import PAIRS, Columns, Kind, guess, shown
from jaxwhiten.datasets.tables import Column, Table, read_header, read_table, where_of
from jaxwhiten.errors import InputError
from jaxwhiten.io import PathLike
from jaxwhiten.terminal import brief, note
from jaxwhiten.types import Float64

SAMPLE = "sts_sample"
_COLUMNS = ("sentence1", "sentence2", "score")


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs of one split, each with its gold score and its subset.

    >>> pairs = Pairs(["A dog runs."], ["It rains."], np.array([0.0]))
    >>> len(pairs)
    1
    """

    sentence1: list[str]
    sentence2: list[str]
    score: Float64[np.ndarray, " n"]
    subset: Sequence[str] = ()  # of each pair, if there are several

    def __len__(self) -> int:
        return len(self.sentence1)

    __repr__ = brief


@dataclass(frozen=True)
class STSTask:
    """A task of semantic textual similarity: pairs by split.

    >>> list(load_sts("sts_sample").splits)
    ['test']
    """

    name: str
    splits: Mapping[str, Pairs]


def load_sts(task: str) -> STSTask:
    """Loads the scored pairs that ship with the package: one split `test`, with the genres as subsets.

    >>> pairs = load_sts("sts_sample").splits["test"]
    >>> len(pairs.score), pairs.sentence1[0]
    (390, 'A bus crash in the Andes killed 21 people on Friday.')

    Args:
      task: `"sts_sample"`.

    Raises:
      InputError: Any other name.
    """
    if task != SAMPLE:
        raise InputError(
            f"Unknown STS task {task!r:.80}: only sts_sample ships with the package. In a checkout of the repository,"
            " `eval.data.load_sts` reads STS12 to STS16, STS-B and SICK-R, and `python -m eval.sts` scores on them."
        )
    with resources.as_file(resources.files("jaxwhiten.datasets") / f"{SAMPLE}.tsv") as path:
        table = read_table(path)
    score = np.array(table["score"], np.float64)
    return STSTask(SAMPLE, {"test": Pairs(table["sentence1"], table["sentence2"], score, table["genre"])})


def read_pairs(source: PathLike | Table, columns: Sequence[Column] = ()) -> Pairs:
    """Reads scored pairs from a table.

    >>> read_pairs("pairs.tsv").score
    array([4.5, 0. ])

    Args:
      source: A `.tsv`, `.csv`, `.jsonl` or `.parquet` file, or the result of `as_table`.
      columns: Names of both sentences and of the score. By default usual names, and the order for at most two others;
        a note says which.

    Raises:
      InputError: The names do not settle which columns these are.
      DataError: A column is missing, or a score is not a number; the message names the line.
    """
    if len(columns) not in (0, 3):
        raise InputError(f"columns={shown(columns)!r}: expected three names: two sentences and the score.")
    table = read_kind(source, PAIRS, _COLUMNS, columns)
    first, second = (table.texts(column) for column in _COLUMNS[:2])
    return Pairs(first, second, table.numbers("score"))


def read_kind(source: PathLike | Table, kind: Kind, names: Sequence[str], columns: Sequence[Column] = ()) -> Table:
    """The columns of two sentences and a label under new names; a note says which they are.

    Args:
      columns: Their names in the table; by default guessed, and a table of searches may lack the label.
    """
    if columns:
        taken = Columns(tuple(columns[:2]), columns[2])
    else:
        taken = guess(read_header(source), kind, where_of(source))
    in_table = (*taken.sentences, taken.label)
    table = read_table(source, {name: column for name, column in zip(names, in_table, strict=True) if column})
    note(taken.words(kind))
    return table
