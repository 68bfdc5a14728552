"""Text to token ids, in bulk: a model folder's tokenizer, and ragged ids as flat arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxwhiten.errors import InputError, ModelError


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """Token ids of many sentences, without padding.

    Attributes:
      flat: All ids, one sentence after the other.
      lengths: Tokens of each sentence.
    """

    flat: Int[np.ndarray, " tokens"]
    lengths: Int[np.ndarray, " n"]

    def padded(
        self, rows: Int[np.ndarray, " rows"], height: int, length: int, pad_id: int
    ) -> Int[np.ndarray, "height length"]:
        """The chosen sentences as a [height, length] matrix; what they do not fill is `pad_id`."""
        filled = np.arange(length) < self.lengths[rows][:, None]
        source = self.starts[rows][:, None] + np.arange(length)
        matrix = np.full((height, length), pad_id, np.int32)
        matrix[: len(rows)][filled] = self.flat[source[filled]]
        return matrix

    @functools.cached_property
    def starts(self) -> Int[np.ndarray, " n"]:
        """Where each sentence begins in `flat`."""
        return np.cumsum(self.lengths) - self.lengths


class BulkTokenizer:
    """A model's tokenizer, truncating to `max_length` tokens, called on many sentences at once.

    Args:
      folder: Holds `tokenizer.json`, or the older `vocab.txt` and its companions.
      max_length: Longest sentence in tokens, special tokens counted.

    Raises:
      ModelError: No tokenizer in the folder, or one that cannot be read.
    """

    def __init__(self, folder: Path, max_length: int):
        self._tokenizer = _load(folder)
        self._tokenizer.enable_truncation(max_length)
        self._tokenizer.no_padding()

    def __call__(self, sentences: Sequence[str]) -> TokenIds:
        """Token ids of the sentences, special tokens included."""
        encodings = self._tokenizer.encode_batch_fast(list(sentences))
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return TokenIds(np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum())), lengths)

    @property
    def vocab_size(self) -> int:
        """Ids the tokenizer can produce."""
        return self._tokenizer.get_vocab_size()

    def to_json(self) -> str:
        """The tokenizer's own serialisation, truncation included."""
        return self._tokenizer.to_str()


def _load(folder: Path):
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    try:
        if file.is_file():
            return Tokenizer.from_file(str(file))
        if any(
            (folder / name).is_file() for name in ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
        ):
            from transformers import AutoTokenizer

            return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False).backend_tokenizer
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"{folder}: its tokenizer cannot be read ({error}).") from error
    raise ModelError(f"{folder}: no tokenizer; expected tokenizer.json or vocab.txt.")


def checked_text(sentences: Sequence[object], first_index: int = 0) -> list[str]:
    """The sentences as strings a tokenizer accepts.

    Lone surrogates, which are not text and which no tokenizer takes, become U+FFFD.

    Args:
      sentences: What the caller gave.
      first_index: Index of the first one, for messages.

    Raises:
      InputError: An item is not a string; the message names its index.
    """
    if isinstance(sentences, str):
        raise InputError("Expected a list of sentences, got one string; put it in a list.")
    sentences = list(sentences)
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise InputError(
                f"Sentence {first_index + index} is a {type(sentence).__name__}, not a string: {str(sentence)[:60]!r}."
            )
    try:
        "".join(sentences).encode("utf-8")
    except UnicodeEncodeError:
        return [s.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for s in sentences]
    return sentences
