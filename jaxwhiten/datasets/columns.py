"""The roles of a table's columns by their names: one rule for training, scores, searches and plain texts.

A usual name takes its role wherever it stands in the table. Sentences that are left over come from the other columns in
their order, if these are exactly as many, and at most two. All else is refused: the caller has to specify the columns.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxwhiten.datasets.tables import Column, parts_of
from jaxwhiten.errors import InputError

FIRST = "first"
SECOND = "second"
NEGATIVE = "negative"
TEXT = "text"
SCORE = "score"
CLASS = "class"
OTHER = "other"
_LABELS = (SCORE, CLASS)
_UNKNOWN = 2  # columns of sentences, at most, that are taken by their order
_SHOWN = 400  # characters of a list of names
_BARE = re.compile(r"(column)?\d+")  # columns of tuples, and of a DataFrame without names

# Usual names in words, those of data sets on the hub among them; a name may end with `text`, as `query_text`.
_QUERIES = ("anchor", "query", "question", "claim")
_DOCUMENTS = ("positive", "pos", "document", "doc", "passage", "paragraph", "answer", "response", "evidence")
_USUAL = {
    FIRST: (*_QUERIES, "premise"),
    SECOND: (*_DOCUMENTS, "hypothesis"),
    TEXT: ("sentence", "text"),  # of both, the first one is read
    SCORE: (
        *("score", "similarity", "similarity score", "relatedness", "relatedness score", "relevance", "rating"),
        *("relevance score", "gold", "gold score", "human score", "grade"),
    ),
    CLASS: (
        *("label", "labels", "gold label", "class", "entailment label", "entailment judgment", "relevant"),
        *("is relevant", "duplicate", "duplicates", "is duplicate"),
    ),
}
_ROLES = {name: role for role, names in _USUAL.items() for name in names}
# Names with a mark, as `sentence1` and `sentence2`, or `text_a` and `text_b`.
_MARKED = ("sentence", "sent", "s", "question", "q", "query", "text", "phrase", "document", "doc", "passage", "title")
_MARKS = (("1", "2"), ("0", "1"), ("a", "b"))
_NEGATIVE = ("negative", "negatives", "neg")
_MEASURES = ("score", "scores", "similarity", "label")
# Last words of names of columns without sentences, as `pair_id` and `publish_date`; `Unnamed: 0` is pandas' index.
_OTHER = (
    *("id", "ids", "idx", "index", "guid", "uuid", "qid", "did", "pid", "docid", "queryid", "pairid", "unnamed"),
    *("date", "datetime", "time", "timestamp", "year", "url", "uri", "link", "lang", "language", "locale", "split"),
    *("author", "topic", "filename", "path"),
)


@dataclass(frozen=True)
class Kind:
    """The roles of rows, and what the caller can do if the names of the columns do not settle them."""

    nouns: tuple[str, ...]  # of the sentences in messages; the last one of all that follow, too
    remedy: str
    least: int = 2  # sentences per row
    most: int | None = 2
    label: str = ""  # "score" or "class" of every row, or "grade", which may be missing
    label_remedy: str = ""

    @property
    def label_noun(self) -> str:
        if self.label == "class":
            return "classes"
        return f"{self.label}s"

    def noun(self, place: int) -> str:
        return self.nouns[min(place, len(self.nouns) - 1)]


_TRIPLE = "specify columns=SENTENCE1,SENTENCE2,SCORE"
TEXTS = Kind(("texts",), "specify the text column with --column", 1, 1)
PAIRS = Kind(("sentences",), _TRIPLE, label="score", label_remedy=_TRIPLE)
SEARCHES = Kind(("queries", "documents"), "remove or rename all but one", label="grade")


class Columns(NamedTuple):
    """The columns of a table by their roles."""

    sentences: tuple[Column, ...]  # first and second, or anchor, positive and negatives, in this order
    label: str | None = None
    unused: tuple[str, ...] = ()

    def words(self, kind: Kind) -> str:
        """What was taken as what.

        >>> guess(["answer", "question", "topic"], SEARCHES, "pairs.tsv").words(SEARCHES)
        'queries from question, documents from answer; every row matches; not used: topic'
        """
        places = enumerate(self.sentences)
        groups = itertools.groupby(places, lambda place: kind.noun(place[0]))
        parts = ", ".join(f"{noun} from {shown(name for _, name in group)}" for noun, group in groups)
        every = "; every row matches" if kind.label == "grade" else ""
        label = f"; {kind.label_noun} from {self.label}" if self.label else every
        unused = f"; not used: {shown(self.unused)}" if self.unused else ""
        return parts + label + unused


def shown(names: Iterable[Column]) -> str:
    """Names in a message; `+` joins those whose texts are joined."""
    return ", ".join(name if isinstance(name, str) else "+".join(name) for name in names)[:_SHOWN]


def roles(header: Iterable[str]) -> dict[str, str]:
    """The roles of the names that are usual ones.

    >>> roles(["qid", "question_text", "hardNegative1", "body"])
    {'qid': 'other', 'question_text': 'first', 'hardNegative1': 'negative'}
    """
    words = {name: _words(name) for name in header}
    result = {name: role for name, of in words.items() if (role := _role(of))}
    for stem in _MARKED:
        marked = {of[1]: name for name, of in words.items() if len(of) == 2 and of[0] == stem}
        if marks := next((marks for marks in _MARKS if set(marks) == set(marked)), None):
            result |= {marked[mark]: role for mark, role in zip(marks, (FIRST, SECOND), strict=True)}
    return result


def _words(name: str) -> list[str]:
    words = re.findall(r"[^\W\d_]+|\d+", re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", name).lower())
    if len(words) > 1 and words[-1] == "text":
        return words[:-1]
    return words


def _role(words: Sequence[str]) -> str | None:
    last = next((word for word in reversed(words) if not word.isdigit()), "")
    if last in _OTHER or not words:  # without a word: the index that pandas writes
        return OTHER
    if last not in _MEASURES and next((word for word in words if word != "hard"), "") in _NEGATIVE:
        return NEGATIVE
    return _ROLES.get(" ".join(words))


def labels_of(header: Iterable[str]) -> list[str]:
    """The columns that hold scores or classes by their names.

    >>> labels_of(["sentence1", "sentence2", "is_duplicate"])
    ['is_duplicate']
    """
    return [name for name, role in roles(header).items() if role in _LABELS]


def is_search(header: Iterable[str]) -> bool:
    """Whether a table has queries and documents by the names of its columns.

    >>> is_search(["url", "passage", "query"]), is_search(["premise", "hypothesis", "label"])
    (True, False)
    """
    names = {" ".join(_words(name)) for name in header}
    return not (names.isdisjoint(_QUERIES) or names.isdisjoint(_DOCUMENTS))


def guess(
    header: Iterable[str], kind: Kind, where: object, *, columns: Sequence[Column] = (), label: str | None = None
) -> Columns:
    """The columns of a table by their roles: those given, and the others by their names.

    >>> guess(["anchor", "negative", "positive"], SEARCHES, "pairs.tsv").sentences
    ('anchor', 'positive')

    Raises:
      InputError: The names do not settle the roles.
    """
    names = list(dict.fromkeys(header))
    if kind.most == len(names) == 1 and not columns:
        return Columns((names[0],))
    specified = {label, *(part for column in columns for part in parts_of(column, names))}
    usual = roles(names)
    remaining = {name: usual.get(name, "") for name in names if name not in specified and usual.get(name) != OTHER}
    if label is None:
        label = _label(remaining, kind, where)
        remaining.pop(label or "", None)
    needs_label = label is None and kind.label in _LABELS
    bare = all(map(_BARE.fullmatch, remaining))
    sentences: list[Column | None] = [*columns] or _sentences(remaining, kind, where, bare, needs_label)
    gaps = sentences.count(None)
    unknown = [name for name, role in remaining.items() if role in ("", TEXT)]
    by_name = not (columns or bare)  # the name of a label has to be a usual one
    if (gaps or needs_label) and (len(unknown) != gaps + needs_label or (by_name and (needs_label or gaps > _UNKNOWN))):
        alone = needs_label and (not gaps or len(unknown) == gaps)
        raise _refusal(kind.label_remedy if alone else kind.remedy, where, names)
    rest = iter(unknown)
    filled = tuple(next(rest) if name is None else name for name in sentences)
    if needs_label:
        label = next(rest)
    return Columns(filled, label, () if columns else tuple(name for name in names if name not in {*filled, label}))


def _label(left: Mapping[str, str], kind: Kind, where: object) -> str | None:
    """The column of the label by its name."""
    order = _LABELS[::-1] if kind.label == "class" else _LABELS
    remedy = kind.label_remedy or kind.remedy
    names = (_one(left, role, kind.label_noun, remedy, where) for role in order if kind.label)
    return next(filter(None, names), None)


def _sentences(left: dict[str, str], kind: Kind, where: object, bare: bool, wanted: bool) -> list[Column | None]:
    """The columns of sentences by their names; None for those that other columns of `left` have to fill."""
    if kind.most == 1:
        texts = {" ".join(_words(name)): name for name, role in left.items() if role == TEXT}
        left |= {name: "" for name, role in left.items() if role not in _LABELS}  # any of them may be the texts
        return [next((texts[usual] for usual in _USUAL[TEXT] if usual in texts), None)]
    if bare:
        count = kind.least if wanted else min(len(left), kind.most or kind.least + 1)
        return [None] * max(count, kind.least)
    sides = [_one(left, role, kind.noun(place), kind.remedy, where) for place, role in enumerate((FIRST, SECOND))]
    negatives = [name for name, role in left.items() if role == NEGATIVE]
    room = len(negatives) if kind.most is None else kind.most - 2
    if room and len(negatives) > room:
        raise _refusal(f"expected {room} of {shown(negatives)}: {kind.remedy}", where, left)
    return [*sides, *negatives[:room], *[None] * (kind.least - 2 - len(negatives))]


def _one(left: Mapping[str, str], role: str, noun: str, remedy: str, where: object) -> str | None:
    """The column of a role, if there is one; InputError if there are several."""
    names = [name for name, of in left.items() if of == role]
    if len(names) > 1:
        raise _refusal(f"{shown(names)} are all usual names of the {noun}: {remedy}", where, left)
    if names:
        return names[0]
    return None


def _refusal(remedy: str, where: object, names: Iterable[str]) -> InputError:
    return InputError(f"{where}: {remedy}; there are {shown(names)}.")
