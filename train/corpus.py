"""A corpus as token ids on disk, tokenized once, and the fixed-length blocks cut from it.

Passages are tokenized in parts, each written atomically, so that an interrupted run continues with the next part.
Within a part, each passage is followed by its separator. A block is the tokenizer's first special token and the next
`length - 1` tokens, regardless of passage boundaries: blocks have no padding, and depend only on their number.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from jaxwhiten import io
from jaxwhiten.datasets import Corpus
from jaxwhiten.errors import DataError, InputError, ModelError
from jaxwhiten.text import BulkTokenizer

PART_PASSAGES = 1 << 16
_BLOCK_PASSAGES = 1 << 11
_NO_LIMIT = 1 << 40
_SIDES = ("train", "held_out")
_PART = "{}-{:06d}.npy"


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Concatenated tokens of passages, in memory-mapped parts, to be cut into blocks of `length` tokens."""

    parts: tuple[np.ndarray, ...]
    first: int  # the first token of every block
    length: int

    @functools.cached_property
    def _ends(self) -> Int[np.ndarray, " parts"]:
        """Cumulative number of blocks at the end of each part."""
        return np.cumsum([len(part) // (self.length - 1) for part in self.parts])

    def __len__(self) -> int:
        """Number of whole blocks; the incomplete block at the end of each part is dropped."""
        if len(self.parts):
            return int(self._ends[-1])
        return 0

    @property
    def tokens(self) -> int:
        """The number of tokens, including those of incomplete blocks."""
        return sum(map(len, self.parts))

    def blocks(self, rows: Int[np.ndarray, " b"]) -> Int[np.ndarray, "b length"]:
        width = self.length - 1
        part_of = np.searchsorted(self._ends, rows, side="right")
        block = rows - np.concatenate([[0], self._ends])[part_of]
        ids = np.full((len(rows), self.length), self.first, np.int32)
        for part in np.unique(part_of):
            chosen = part_of == part
            ids[chosen, 1:] = self.parts[part][block[chosen][:, None] * width + np.arange(width)]
        return ids


@dataclasses.dataclass(frozen=True)
class TokenCorpus:
    """A tokenized corpus, with the numbers of training passages, held-out passages and skipped lines."""

    train: TokenStream
    held_out: TokenStream
    key: str  # changes with the text, the share held out and the tokenizer
    passages: tuple[int, int]
    skipped: int


def corpus_key(corpus: Corpus, share: float) -> str:
    """A cache key that changes with the text and the share held out."""
    return io.content_key("corpus", 1, [io.sha256_file(file) for file in corpus.files], share, corpus.skip_bad_rows)


def train_blocks(corpus: Corpus, size: int, share: float) -> Iterator[list[str]]:
    """The passages in lists of at most `size`, without those that are held out."""
    for block in blocks(corpus, size):
        yield [passage for passage in block if not held_out(passage, share)]


def tokenize_corpus(
    corpus: Corpus,
    tokenizer_folder: io.PathLike,
    block_length: int,
    *,
    held_out_share: float = 0.01,
    progress: bool | None = None,
) -> TokenCorpus:
    """Tokenizes a corpus, or reads it back from the cache.

    `block_length` includes special tokens; the cached files do not depend on it. A hash of the text decides which
    passages are held out. `progress=None` shows a progress bar on a terminal.
    """
    if not 0 < held_out_share < 1:
        raise DataError(f"The share of passages held out is {held_out_share}; expected a number above 0 and below 1.")
    tokenizer = BulkTokenizer(Path(tokenizer_folder), _NO_LIMIT)
    empty = tokenizer([""]).flat
    if len(empty) != 2 or block_length < 4:
        raise ModelError(
            f"{tokenizer_folder}: an empty text has {len(empty)} tokens, expected one before and one after a text; "
            f"blocks of {block_length} tokens, expected at least 4."
        )
    key = io.content_key(corpus_key(corpus, held_out_share), tokenizer.to_json(), PART_PASSAGES)
    folder = io.cache_dir("corpora") / key
    try:
        facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        sides = _open_parts(folder, facts["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        facts = _write_parts(corpus, tokenizer, held_out_share, folder, progress)
        sides = _open_parts(folder, facts["parts"])
    train, test = (TokenStream(parts, int(empty[0]), block_length) for parts in sides)
    if not len(train) or not len(test):
        raise InputError(
            f"The text yields {len(train)} blocks of {block_length} tokens to train on and {len(test)} held out; each "
            "side needs at least one. Use more text, shorter blocks or a different share."
        )
    return TokenCorpus(train, test, key, tuple(facts["passages"]), facts["skipped"])


def _open_parts(folder: Path, parts: int) -> list[tuple[np.ndarray, ...]]:
    return [tuple(io.map_array(folder / _PART.format(side, n)) for n in range(parts)) for side in _SIDES]


def _write_parts(
    corpus: Corpus, tokenizer: BulkTokenizer, share: float, folder: Path, progress: bool | None
) -> dict[str, Any]:
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    facts: dict[str, Any] = {"parts": 0, "passages": [0, 0]}
    with tqdm(desc="tokenizing", unit=" passages", disable=None if progress is None else not progress) as bar:
        for number, passages in enumerate(blocks(corpus, PART_PASSAGES)):
            is_held_out = [held_out(passage, share) for passage in passages]
            facts["passages"][0] += len(is_held_out) - sum(is_held_out)
            facts["passages"][1] += sum(is_held_out)
            for side, side_held_out in zip(_SIDES, (False, True), strict=True):
                file = folder / _PART.format(side, number)
                try:
                    io.map_array(file)
                except (OSError, ValueError):
                    chosen = [text for text, flag in zip(passages, is_held_out, strict=True) if flag == side_held_out]
                    io.save_array(file, _tokens(tokenizer, chosen, dtype))
            facts["parts"] = number + 1
            bar.update(len(passages))
    facts["skipped"] = corpus.skipped
    io.write_json(folder / "corpus.json", facts)  # written last: without it parts may be missing
    return facts


def _tokens(tokenizer: BulkTokenizer, passages: list[str], dtype: type) -> np.ndarray:
    """Token ids of the passages without their first special token."""
    pieces: list[np.ndarray] = [np.empty(0, dtype)]
    for start in range(0, len(passages), _BLOCK_PASSAGES):
        tokens = tokenizer(passages[start : start + _BLOCK_PASSAGES])
        pieces.append(np.delete(tokens.flat, tokens.starts).astype(dtype))
    return np.concatenate(pieces)


def blocks(corpus: Corpus, size: int) -> Iterator[list[str]]:
    """Yields lists of `size` passages; the last list may be shorter."""
    passages = corpus.passages()
    while block := list(itertools.islice(passages, size)):
        yield block


def held_out(passage: str, share: float) -> bool:
    """Whether a passage is held out, decided by a hash of its text, so that duplicates fall on the same side."""
    return zlib.crc32(passage.encode("utf-8", "replace")) < share * 2**32
