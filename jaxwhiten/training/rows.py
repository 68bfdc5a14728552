"""Rows of users as training examples: tables with the columns that an objective needs, and mined hard negatives."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.datasets.examples import Examples, examples_of, nli_triplets, text_examples
from jaxwhiten.datasets.nli import LABELS, label_codes
from jaxwhiten.datasets.retrieval import SEARCHES
from jaxwhiten.datasets.senteval import NUMBER
from jaxwhiten.datasets.splits import linked_groups
from jaxwhiten.datasets.sts import SCORES, SENTENCES, check_header
from jaxwhiten.datasets.tables import Column, Table, as_table, parts_of, read_header, read_table
from jaxwhiten.datasets.textfile import split_name
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.io import PathLike
from jaxwhiten.search import build_index
from jaxwhiten.text import SIDES, Texts, as_texts
from jaxwhiten.training.plan import Objective

_COLUMNS = (
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    *(*SEARCHES, *SENTENCES, ("sentence",), ("text",)),
)
_IDS = ("id", "idx", "index", "guid", "pair_id", "pairid")


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
      columns: The columns of sentences, those joined by a line break as `("title", "body")` or `"title+body"`; by
        default all but the label, or usual names such as anchor and positive.
      label: The column of classes or scores; by default one with a usual name, or the last. With an objective on
        unlabeled rows, it holds the classes of NLI, whose contradictions become hard negatives.
      classes: The classes, best from the least to the most similar, because held-out rows are scored in this order; by
        default those of NLI, or all that occur.
      score_range: The scores that map to 0 and 1; by default the lowest and the highest.
      skip_bad_rows: Whether to skip and count invalid rows, instead of raising an error.

    Raises:
      InputError: The columns are ambiguous, or the rows are not of a kind that can be read.
      DataError: A row is invalid.
    """
    if isinstance(rows, Examples):
        return rows
    source = as_table(rows)
    alone = objective.columns == (1, 1) and not columns and not isinstance(source, Table)
    if alone and (Path(str(source)).is_dir() or split_name(str(source))[1] == ".txt"):
        return text_examples(str(source), skip_bad_rows=skip_bad_rows)
    where = "the rows" if isinstance(source, Table) else source
    header = read_header(source)
    if not columns:
        check_header(source, header)
    found, label = _chosen(header, where, objective, columns, label)
    wanted = {" + ".join(parts_of(column, header)): column for column in found}
    names = list(wanted)
    table = read_table(source, wanted | ({label: label} if label else {}), skip_bad_rows=skip_bad_rows)
    if label and objective.label not in ("class", "score"):
        return _triplets(table, names, label, skip_bad_rows)
    for name in [] if columns else names:
        if len(table[name]) and all(value in LABELS or NUMBER.fullmatch(str(value).strip()) for value in table[name]):
            raise _no_sentences(where, name)
    given = [str(value) for value in table[label]] if label else []
    if objective.label == "class" and not classes:
        found = sorted(set(given))
        classes = LABELS[::-1] if set(found) <= set(LABELS) else found
    elif objective.label == "score" and score_range is None:
        numbers = table.numbers(label or "")
        score_range = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
        if not score_range[0] < score_range[1]:
            raise InputError("The scores of the rows are all equal: there is nothing to learn from them.")
    of = classes if objective.label == "class" else ()
    examples = examples_of(table, names, label, of, score_range or (0.0, 1.0), skip_bad_rows)
    unlabeled = len(names) > 2 and examples.label is None
    return examples.without_false_negatives() if unlabeled else examples


