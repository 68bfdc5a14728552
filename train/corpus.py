"""A corpus as token ids, and the fixed-length blocks cut from it.

Each passage is followed by its separator. A block is the tokenizer's first special token and the next `length - 1`
tokens, regardless of passage boundaries: blocks have no padding, and depend only on their number.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from jaxwhiten import io
from jaxwhiten.datasets import Corpus
from jaxwhiten.errors import DataError, InputError, ModelError
from jaxwhiten.text import BulkTokenizer

_PASSAGES = 1 << 11  # tokenized at a time
_NO_LIMIT = 1 << 40


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Concatenated tokens of passages, to be cut into blocks of `length` tokens."""

    flat: Int[np.ndarray, " tokens"]
    first: int  # the first token of every block
    length: int

    def __len__(self) -> int:
        """Number of whole blocks; an incomplete block at the end is dropped."""
        return len(self.flat) // (self.length - 1)

    def blocks(self, rows: Int[np.ndarray, " b"]) -> Int[np.ndarray, "b length"]:
        width = self.length - 1
        ids = np.full((len(rows), self.length), self.first, np.int32)
        ids[:, 1:] = self.flat[rows[:, None] * width + np.arange(width)]
        return ids


@dataclasses.dataclass(frozen=True)
class TokenCorpus:
    """A tokenized corpus, with the numbers of training passages, held-out passages and skipped lines."""

    train: TokenStream
    held_out: TokenStream
    key: str  # changes with the text, the share held out and the tokenizer
    passages: tuple[int, int]
    skipped: int


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
    """Tokenizes a corpus.

    `block_length` includes special tokens. A hash of the text decides which passages are held out. `progress=None`
    shows a progress bar on a terminal.
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
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    pieces: tuple[list[np.ndarray], ...] = ([np.empty(0, dtype)], [np.empty(0, dtype)])
    passages = [0, 0]
    with tqdm(desc="tokenizing", unit=" passages", disable=None if progress is None else not progress) as bar:
        for block in blocks(corpus, _PASSAGES):
            for side in (False, True):
                chosen = [passage for passage in block if held_out(passage, held_out_share) == side]
                tokens = tokenizer(chosen)
                pieces[side].append(np.delete(tokens.flat, tokens.starts).astype(dtype))  # without [CLS]
                passages[side] += len(chosen)
            bar.update(len(block))
    train, test = (TokenStream(np.concatenate(side), int(empty[0]), block_length) for side in pieces)
    if not len(train) or not len(test):
        raise InputError(
            f"The text yields {len(train)} blocks of {block_length} tokens to train on and {len(test)} held out; each "
            "side needs at least one. Use more text, shorter blocks or a different share."
        )
    files = [io.sha256_file(file) for file in corpus.files]
    key = io.content_key("corpus", 1, files, held_out_share, corpus.skip_bad_rows, tokenizer.to_json())
    return TokenCorpus(train, test, key, (passages[0], passages[1]), corpus.skipped)


def blocks(corpus: Corpus, size: int) -> Iterator[list[str]]:
    """Yields lists of `size` passages; the last list may be shorter."""
    passages = corpus.passages()
    while block := list(itertools.islice(passages, size)):
        yield block


def held_out(passage: str, share: float) -> bool:
    """Whether a passage is held out, decided by a hash of its text, so that duplicates fall on the same side."""
    return zlib.crc32(passage.encode("utf-8", "replace")) < share * 2**32
