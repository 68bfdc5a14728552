"""Splits of rows that share no sentence: the groups of connected rows, and the rows held out of a training."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxwhiten.errors import InputError
from jaxwhiten.types import Bool, Int

_PARTS = (8, 4, 2, 1)  # a group makes up at most one of so many parts of the held-out rows, if there are enough
_KEPT = 0.5  # the least fraction of the rows to train on that a split may keep
_ADVICE = "Hold out none with held_out=0, or score with pairs of other sentences (`dev`)."


class Split(NamedTuple):
    """The numbers of the rows on each side, and of those that connect both and are on neither.

    >>> split([["a dog", "rain"], ["A dog runs.", "It rains."]], 0.5).held_out
    array([1])
    """

    train: Int[np.ndarray, " t"]
    held_out: Int[np.ndarray, " h"]
    connecting: Int[np.ndarray, " c"]


def sentence_key(text: str) -> str:
    """A key that ignores case, white space and Unicode's compatible forms (NFKC): equal for spellings of a sentence.

    >>> sentence_key("A  Dog") == sentence_key("\\uff41 dog")
    True
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())


def numbered(columns: Iterable[Sequence[str]]) -> Int[np.ndarray, "columns n"]:
    """Rows of texts as numbers, equal for texts with the same `sentence_key`."""
    number: dict[str, int] = {}
    return np.array([[number.setdefault(key, len(number)) for key in map(sentence_key, column)] for column in columns])


def linked_groups(rows: Int[np.ndarray, "columns n"]) -> Int[np.ndarray, " texts"]:
    """The group of every text, from rows of text numbers: rows that share texts, also through others, form a group."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = (np.repeat(rows[:1], len(rows), axis=0).ravel(), rows.ravel())
    texts = int(rows.max()) + 1
    return connected_components(coo_matrix((np.ones(rows.size, bool), links), shape=(texts, texts)), directed=False)[1]


def row_groups(rows: Int[np.ndarray, "columns n"]) -> Int[np.ndarray, " n"]:
    """The group of every row, from 0 on: rows that share a sentence, also through other rows, are in one.

    >>> row_groups(numbered([["a dog", "rain", "snow"], ["rain", "snow", "A DOG"]]))
    array([0, 0, 0])
    """
    return np.unique(linked_groups(rows)[rows[0]], return_inverse=True)[1]


def independent(columns: Iterable[Sequence[str]]) -> Int[np.ndarray, " n"]:
    """The unit of every row, from 0 on, that a bootstrap draws as a whole: its group.

    A group of more than half of the rows says nothing about chance: then each row is a unit.

    >>> independent([["a dog", "A dog", "rain", "snow"], ["A dog runs.", "It runs.", "It rains.", "It snows."]])
    array([0, 0, 1, 2])
    """
    groups = row_groups(numbered(columns))
    if 2 * np.bincount(groups).max(initial=0) <= len(groups):
        return groups
    return np.arange(len(groups))


def split(columns: Collection[Sequence[str]], share: float, seed: int = 0) -> Split:
    """Splits rows into those to train on and those to score, so that no sentence is on both sides.

    Rows that share a sentence in any column, also through other rows, form a group; spellings count as one sentence
    (`sentence_key`). Groups are drawn at random until the share of the rows is reached. A group stays in training if it
    is larger than an eighth of the rows to hold out, or, where too few are left, than a fourth, a half, or all of them.

    Where even these do not suffice, because sentences of many rows connect nearly everything, groups are formed without
    the rows that have such a sentence. The rows that then connect a held-out row with training are on neither side.

    Raises:
      InputError: One side would be empty, or half of the rows would be lost.
    """
    texts = numbered(columns)
    n = texts.shape[1]
    count = max(1, round(share * n))
    often = np.bincount(texts.ravel())
    of_row = often[texts].max(axis=0)  # rows of the most frequent sentence of each row
    limit = int(often.max())
    out = np.zeros(n, bool)
    while limit and not out.any():
        free = np.flatnonzero(of_row <= limit)
        if len(free):
            group = row_groups(texts[:, free])
            out[free] = _drawn(np.bincount(group), count, seed)[group]
        limit //= 2
    held_out = np.zeros(len(often), bool)
    held_out[texts[:, out]] = True
    touching = held_out[texts].any(axis=0)
    lost = touching & ~out
    if not out.any() or touching.all() or lost.sum() > _KEPT * (n - out.sum()):
        column, row = np.argwhere(texts == often.argmax())[0]
        text = list(columns)[column][row]
        raise InputError(
            f"Cannot hold out {count:,} of {n:,} rows without leaving out too many: they are connected by shared"
            f" sentences ({often.max():,} have {text[:60]!r}), and no sentence may be both trained on and scored."
            f" {_ADVICE}"
        )
    return Split(*map(np.flatnonzero, (~touching, out, lost)))


def _drawn(sizes: Int[np.ndarray, " g"], wanted: int, seed: int) -> Bool[np.ndarray, " g"]:
    """The groups drawn to have about so many rows; none if only larger ones would suffice."""
    order = np.argsort(np.random.default_rng(seed).random(len(sizes)))
    drawn = np.zeros(len(sizes), bool)
    for parts in _PARTS:
        small = order[sizes[order] <= max(1, wanted // parts)]
        reached = np.cumsum(sizes[small])
        if len(small) and reached[-1] >= wanted:
            drawn[small[: 1 + np.abs(reached - wanted).argmin()]] = True
            return drawn
    return drawn
