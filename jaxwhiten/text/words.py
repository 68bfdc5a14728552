"""Token ids of many sentences, and WordPiece tokens of plain text from a table of words: each is split only once.

A BERT tokenizer changes every character on its own, cuts at spaces and around punctuation, and splits each of these
words independently. One regular expression finds the words of many sentences; the table holds the tokens of words seen
before. Texts of other characters than ASCII's, and those that may have special tokens, go through the tokenizer itself.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxwhiten.types import Int

_END = "\n"  # ends a sentence: word number 0, which has no tokens
_MOST = 1 << 26  # bytes of words kept
_OF_ENTRY = 128  # bytes per word in addition to its characters and tokens
_WORDS = re.compile("[a-zA-Z0-9]+|[^ a-zA-Z0-9]").findall


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Token ids of many sentences, concatenated without padding, and the number of tokens of each sentence."""

    flat: Int[np.ndarray, " tokens"]
    lengths: Int[np.ndarray, " n"]
    cut: int = 0  # sentences that were truncated

    @classmethod
    def joined(cls, parts: Sequence[TokenIds]) -> TokenIds:
        """The sentences of all parts, one after another."""
        flat, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in ("flat", "lengths"))
        return cls(flat, lengths, sum(part.cut for part in parts))

    def padded(
        self, rows: Int[np.ndarray, " rows"], height: int, length: int, pad_id: int
    ) -> Int[np.ndarray, "height length"]:
        """The chosen sentences as a [height, length] matrix, padded with `pad_id`."""
        filled = np.arange(length) < self.lengths[rows][:, None]
        source = self.starts[rows][:, None] + np.arange(length)
        matrix = np.full((height, length), pad_id, np.int32)
        matrix[: len(rows)][filled] = self.flat[source[filled]]
        return matrix

    @functools.cached_property
    def starts(self) -> Int[np.ndarray, " n"]:
        """The index in `flat` at which each sentence begins."""
        return np.cumsum(self.lengths) - self.lengths


class _Numbers(dict[str, int]):
    """Numbers words in the order they are first seen; `new` lists the words without known tokens."""

    def __init__(self) -> None:
        super().__init__({_END: 0})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self.new.append(word)
        self[word] = number = len(self)
        return number


class WordTable:
    """A BERT tokenizer without special tokens, which is fast for words seen before.

    `encode` is the tokenizer itself, truncating to `longest` tokens; `lower` is whether it lower-cases.
    """

    _numbers: _Numbers
    _known: TokenIds
    _bytes: int

    def __init__(self, encode: Callable[[list[str]], TokenIds], longest: int, lower: bool):
        self._encode = encode
        self._longest = longest
        self._lower = lower
        self._lock = threading.Lock()
        self._clear()

    @classmethod
    def of(cls, tokenizer: Any, encode: Callable[[list[str]], TokenIds], longest: int) -> WordTable | None:
        """The table for a tokenizer that adds no special tokens; None if the tokenizer cuts words in another way."""
        raw = json.loads(tokenizer.to_str())
        kinds = tuple((raw[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model"))
        usual = kinds == ("BertNormalizer", "BertPreTokenizer", "WordPiece") and raw["post_processor"] is None
        plain = all(token["content"].startswith("[") for token in raw["added_tokens"])  # none is a word of plain text
        if not (usual and plain and tokenizer.truncation["direction"] == "right"):
            return None
        return cls(encode, longest, raw["normalizer"]["lowercase"])

    def __call__(self, sentences: Sequence[str]) -> TokenIds:
        """The same token ids as the tokenizer's."""
        plain = [s.isascii() and s.isprintable() and "[" not in s for s in sentences]
        text = "".join(f"{s}{_END}" for s in itertools.compress(sentences, plain))
        with self._lock:
            tokens = self._tokens(text.lower() if self._lower else text)
        cut = int((tokens.lengths > self._longest).sum())
        chosen = np.array(plain, bool)
        others = self._encode([s for s, is_plain in zip(sentences, plain, strict=True) if not is_plain])
        starts, lengths = np.empty((2, len(sentences)), np.int64)
        starts[chosen], lengths[chosen] = tokens.starts, np.minimum(tokens.lengths, self._longest)
        starts[~chosen], lengths[~chosen] = others.starts + len(tokens.flat), others.lengths
        return TokenIds(np.concatenate([tokens.flat, others.flat])[_ranges(starts, lengths)], lengths, cut + others.cut)

    def _tokens(self, text: str) -> TokenIds:
        """The token ids of lines of plain text."""
        numbers = np.fromiter(map(self._numbers.__getitem__, _WORDS(text)), np.int64)
        if self._numbers.new:
            more = self._encode(self._numbers.new)
            flat = np.append(self._known.flat, more.flat)
            lengths = np.append(self._known.lengths, more.lengths)
            self._known = TokenIds(flat, lengths)
            self._bytes += more.flat.nbytes + sum(_OF_ENTRY + sys.getsizeof(word) for word in self._numbers.new)
            self._numbers.new = []
        of_words = self._known.lengths[numbers]
        ends = np.cumsum(of_words)[numbers == 0]
        flat = self._known.flat[_ranges(self._known.starts[numbers], of_words)]
        if self._bytes > _MOST:
            self._clear()
        return TokenIds(flat, np.diff(ends, prepend=0))

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._bytes = 0
        self._known = TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))


def _ranges(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " total"]:
    """Indices of all tokens of sentences with these starts and lengths."""
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
