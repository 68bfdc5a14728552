"""Rows of users as training examples: tables with the columns that an objective needs, and mined hard negatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.datasets.columns import CLASS, NUMBER, SCORE, Columns, Kind, guess, roles, shown
from jaxwhiten.datasets.examples import (
    ABSENT,
    FLOAT32,
    LABELS,
    Examples,
    examples_of,
    nli_classes,
    nli_triplets,
    text_examples,
)
from jaxwhiten.datasets.splits import linked_groups
from jaxwhiten.datasets.tables import Column, Table, as_table, parts_of, read_header, read_table
from jaxwhiten.datasets.textfile import split_name
from jaxwhiten.encoding import Encoder
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.io import PathLike
from jaxwhiten.runtime.distributed import is_writer
from jaxwhiten.search import build_index
from jaxwhiten.terminal import counted, note
from jaxwhiten.text import SIDES, Texts, as_texts
from jaxwhiten.training.plan import Objective

_TRUTHS = ("true", "false", "yes", "no")


def read_rows(
    rows: Any,
    objective: Objective,
    *,
    columns: Sequence[Column] = (),
    label: str | None = None,
    classes: Sequence[str] = (),
    score_range: tuple[int | float, int | float] | None = None,
    skip_bad_rows: bool = False,
) -> Examples:
    """Examples in the form that the objective takes.

    >>> read_rows("pairs.tsv", find_objective("cosent")).label.tolist()
    [1.0, 0.0]

    Args:
      rows: A table's path (TSV, CSV, JSON lines or Parquet), a text file of sentences, `Examples`, tuples, dicts, a
        mapping of columns, a DataFrame, or a `datasets.Dataset`.
      columns: The columns of sentences, those joined by a line break as `"title+body"`; by default those with usual
        names such as anchor, positive and negative, in any order. At most two columns of other names, and all columns
        of rows without names, are taken in order. A note says which.
      label: The column of classes or scores; by default one with a usual name, or the last. With an objective on
        unlabeled rows, it holds the classes of NLI, whose contradictions become hard negatives.
      classes: The classes, best from the least to the most similar, because held-out rows are scored in this order; by
        default those of NLI, or all that occur.
      score_range: The scores that map to 0 and 1; by default the lowest and the highest.
      skip_bad_rows: Whether to skip and count invalid rows, instead of raising an error.

    Raises:
      InputError: The names do not settle the roles of the columns, or the rows are not of a kind that can be read.
      DataError: A row is invalid.
    """
    if isinstance(rows, Examples):
        return rows
    source = as_table(rows)
    alone = objective.columns == (1, 1) and not columns
    if alone and not isinstance(source, Table) and (Path(source).is_dir() or split_name(source)[1] == ".txt"):
        return text_examples(source, skip_bad_rows=skip_bad_rows)
    where = "the rows" if isinstance(source, Table) else source
    header = read_header(source)
    chosen = _chosen(header, where, objective, columns, label)
    label = chosen.label
    sentence_columns = {" + ".join(parts_of(column, header)): column for column in chosen.sentences}
    names = list(sentence_columns)
    table = read_table(source, sentence_columns | ({label: label} if label else {}), skip_bad_rows=skip_bad_rows)
    known: tuple[str, ...] = ()
    if label and objective.label != "score":
        labels = list(map(str, table[label]))
        known = nli_classes(classes or labels)
        absent = sum(map(ABSENT.__contains__, labels)) if known else 0
        if absent:
            _note(f"{where}: left out {counted(absent, 'rows')} without a class that annotators agreed on")
        if objective.label != "class":
            return _triplets(table, names, label, known or LABELS, skip_bad_rows)
        if not (classes or known == LABELS):
            classes = sorted({*labels} - {*(ABSENT if known else ())})
            listed = shown(classes)
            _note(f"{where}: classes {listed}; specify `classes`, from the least similar on, to score held-out rows")
        classes = classes or LABELS[::-1]
    for name in [] if columns else names:
        if len(table[name]) and all(map(_is_label, table[name])):
            raise _no_sentences(where, name)
    if objective.label == "score" and score_range and not 0 < max(score_range) - min(score_range) <= FLOAT32:
        raise InputError(f"score_range={score_range}: expected two different numbers within float32's range.")
    of = classes if objective.label == "class" else ()
    examples = examples_of(table, names, label, of, score_range, skip_bad_rows, ABSENT if known else ())
    if len(names) > 2 and examples.label is None:
        return examples.without_false_negatives()
    return examples


def _chosen(
    header: Sequence[str], where: PathLike, objective: Objective, columns: Sequence[Column], label: str | None
) -> Columns:
    """The columns of sentences and the column of the label, which a note names."""
    specified = [part for column in columns for part in parts_of(column, header)]
    for name in (*specified, *filter(None, [label])):
        if name not in header:
            raise InputError(f"{where}: no column {name!r}; the columns are {', '.join(map(str, header))[:400]}.")
    kind = _kind(objective, label)
    scored = [name for name, role in roles(header).items() if role in (SCORE, CLASS) and name != label]
    if scored and kind.least > 1 and not columns and objective.label not in ("class", "score"):
        raise _no_sentences(where, scored[0])  # pairs, whatever their score, would be trained as ones that match
    guessed = guess(header, kind, where, columns=columns, label=label)
    _note(f"{where}: {guessed.words(kind)}")
    return guessed


def _kind(objective: Objective, label: str | None) -> Kind:
    """The roles of the rows that the objective takes."""
    least, most = objective.columns
    what = objective.label if objective.label in ("class", "score") else "class" if label else ""
    remedy = "specify the columns of sentences with `columns`"
    nouns: tuple[str, ...] = ("sentences",)
    if what:
        remedy += f" and the column of the {what} with `label`"
    elif most != 1 and objective.label != "vector":
        nouns = ("anchors", "positives", "negatives")[: 2 if most == 2 else 3]
        remedy += f", in the order {', '.join(nouns)}"
    return Kind(nouns, remedy, least, most, what or "")


def _is_label(value: object) -> bool:
    """Whether a cell holds a class of NLI, a number or a truth value instead of a sentence."""
    text = str(value).strip()
    return text in LABELS or text.lower() in _TRUTHS or NUMBER.fullmatch(text) is not None


def _no_sentences(where: PathLike, column: str) -> InputError:
    return InputError(
        f"{where}: the column {column!r} has no sentences. Use the objective cosent for scores, softmax for classes, or"
        f" mnr with the label {column!r} for the classes of NLI; or specify the columns of sentences."
    )


def _triplets(table: Table, names: Sequence[str], label: str, classes: Sequence[str], skip_bad_rows: bool) -> Examples:
    """Premise, entailed hypothesis and contradiction, from pairs with the classes of NLI."""
    if len(names) != 2:
        raise InputError(f"Rows with a class have two sentences, these have {len(names)}: omit the label.")
    pairs = examples_of(table, names, label, classes, None, skip_bad_rows, ABSENT)
    assert pairs.label is not None
    first, second = pairs.columns.values()
    triplets = nli_triplets(first, second, pairs.label)
    if not len(triplets):
        raise DataError(f"{table.path}: no premise has both an entailed and a contradicting hypothesis.")
    return dataclasses.replace(triplets, skipped=triplets.skipped + pairs.skipped)


def _note(text: str) -> None:
    """A note of the process that writes."""
    if is_writer():
        note(text)


def mine_negatives(
    encoder: Encoder, first: Texts, second: Texts, *, count: int, depth: int = 30, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Hard negatives for pairs that belong together: texts that an `Encoder` finds near, but no chain of pairs links.

    For each distinct text of `first`, `count` negatives are drawn from the `depth` nearest unlinked texts of `second`.

    >>> encoder = Encoder.from_pretrained("jaxwhiten-tiny")
    >>> mine_negatives(encoder, ["a dog", "rain"], ["A dog runs.", "It rains."], count=1)
    (['a dog', 'rain'], ['It rains.', 'A dog runs.'])

    Returns:
      Texts of `first`, and a negative for each.
    """
    numbers: dict[str, int] = {}
    sides = map(as_texts, (first, second), SIDES)
    a, b = (np.array([numbers.setdefault(text, len(numbers)) for text in side], int) for side in sides)
    texts = list(numbers)
    queries = np.unique(a)
    candidates = np.unique(b)
    group = linked_groups(np.stack([a, b]))
    vectors = encoder.encode(texts)
    most = min(depth + int(np.bincount(group).max()), len(candidates))
    _, ids = build_index(vectors[candidates], "jax").search(vectors[queries], most)
    scores = candidates[ids]
    free = group[scores] != group[queries][:, None]
    free &= np.cumsum(free, axis=1) <= depth
    drawn = np.argsort(np.where(free, np.random.default_rng(seed).random(free.shape), 2.0), axis=1)[:, :count]
    valid = np.take_along_axis(free, drawn, axis=1)
    owners = np.broadcast_to(queries[:, None], valid.shape)[valid]
    negatives = np.take_along_axis(scores, drawn, axis=1)[valid]
    return [texts[i] for i in owners.tolist()], [texts[i] for i in negatives.tolist()]


def with_negatives(pairs: Examples, owners: Iterable[str], negatives: Iterable[str]) -> Examples:
    """Triplets: each pair, repeated with every negative that was mined for its first sentence; others are skipped."""
    negatives_of: dict[str, list[str]] = {}
    for owner, negative in zip(owners, negatives, strict=True):
        negatives_of.setdefault(owner, []).append(negative)
    sides = [side for side in zip(*pairs.columns.values(), strict=True) if side[0] in negatives_of]
    triplets = [(*side, text) for side in sides for text in negatives_of[side[0]]]
    if not triplets:
        raise DataError(
            "No pair has a negative: a chain of pairs links all of them. Pass pairs of other texts, or omit"
            " `negatives`."
        )
    names = ("anchor", "positive", "negative")
    columns: Mapping[str, list[str]] = dict(zip(names, map(list, zip(*triplets, strict=True)), strict=True))
    return Examples(columns, skipped=pairs.skipped + len(pairs) - len(sides)).without_false_negatives()
