"""Training examples: columns of sentences with labels, from NLI rows, text, or a user's table.

References:
  Bowman et al. 2015 (SNLI); Williams et al. 2018 (MultiNLI).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxwhiten.datasets.splits import sentence_key, split
from jaxwhiten.datasets.tables import Table, bad_rows, number_of
from jaxwhiten.datasets.textfile import Corpus, corpus_files
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.io import PathLike
from jaxwhiten.terminal import brief
from jaxwhiten.text import as_texts
from jaxwhiten.types import Float64, Int, Shaped

FLOAT32 = float(np.finfo(np.float32).max)
# The classes of natural language inference, as files name them.
LABELS = ("entailment", "neutral", "contradiction")
_NUMBERS = ("0", "1", "2")  # in the order of the hub's data sets, which is the order of LABELS
ABSENT = ("-", "-1", "")  # of rows on whose class annotators did not agree


@dataclass(frozen=True)
class Examples:
    """Training examples.

    >>> examples = Examples({"anchor": ["a dog", "rain"], "positive": ["A dog runs.", "It rains."]})
    >>> examples.of(np.array([1])).columns["anchor"]
    ['rain']
    """

    columns: Mapping[str, list[str]]  # sentences by name, in the order the objective takes them; all of equal length
    label: Shaped[np.ndarray, " n"] | None = None  # int32 classes or float32 scores in [0, 1]; None without labels
    classes: tuple[str, ...] = ()  # their names
    skipped: int = 0  # rows that were left out

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.label is not None and not (valid := np.abs(self.label) <= FLOAT32).all():
            row = int(np.argmin(valid))
            raise InputError(f"Row {row}: the label is {self.label[row]}, expected a number within float32's range.")
        object.__setattr__(self, "columns", {name: as_texts(column) for name, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def label_kind(self) -> str | None:
        """`"class"`, `"score"` or None."""
        return None if self.label is None else "class" if self.classes else "score"

    def hold_out(self, share: float, seed: int = 0) -> tuple[Examples, Examples]:
        """Splits rows into those to train on and those to score, without a sentence on both sides.

        See `jaxwhiten.datasets.splits.split`. Rows on neither side, which connect both, count as `skipped` of the rows
        to train on.

        Raises:
          InputError: The rows have only one column, or are too connected to be split.
        """
        if len(self.columns) < 2:
            raise InputError("Only rows of at least two sentences can be held out.")
        parts = split(self.columns.values(), share, seed)
        train = dataclasses.replace(self.of(parts.train), skipped=self.skipped + len(parts.connecting))
        return train, self.of(parts.held_out)

    def without_sentences(self, others: Iterable[Sequence[str]], key: Callable[[str], str] = sentence_key) -> Examples:
        """The rows without a sentence that occurs in the columns of other rows; rows left out are in `skipped`.

        >>> examples = Examples({"anchor": ["a dog", "rain"], "positive": ["A dog runs.", "It rains."]})
        >>> examples.without_sentences([["It  RAINS."]]).columns["anchor"]
        ['a dog']
        """
        keys = {key(text) for column in others for text in column}
        kept = [keys.isdisjoint(map(key, texts)) for texts in zip(*self.columns.values(), strict=True)]
        return self._kept(kept)

    def without_false_negatives(self) -> Examples:
        """The rows of anchor, positive and negatives without a negative that is the anchor or a positive of it.

        Positives of all rows count. Case and white space are ignored. Rows left out are counted in `skipped`.
        """
        keys = [list(map(sentence_key, column)) for column in self.columns.values()]
        positives: dict[str, set[str]] = {anchor: {anchor} for anchor in keys[0]}
        for anchor, positive in zip(*keys[:2], strict=True):
            positives[anchor].add(positive)
        return self._kept([positives[anchor].isdisjoint(rest) for anchor, _, *rest in zip(*keys, strict=True)])

    def _kept(self, kept: Sequence[bool]) -> Examples:
        rows = np.flatnonzero(kept)
        return dataclasses.replace(self.of(rows), skipped=self.skipped + len(self) - len(rows))

    def of(self, rows: Int[np.ndarray, " m"]) -> Examples:
        """Some of the rows, by their numbers."""
        columns = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        return Examples(columns, None if self.label is None else self.label[rows], self.classes, self.skipped)


def nli_triplets(premises: Sequence[str], hypotheses: Sequence[str], labels: Int[np.ndarray, " n"]) -> Examples:
    """A premise, an entailed and a contradicting hypothesis, for premises that have both; labels are NLI classes.

    >>> labels = np.array([NLI_LABELS.index(name) for name in ("entailment", "contradiction")])
    >>> nli_triplets(["A dog runs."] * 2, ["It moves.", "It sleeps."], labels).columns["negative"]
    ['It sleeps.']
    """
    by_premise = defaultdict[str, tuple[list[str], ...]](lambda: ([], [], []))  # by premise and label
    for premise, hypothesis, label in zip(premises, hypotheses, labels.tolist(), strict=True):
        if label >= 0:
            by_premise[premise][label].append(hypothesis)
    triplets = [
        (premise, *pair)
        for premise, (entailed, _, contradicted) in by_premise.items()
        for pair in zip(entailed, itertools.cycle(contradicted), strict=False)
    ]
    names = ("anchor", "positive", "negative")
    columns = {name: [triplet[place] for triplet in triplets] for place, name in enumerate(names)}
    return Examples(columns, skipped=int(np.count_nonzero(labels == 0)) - len(triplets))


def nli_classes(labels: Collection[str]) -> tuple[str, ...]:
    """The classes in the order of `LABELS` as these labels write them; none if they are other classes.

    >>> nli_classes(["contradiction", "-"]), nli_classes(["2", "0"])
    (('entailment', 'neutral', 'contradiction'), ('0', '1', '2'))
    >>> nli_classes(["1", "0"])  # which may be any classes
    ()
    """
    present = {*labels} - {*ABSENT}
    if present and present <= {*LABELS}:
        return LABELS
    if "2" in present and present <= {*_NUMBERS}:
        return _NUMBERS
    return ()


def text_examples(where: PathLike, *, skip_bad_rows: bool = False) -> Examples:
    """The distinct lines of text files as one column.

    >>> text_examples("texts.txt").columns
    {'sentence': ['A dog runs.', 'It rains.']}

    Args:
      where: A `.txt` file, plain or compressed, a folder of such files, or a pattern with `*`.
      skip_bad_rows: Whether to skip and count lines that are not clean UTF-8 text, instead of raising an error.

    Raises:
      DataError: There is no such file, it cannot be read, or it holds no text.
    """
    corpus = Corpus(corpus_files(where), skip_bad_rows=skip_bad_rows)
    texts = list(dict.fromkeys(map(str.strip, corpus.passages())))
    if not texts:
        raise DataError(f"{where}: no line of text in it.")
    return Examples({"sentence": texts}, skipped=corpus.skipped)


def examples_of(
    table: Table,
    columns: Sequence[str],
    label: str | None,
    classes: Sequence[str] = (),
    score_range: tuple[int | float, int | float] | None = None,
    skip_bad_rows: bool = False,
    absent: Collection[str] = (),
) -> Examples:
    """Examples from a table.

    Args:
      columns: Names of the sentence columns, in the order the objective takes them.
      label: Name of the label column, if any.
      classes: The labels in class order, as written in the file; empty if the label is a score.
      score_range: The scores that map to 0 and 1; by default the lowest and the highest.
      skip_bad_rows: Whether to skip and count bad rows, instead of raising an error.
      absent: The labels of rows to skip and count.

    Raises:
      DataError: An empty sentence, an unknown class, an invalid score, or no rows; the message names file and line.
      InputError: All scores are equal.
    """
    bad = bad_rows(table, skip_bad_rows)
    labels = list(map(str, table[label])) if label else [""] * len(table.lines)
    codes = {name: float(code) for code, name in enumerate(classes)}
    if label and not classes:
        numbers = _scores(table[label], score_range)
    else:
        numbers = np.array([codes.get(text, math.nan) for text in labels])
    expected = f"one of {', '.join(classes)}" if classes else "a number, in the range of the scores"
    keep = []
    without = 0
    for row, (text, number) in enumerate(zip(labels, numbers.tolist(), strict=True)):
        empty = next((name for name in columns if not str(table[name][row]).strip()), None)
        if label and text in absent:
            without += 1
        elif empty is not None:
            bad(int(table.lines[row]), f"{empty!r} is empty")
        elif label and math.isnan(number):
            bad(int(table.lines[row]), f"{label!r} is {text[:40]!r}, expected {expected}")
        else:
            keep.append(row)
    if not keep:
        raise DataError(f"{table.path}: no valid row to train on ({bad.count + table.skipped + without} invalid).")
    columns_kept = {name: [str(table[name][row]) for row in keep] for name in columns}
    kept = numbers[keep].astype(np.int32 if classes else np.float32) if label else None
    return Examples(columns_kept, kept, tuple(classes), table.skipped + bad.count + without)


def _scores(values: Sequence[Any], score_range: tuple[int | float, int | float] | None) -> Float64[np.ndarray, " n"]:
    """Scores mapped to 0 to 1; NaN for those that are no number of the range, or beyond float32."""
    numbers = np.array(list(map(number_of, values)))
    numbers[np.abs(numbers) > FLOAT32] = math.nan
    low, high = score_range or (np.fmin.reduce(numbers, initial=math.inf), np.fmax.reduce(numbers, initial=-math.inf))
    if low == high:
        raise InputError("The scores of the rows are all equal: there is nothing to learn from them.")
    mapped = (numbers - low) / (high - low)
    mapped[(mapped < 0) | (mapped > 1)] = math.nan
    return mapped
