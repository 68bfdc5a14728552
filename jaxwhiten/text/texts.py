"""Texts in any container as a list of strings: the one check in front of every function that takes texts."""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

from jaxwhiten.errors import InputError

if TYPE_CHECKING:
    Texts = Iterable[str]
else:
    Texts = Any  # other objects get a message of `as_texts`

SIDES = "first sentence of pair", "second sentence of pair"
_BLANK = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # categories: control and format characters, separators
_WITHOUT_WIDTH = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | set(map(chr, range(0xFE00, 0xFE10)))
_MISSING = ("None", "nan", "<NA>", "NaT", "--")  # missing values of Python, NumPy, pandas and masked arrays, as strings


class TextList(list[str]):
    """Texts that `as_texts` has checked, which gives them back at once: functions behind a door expect these."""

    __slots__ = ()


def as_texts(texts: object, what: str = "sentence", first: int = 0) -> TextList:
    """The strings of a list, an iterator, an array, or a column of pandas, polars, Arrow or datasets, in their order.

    Lone surrogates become U+FFFD, so that every text can be tokenized, saved and printed. `what` and `first`, the
    number of the first text, are for messages. InputError gives position, type and remedy of anything else, such as one
    string, a table or None.
    """
    if type(texts) is TextList:
        return texts
    checked = TextList(_items(texts, what))
    if set(map(type, checked)) - {str}:
        checked = TextList(item.as_py() if hasattr(item, "as_py") else item for item in checked)  # of Arrow
        for index, item in enumerate(checked, first):
            if not isinstance(item, str):
                raise _refused(item, f"{what.capitalize()} {index}: expected a str")
        checked = TextList(map(str.__str__, checked))
    try:
        all(map(str.encode, itertools.filterfalse(str.isascii, checked)))  # to UTF-8; without a copy of all texts
    except UnicodeEncodeError:
        return TextList(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in checked)
    return checked


def is_blank(text: str) -> bool:
    """Whether a text has nothing to read: spaces, control characters and characters without width alone.

    >>> is_blank(" \u200b\x00"), is_blank("a")
    (True, False)
    """
    return all(character in _WITHOUT_WIDTH or unicodedata.category(character) in _BLANK for character in text)


def text_blocks(texts: object, size: int) -> Iterator[TextList]:
    """`as_texts` in blocks of `size`, which are read lazily."""
    return _blocks(_items(texts, "sentence"), size, type(texts) is TextList)


def _blocks(items: Iterator[Any], size: int, checked: bool) -> Iterator[TextList]:
    first = 0
    while block := list(itertools.islice(items, size)):
        yield TextList(block) if checked else as_texts(block, first=first)
        first += len(block)


def as_rows(rows: Any, width: int, what: str) -> list[tuple[Any, ...]]:
    """The columns of rows of `width` items each, such as pairs; InputError for other rows."""
    items = list(_items(rows, what, dimensions=2))
    for index, row in enumerate(items):
        if isinstance(row, str | bytes | Mapping | set | frozenset) or not isinstance(row, Sized) or len(row) != width:
            raise InputError(f"Row {index}: expected {what}, got {type(row).__name__} {row!r:.60}: pass tuples.")
    return list(zip(*items, strict=True)) or [()] * width


def _items(texts: object, what: str, dimensions: int = 1) -> Iterator[Any]:
    """Iterates over a container in its order; InputError for other objects."""
    kind = type(texts)
    expected = f"Expected a list, one item per {what}"
    if hasattr(kind, "columns") or hasattr(kind, "column_names"):  # iterated, a table gives the names of its columns
        raise InputError(f"{expected}, got a {kind.__name__}: pass its columns, such as table['text'].")
    if isinstance(texts, str | bytes | bytearray | Mapping | set | frozenset) or not isinstance(texts, Iterable):
        raise _refused(texts, expected)
    if not 1 <= (dimensions_given := getattr(texts, "ndim", 1)) <= dimensions:
        raise InputError(f"{expected}, got an array of {dimensions_given} dimensions: pass one of {dimensions}.")
    return iter(texts)


def _refused(value: object, expected: str) -> InputError:
    """The error for a value, with its type and a remedy."""
    if isinstance(value, str):
        remedy = "put it in a list"
    elif str(value) in _MISSING:
        remedy = 'remove missing values, or replace them with ""'
    elif isinstance(value, bytes | bytearray):
        remedy = 'decode it, as in value.decode("utf-8")'
    elif isinstance(value, Iterable):
        remedy = "pass a flat list of its strings"
    else:
        remedy = "convert it with str()"
    return InputError(f"{expected}, got {type(value).__name__} {value!r:.60}: {remedy}.")


def text_fingerprint(sentences: Iterable[str]) -> str:
    """SHA-256 over sentences in their order; every sentence is delimited by its length."""
    digest = hashlib.sha256()
    for sentence in sentences:
        data = sentence.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
