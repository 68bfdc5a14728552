"""The roles of a table's columns by their names: one rule for training, scores, searches and plain texts.

A usual name takes its role wherever it stands in the table. Sentences that are left over come from the other columns in
their order, if these are exactly as many, and at most two. All else is refused: the caller has to specify the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxwhiten.datasets.tables import Column, parts_of, table_format
from jaxwhiten.errors import DataError, InputError
from jaxwhiten.io import PathLike

FIRST = "first"
SECOND = "second"
NEGATIVE = "negative"
TEXT = "text"
SCORE = "score"
CLASS = "class"
OTHER = "other"
_LABELS = (SCORE, CLASS)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_NAME = 3  # words of a column's name
_UNKNOWN = 2  # columns of sentences, at most, that are taken by their order
_SHOWN = 400  # characters of a list of names
_BARE = re.compile(r"(column)?\d+")  # columns of tuples, and of a DataFrame without names

# Usual names as `_normal` writes them, those of data sets on the hub among them.
_USUAL = {
    FIRST: "anchor query question claim premise",
    SECOND: "positive pos document doc passage paragraph answer response evidence hypothesis",
    TEXT: "sentence text",  # of both, the first one is read
    SCORE: "score similarity similarity_score relatedness relatedness_score relevance relevance_score rating grade gold"
    " gold_score human_score",
    CLASS: "label labels gold_label class entailment_label entailment_judgment relevant is_relevant duplicate"
    " duplicates is_duplicate",
}
_ROLES = {name: role for role, names in _USUAL.items() for name in names.split()}
# Names with a mark, as `sentence1` and `sentence2`, or `text_a` and `text_b`.
_MARKED = "sentence sent s question q query text phrase document doc passage title"
_MARKS = ("12", "01", "ab")
_NEGATIVES = "negative negatives neg"
_MEASURES = "score scores similarity label"  # last words of names of no negatives
# Last words of names of columns without sentences, as `pair_id` and `publish_date`; `Unnamed: 0` is pandas' index.
_OTHER = (
    "id ids idx index guid uuid qid did pid docid queryid pairid unnamed date datetime time timestamp year url uri link"
    " lang language locale split author topic filename path"
)


@dataclass(frozen=True)
class Kind:
    """The roles of rows, and what the caller can do if the names of the columns do not settle them."""

    nouns: tuple[str, ...]  # of the sentences in messages; the last one of all that follow, too
    remedy: str
    least: int = 2  # sentences per row
    most: int | None = 2
    label: str = ""  # "score" or "class" of every row, or "grade", which may be missing


TEXTS = Kind(("texts",), "specify `column`, that of the texts", 1, 1)
_SCORED = (
    "specify `columns`, two of sentences and that of the score; or, to score a search, name the columns query and"
    " document"
)
PAIRS = Kind(("sentences",), _SCORED, label="score")
SEARCHES = Kind(("queries", "documents"), "remove or rename all but one", label="grade")
_LABEL_NOUNS = {"score": "scores", "class": "classes", "grade": "grades"}


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
        last = len(kind.nouns) - 1
        groups = [*([name] for name in self.sentences[:last]), self.sentences[last:]]
        named = zip(kind.nouns, groups, strict=False)
        parts = ", ".join(f"{noun} from {shown(names)}" for noun, names in named if names)
        every = "; every row matches" if kind.label == "grade" else ""
        label = f"; {_LABEL_NOUNS[kind.label]} from {self.label}" if self.label else every
        unused = f"; not used: {shown(self.unused)}" if self.unused else ""
        return parts + label + unused


def shown(names: Iterable[Column]) -> str:
    """Names in a message."""
    return ", ".join(names)[:_SHOWN]


def roles(header: Iterable[str]) -> dict[str, str]:
    """The roles of the names that are usual ones.

    >>> roles(["qid", "question_text", "hardNegative1", "body"])
    {'qid': 'other', 'question_text': 'first', 'hardNegative1': 'negative'}
    """
    normal = {name: _normal(name) for name in header}
    result = {name: role for name, usual in normal.items() if (role := _role(usual))}
    for stem in _MARKED.split():
        marked = {usual[-1]: name for name, usual in normal.items() if usual.rpartition("_")[0] == stem}
        if marks := next((marks for marks in _MARKS if {*marks} == {*marked}), None):
            result |= {marked[mark]: role for mark, role in zip(marks, (FIRST, SECOND), strict=True)}
    return result


def _normal(name: str) -> str:
    """A name in lower case, its words joined by `_`; it may end with `text`, as `query_text`, which is left out."""
    words = re.findall(r"[^\W\d_]+|\d+", re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", name).lower())
    return "_".join(words[:-1] if len(words) > 1 and words[-1] == "text" else words)


def _role(name: str) -> str | None:
    """The role of a normal name; an empty one is that of the index that pandas writes."""
    last = re.sub(r"[_\d]+$", "", name).rpartition("_")[2]
    if not name or last in _OTHER.split():
        return OTHER
    if name.removeprefix("hard_").split("_")[0] in _NEGATIVES.split() and last not in _MEASURES.split():
        return NEGATIVE
    return _ROLES.get(name)


def is_search(header: Iterable[str]) -> bool:
    """Whether a table has queries and documents by the names of its columns.

    >>> is_search(["url", "passage", "query"]), is_search(["premise", "hypothesis", "label"])
    (True, False)
    """
    names = {*map(_normal, header)} - {"premise", "hypothesis"}
    return {FIRST, SECOND} <= {_ROLES.get(name) for name in names}


def guess(
    header: Iterable[str], kind: Kind, where: PathLike, *, columns: Sequence[Column] = (), label: str | None = None
) -> Columns:
    """The columns of a table by their roles: those given, and the others by their names.

    >>> guess(["anchor", "negative", "positive"], SEARCHES, "pairs.tsv").sentences
    ('anchor', 'positive')

    Raises:
      InputError: The names do not settle the roles.
      DataError: The first line of a TSV or CSV file is a row, which would be lost as names of columns: it has a number
        beside other cells, or a cell of four words.
    """
    names = list(dict.fromkeys(header))
    if not columns and table_format(where) in ("tsv", "csv"):
        numbers = [name for name in names if NUMBER.fullmatch(name.strip())]
        if 0 < len(numbers) < len(names) or any(len(name.split()) > _NAME for name in names):
            raise DataError(
                f"{where}, line 1: {', '.join(names)[:80]!r} looks like a row: add a line with the names of the"
                " columns, or specify the column if this is its name."
            )
    if kind.most == len(names) == 1 and not columns:
        return Columns((names[0],))
    usual = roles(names)
    specified = {label, *(part for column in columns for part in parts_of(column, names))}
    free = {name: usual.get(name, "") for name in names if name not in specified and usual.get(name) != OTHER}

    def refusal(problem: str = "") -> InputError:
        return InputError(f"{where}: {problem}{kind.remedy}; there are {shown(names)}.")

    def only(role: str) -> str | None:
        of_role = [name for name in free if free[name] == role]
        if len(of_role) > 1:
            raise refusal(f"{shown(of_role)} are all usual names of one role: ")
        return next(iter(of_role), None)

    if label is None and kind.label:
        label = next(filter(None, map(only, _LABELS[::-1] if kind.label == CLASS else _LABELS)), None)
    without_label = label is None and kind.label in _LABELS
    free.pop(label or "", None)
    bare = all(map(_BARE.fullmatch, free))
    sentences: list[Column | None]
    unknown = [name for name, role in free.items() if role in ("", TEXT)]
    if columns:
        sentences = [*columns]
    elif kind.most == 1:
        texts = {_normal(name): name for name in unknown}
        sentences = [next((texts[name] for name in _USUAL[TEXT].split() if name in texts), None)]
        unknown = [name for name, role in free.items() if role not in _LABELS]
    elif bare:
        places = kind.least if without_label else min(len(free), kind.most or kind.least + 1)
        sentences = [None] * max(places, kind.least)
    else:
        negatives = [name for name, role in free.items() if role == NEGATIVE]
        room = len(negatives) if kind.most is None else kind.most - 2
        if 0 < room < len(negatives):
            raise refusal(f"expected {room} of {shown(negatives)}: ")
        missing = kind.least - 2 - len(negatives)
        sentences = [only(FIRST), only(SECOND), *negatives[:room], *[None] * missing]
    gaps = sentences.count(None)
    ordered = bool(columns) or bare  # then the label may have any name, too
    needed = gaps + without_label
    if (needed and len(unknown) != needed) or (not ordered and (without_label or gaps > _UNKNOWN)):
        raise refusal()
    rest = iter(unknown)
    filled = tuple(next(rest) if name is None else name for name in sentences)
    if without_label:
        label = next(rest)
    return Columns(filled, label, () if columns else tuple(name for name in names if name not in {*filled, label}))