def _chosen(
    header: Sequence[str], where: PathLike, objective: Objective, columns: Sequence[Column], label: str | None
) -> tuple[Sequence[Column], str | None]:
    """The columns of sentences and the column of the label."""
    least, most = objective.columns
    for name in itertools.chain(*(parts_of(column, header) for column in (*columns, *filter(None, [label])))):
        if name not in header:
            raise InputError(f"{where}: no column {name!r}; the columns are {', '.join(map(str, header))[:400]}.")
    if objective.label in ("class", "score") and label is None:
        usual = [name for name in SCORES if name in header and name not in columns]
        label = usual[0] if usual else header[-1] if len(header) == len(columns or range(least)) + 1 else None
        if label is None:
            raise InputError(f"{where}: specify the column of the {objective.label}: {', '.join(header)[:400]}.")
    if columns:
        return columns, label
    scored = [name for name in SCORES if name in header and name != label]
    if scored and least > 1:  # pairs, whatever their score, would be trained as pairs that belong together
        raise _no_sentences(where, scored[0])
    rest = [name for name in header if name != label and name.lower() not in _IDS]
    if least <= len(rest) <= (most or 3):
        return rest, label
    fitting = [names for names in _COLUMNS if set(names) <= set(rest) and least <= len(names) <= (most or 3)]
    if not fitting:
        raise InputError(f"{where}: specify the columns of sentences: {', '.join(rest)[:400]}.")
    more = [name for name in rest if "negative" in name and name not in fitting[0]] if most is None else []
    return [*fitting[0], *more], label


def _no_sentences(where: PathLike, column: str) -> InputError:
    return InputError(
        f"{where}: the column {column!r} has no sentences. Use the objective cosent for scores, softmax for classes, or"
        f" mnr with the label {column!r} for the classes of NLI; or specify the columns of sentences."
    )


def _triplets(table: Table, names: Sequence[str], label: str, skip_bad_rows: bool) -> Examples:
    """Premise, entailed hypothesis and contradiction, from pairs with the classes of NLI."""
    if len(names) != 2:
        raise InputError(f"Rows with a class have two sentences, these have {len(names)}: omit the label.")
    codes = label_codes(table, table[label], skip_bad_rows)
    kept = np.flatnonzero(codes >= 0)
    premise, hypothesis = ([table.texts(name)[row] for row in kept] for name in names)
    examples = nli_triplets(premise, hypothesis, codes[kept])
    if not len(examples):
        raise DataError(f"{table.path}: no premise has both an entailed and a contradicting hypothesis.")
    return examples


def mine_negatives(
    encoder: Any, first: Texts, second: Texts, *, count: int, depth: int = 30, seed: int = 0
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
    texts, queries, candidates = list(numbers), np.unique(a), np.unique(b)
    group = linked_groups(np.stack([a, b]))
    vectors = encoder.encode(texts)
    most = min(depth + int(np.bincount(group).max()), len(candidates))
    _, ids = build_index(vectors[candidates], "jax").search(vectors[queries], most)
    found = candidates[ids]
    free = group[found] != group[queries][:, None]
    free &= np.cumsum(free, axis=1) <= depth
    drawn = np.argsort(np.where(free, np.random.default_rng(seed).random(free.shape), 2.0), axis=1)[:, :count]
    there = np.take_along_axis(free, drawn, axis=1)
    owners = np.broadcast_to(queries[:, None], there.shape)[there]
    negatives = np.take_along_axis(found, drawn, axis=1)[there]
    return [texts[i] for i in owners.tolist()], [texts[i] for i in negatives.tolist()]


def with_negatives(pairs: Examples, owners: Iterable[str], negatives: Iterable[str]) -> Examples:
    """Triplets: each pair, repeated with every negative that was mined for its first sentence."""
    own: dict[str, list[str]] = {}
    for owner, negative in zip(owners, negatives, strict=True):
        own.setdefault(owner, []).append(negative)
    sides = zip(*pairs.columns.values(), strict=True)
    triplets = [(first, second, text) for first, second in sides for text in own.get(first, ())]
    names = ("anchor", "positive", "negative")
    columns: Mapping[str, list[str]] = dict(zip(names, map(list, zip(*triplets, strict=True)), strict=True))
    return Examples(columns, skipped=pairs.skipped).without_false_negatives()
