"""Sentences tokenised once: ragged token ids cached under a key of text, tokenizer and length, and memory-mapped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxwhiten import io
from jaxwhiten.errors import InputError
from jaxwhiten.text import BulkTokenizer, TokenIds, checked_text

_LISTING = "arrays.json"


@dataclasses.dataclass(frozen=True)
class TokenTable:
    """Rows of tokenised sentences; a sentence that occurs in many rows is stored once.

    Attributes:
      tokens: Token ids of the distinct sentences.
      sentences: Index of the sentence in each row and column.
      key: Changes with the texts, the tokenizer or the length.
    """

    tokens: TokenIds
    sentences: Int[np.ndarray, "n columns"]
    key: str

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens of the longest sentence of each row."""
        return np.asarray(self.tokens.lengths)[self.sentences].max(axis=1)

    def batch(self, rows: Int[np.ndarray, " b"], length: int, pad_id: int) -> dict[str, np.ndarray]:
        """The given rows, padded: `input_ids` [b, columns, length] and `lengths` [b, columns], both int32."""
        chosen = self.sentences[rows]
        ids = self.tokens.padded(chosen.ravel(), chosen.size, length, pad_id)
        lengths = self.tokens.lengths[chosen].astype(np.int32)
        return {"input_ids": ids.reshape(*chosen.shape, length), "lengths": lengths}


def tokenize_columns(
    columns: Sequence[Sequence[str]],
    tokenizer_folder: str | Path,
    max_length: int,
    cache: Path | None = None,
    *,
    special_tokens: bool = True,
) -> TokenTable:
    """Tokenises columns of sentences, or reads them back from the cache.

    Args:
      columns: One list of sentences per column, all of the same length.
      tokenizer_folder: Folder of the model's tokenizer.
      max_length: Maximum number of tokens per sentence, special tokens included; longer ones are truncated.
      cache: Folder for the ids; by default `tokens` in `jaxwhiten.io.cache_dir()`.
      special_tokens: Whether sentences are put between the model's special tokens.

    Raises:
      InputError: No columns, columns of different lengths, or an item that is not a string.
      ModelError: No readable tokenizer in the folder.
    """
    if not columns or len({len(column) for column in columns}) != 1 or not len(columns[0]):
        raise InputError(f"Expected columns of one length, at least one row: got {[len(c) for c in columns]} rows.")
    columns = [checked_text(column) for column in columns]
    tokenizer = BulkTokenizer(Path(tokenizer_folder), max_length, special_tokens=special_tokens)
    texts = hashlib.sha256()
    for column in columns:
        texts.update(json.dumps(column).encode())
    key = io.content_key("tokens", 1, texts.hexdigest(), max_length, tokenizer.to_json())

    entry = (cache or io.cache_dir("tokens")) / key
    try:
        arrays = _map_arrays(entry)
    except (OSError, ValueError, TypeError):
        numbers: dict[str, int] = {}
        sentences = np.array([[numbers.setdefault(text, len(numbers)) for text in column] for column in columns])
        tokens = tokenizer(list(numbers))
        built = {"flat": tokens.flat, "lengths": tokens.lengths, "sentences": sentences.T.astype(np.int64)}
        for name, array in built.items():
            io.save_array(entry / f"{name}.npy", array)
        io.write_json(entry / _LISTING, list(built))  # written last: without it the entry is incomplete
        arrays = _map_arrays(entry)
    return TokenTable(TokenIds(arrays["flat"], arrays["lengths"]), arrays["sentences"], key)


def _map_arrays(entry: Path) -> dict[str, np.ndarray]:
    names = json.loads((entry / _LISTING).read_text(encoding="utf-8"))
    return {name: io.map_array(entry / f"{name}.npy") for name in names}
