"""Rows to train on: columns of sentences and a label each, from NLI rows, scored pairs, or a table of the user's."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from jaxwhiten.datasets.nli import LABELS, NLIRows
from jaxwhiten.datasets.protocol import Pairs
from jaxwhiten.datasets.tables import read_table
from jaxwhiten.datasets.textfile import BadRows
from jaxwhiten.errors import DataError, InputError, unknown_name

NLI_FORMS = ("pairs", "triplets", "sentences")


@dataclass(frozen=True)
class Examples:
    """Rows to train on.

    Attributes:
      columns: Sentences by column name, in the order an objective takes them; all of one length.
      label: int32 classes or float32 scores in 0-1, one a row; None where there are none.
      classes: Names of the classes.
      skipped: Rows left out.
    """

    columns: Mapping[str, list[str]]
    label: Shaped[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] = ()
    skipped: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def label_kind(self) -> str | None:
        """`"class"`, `"score"` or None."""
        return None if self.label is None else "class" if self.classes else "score"

    def take(self, count: int, seed: int = 0) -> Examples:
        """At most `count` rows, drawn without replacement and kept in order."""
        if count >= len(self):
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))
        columns = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        return Examples(columns, None if self.label is None else self.label[rows], self.classes, self.skipped)


def nli_examples(rows: NLIRows, form: str = "pairs") -> Examples:
    """NLI rows as examples.

    Args:
      rows: From `load_nli`.
      form: `"pairs"` of premise and hypothesis with their class; `"triplets"` of a premise, a hypothesis it entails and
        one that contradicts it, premises without both left out; `"sentences"`, each distinct one once.

    Returns:
      The examples.

    Raises:
      InputError: A mistyped form.
    """
    if form not in NLI_FORMS:
        raise unknown_name("form of NLI examples", form, NLI_FORMS)
    if form == "sentences":
        return Examples({"sentence": _distinct(rows.premise, rows.hypothesis)})
    if form == "pairs":
        kept = np.flatnonzero(rows.label >= 0).tolist()
        columns = {"premise": [rows.premise[i] for i in kept], "hypothesis": [rows.hypothesis[i] for i in kept]}
        return Examples(columns, rows.label[kept].astype(np.int32), LABELS, len(rows) - len(kept))
    by_premise: dict[str, tuple[list[str], list[str]]] = {}
    for premise, hypothesis, label in zip(rows.premise, rows.hypothesis, rows.label.tolist(), strict=True):
        if label in (0, 2):
            by_premise.setdefault(premise, ([], []))[label // 2].append(hypothesis)
    triplets = [
        (premise, positive, negative)
        for premise, (entailed, contradicted) in by_premise.items()
        if contradicted
        for positive, negative in zip(entailed, itertools.cycle(contradicted), strict=False)
    ]
    columns = dict(zip(("anchor", "positive", "negative"), map(list, zip(*triplets, strict=True)), strict=False))
    entailments = int(np.count_nonzero(rows.label == 0))
    return Examples(columns or {"anchor": []}, skipped=entailments - len(triplets))


def sts_examples(pairs: Pairs, low: int | float = 0.0, high: int | float = 5.0, form: str = "pairs") -> Examples:
    """Scored pairs as examples.

    Args:
      pairs: One split of an `STSTask`.
      low: The gold score that becomes 0.
      high: The gold score that becomes 1.
      form: `"pairs"` with their scores, or `"sentences"`, each distinct one once.

    Returns:
      The examples.

    Raises:
      InputError: A mistyped form.
    """
    if form not in ("pairs", "sentences"):
        raise unknown_name("form of STS examples", form, ("pairs", "sentences"))
    if form == "sentences":
        return Examples({"sentence": _distinct(pairs.sentence1, pairs.sentence2)})
    score = ((pairs.score - low) / (high - low)).astype(np.float32)
    return Examples({"sentence1": pairs.sentence1, "sentence2": pairs.sentence2}, score)


def table_examples(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    *,
    label: str | None = None,
    classes: Sequence[str] = (),
    score_range: tuple[int | float, int | float] = (0.0, 1.0),
    skip_bad_rows: bool = False,
) -> Examples:
    """Examples from a TSV, CSV, JSON-lines or Parquet file.

    Args:
      path: The file; its format is told by its ending.
      columns: Names of the columns that hold sentences, in the order the objective takes them.
      label: Name of the label's column, if any.
      classes: The labels in class order, as they are written in the file; empty where the label is a score.
      score_range: The scores that become 0 and 1.
      skip_bad_rows: Whether bad rows are left out and counted, instead of refused.

    Returns:
      The examples.

    Raises:
      DataError: A missing column, an empty sentence, an unknown class, a score that is no number or out of range, or
        no row at all; the message names file and line.
      InputError: No columns are named.
    """
    if not columns:
        raise InputError(f"{path}: name the columns that hold the sentences.")
    names = [*columns, label] if label else list(columns)
    table = read_table(path, {name: name for name in names}, skip_bad_rows=skip_bad_rows, ragged=True)
    bad = BadRows(path, skip_bad_rows)
    keep: list[int] = []
    values: list[float] = []
    codes = {name: code for code, name in enumerate(classes)}
    sentences = [table[name] for name in columns]
    for row in range(len(sentences[0])):
        problem = next(
            (f"{n!r} is empty" for n, c in zip(columns, sentences, strict=True) if not str(c[row]).strip()), ""
        )
        value = 0.0
        if label and not problem:
            value, problem = _label(label, table[label][row], codes, score_range)
        if problem:
            bad(int(table.lines[row]), problem)
        else:
            keep.append(row)
            values.append(value)
    if not keep:
        raise DataError(f"{path}: no row is left to train on ({bad.count + table.skipped} bad rows).")
    kept = {name: [str(column[row]) for row in keep] for name, column in zip(columns, sentences, strict=True)}
    labels = np.asarray(values, np.int32 if classes else np.float32) if label else None
    return Examples(kept, labels, tuple(classes), table.skipped + bad.count)


def _label(
    name: str, value: object, codes: Mapping[str, int], score_range: tuple[int | float, int | float]
) -> tuple[float, str]:
    """The label as a class number or a score in 0-1, and what is wrong with it if anything."""
    if codes:
        code = codes.get(str(value))
        return float(
            code or 0
        ), "" if code is not None else f"unknown {name} {str(value)[:40]!r}; known: {', '.join(codes)}"
    low, high = score_range
    try:
        score = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0, f"{name} {str(value)[:40]!r} is not a number"
    if not math.isfinite(score) or not min(low, high) <= score <= max(low, high):
        return 0.0, f"{name} is {score}, expected {low} to {high}"
    return (score - low) / (high - low), ""


def _distinct(*columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(itertools.chain(*columns)))
