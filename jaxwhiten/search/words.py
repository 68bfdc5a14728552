"""Hybrid search: documents that have a query's rare words join the nearest ones, and BM25 orders them beside cosines.

References:
  Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
  Cormack, Clarke & Buettcher 2009, "Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from jaxwhiten.search.documents import Document
from jaxwhiten.store import SQLite
from jaxwhiten.types import Float, Float64, Int64, Real

NEAREST = 100  # candidates by vectors
BY_WORDS = 50  # and by words
_RARE = 3  # words that find candidates
_RAREST = 0.01  # the most documents, as a share of all, that such a word may be in
_COMMON = 0.2  # and a word that counts in BM25
_SLOW = 1000  # documents with a word, beyond which FTS5 takes longer to count or to rank them than all else
_RANK = 60  # as by Cormack et al.
_B = 0.75
_WORD = re.compile(r"[^\W_]+")
_LATIN = [*map(chr, (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)))]
_PLAIN = {char: base for char in _LATIN if (base := unicodedata.normalize("NFD", char)[0]).isascii()}
_PLAIN |= dict.fromkeys(map(chr, range(0x300, 0x332)), "")
_ACCENTED = re.compile(f"[{''.join(_PLAIN)}]")
# The index of the words of documents, which follows every change of them.
TABLES = (
    "CREATE VIRTUAL TABLE words USING fts5"
    " (text, content = 'documents', content_rowid = 'row', tokenize = 'unicode61 remove_diacritics 2')",
    # FTS5 merges its segments by fours, which makes every fourth change twice as long.
    "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
    "CREATE VIRTUAL TABLE frequencies USING fts5vocab (words, row)",
    "CREATE TRIGGER add_words AFTER INSERT ON documents BEGIN"
    " INSERT INTO words (rowid, text) VALUES (new.row, new.text); END",
    "CREATE TRIGGER remove_words AFTER DELETE ON documents BEGIN"
    " INSERT INTO words (words, rowid, text) VALUES ('delete', old.row, old.text); END",
    "CREATE TRIGGER change_words AFTER UPDATE OF text ON documents BEGIN"
    " INSERT INTO words (words, rowid, text) VALUES ('delete', old.row, old.text);"
    " INSERT INTO words (rowid, text) VALUES (new.row, new.text); END",
)


def has_words(database: SQLite) -> bool:
    """Whether Python's SQLite has FTS5."""
    return bool(database.rows("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"))


def words_of(text: str) -> list[str]:
    """The words of a text as FTS5 has them: without case, and Latin letters without accents.

    >>> words_of("Über C++, naïve_ideas")
    ['uber', 'c', 'naive', 'ideas']
    """
    plain = text.lower()
    if not plain.isascii():
        plain = _ACCENTED.sub(lambda found: _PLAIN[found[0]], plain)
    return _WORD.findall(plain)


class Frequencies:
    """In how many documents words are; counted when asked, and common words again once 1% of the rows are new."""

    def __init__(self) -> None:
        self._common: dict[str, int] = {}
        self._rows = 0  # that there were when these were counted

    def of(self, database: SQLite, query: str, count: int, rows: int) -> dict[str, int]:
        """The words of a query that are in some of `count` documents, but not in many, and in how many they are.

        `rows` also counts those that were removed or replaced.
        """
        if abs(rows - self._rows) > self._rows / 100:
            self._common, self._rows = {}, rows
        common = self._common
        words = dict.fromkeys(words_of(query))
        uncounted = [word for word in words if word not in common]
        counted = dict(database.rows_of("SELECT term, doc FROM frequencies WHERE term IN", uncounted))
        common.update((word, number) for word, number in counted.items() if number > _SLOW)
        frequencies = {word: common.get(word) or counted.get(word, 0) for word in words}
        return {word: number for word, number in frequencies.items() if 0 < number <= max(1, _COMMON * count)}


def rows_with(
    database: SQLite, frequencies: Mapping[str, int], count: int, most: int | None = None
) -> Int64[np.ndarray, " m"]:
    """The rows of documents that have the rarest words, best first; all or at most so many."""
    most_with_it = min(max(1, _RAREST * count), _SLOW)
    rare = sorted((number, word) for word, number in frequencies.items() if number <= most_with_it)
    if not rare:
        return np.empty(0, np.int64)
    either = " OR ".join(f'"{word}"' for _, word in rare[:_RARE])
    best = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
    rows = database.rows(best, [either, -1 if most is None else most])
    return np.array([row for (row,) in rows], np.int64)


def bm25_weights(
    times: Float[np.ndarray, " m"],
    lengths: Float[np.ndarray, " m"],
    mean_length: float,
    having: Real[np.ndarray, " m"],
    count: int,
    k1: float = 1.2,
) -> Float64[np.ndarray, " m"]:
    """The weights of words in documents: what each adds to the score of its document, once for each time in the query.

    >>> bm25_weights(np.array([1.0]), np.array([4.0]), 4.0, np.array([1]), 2).round(3)
    array([0.693])

    Args:
      times: How often the word is in the document.
      lengths: Of the document, in words.
      having: How many of `count` documents have the word.
      k1: How slowly the times of a word saturate.
    """
    idf = np.log1p((count - having + 0.5) / (having + 0.5))
    norms = k1 * (1 - _B + _B * lengths / (mean_length or 1.0))
    weights: np.ndarray = idf * times * (k1 + 1) / (times + norms)
    return weights


def bm25(frequencies: Mapping[str, int], count: int, documents: Sequence[Document]) -> Float64[np.ndarray, " n"]:
    """The scores of documents by the words of a query, with the average length of these documents."""
    counts = [Counter(words_of(document.text or "")) for document in documents]
    lengths = np.array([words.total() for words in counts], float)
    mean = lengths.sum() / max(1, len(lengths))
    scores = np.zeros(len(documents))
    for word, number in frequencies.items():
        times = np.array([words[word] for words in counts], float)
        scores += bm25_weights(times, lengths, mean, np.full(len(times), number), count)
    return scores


def fused(cosines: Float[np.ndarray, " n"], scores: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """The sums of reciprocal ranks by cosine and by BM25; documents without a word of the query share a last rank."""
    by_vectors = np.empty(len(cosines))
    by_vectors[np.argsort(-cosines, kind="stable")] = np.arange(1, len(cosines) + 1)
    ranks = np.empty(len(scores))
    ranks[np.lexsort((-cosines, -scores))] = np.arange(1, len(scores) + 1)
    by_words = np.where(scores > 0, 1 / (_RANK + ranks), 0.0)
    return 1 / (_RANK + by_vectors) + by_words
