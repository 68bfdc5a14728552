"""Token ids of sentence pairs, joined from those of their sentences: each distinct sentence is tokenised once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jaxwhiten.errors import InputError, spelled
from jaxwhiten.text.ids import TokenIds
from jaxwhiten.text.tokenization import BulkTokenizer, checked_text

_UNCUT = 1 << 24  # tokens of a sentence before its pair is cut

Rows = Int[np.ndarray, " n"]


class PairTokenizer:
    """A model's tokenizer for pairs, truncating to `max_length` tokens.

    Args:
      folder, max_length, model_vocab: As in `BulkTokenizer`; `max_length` is that of the whole pair.

    Raises:
      ModelError: No tokenizer in the folder, or one that cannot be read.
      InputError: No room for two tokens beside the special ones.
    """

    def __init__(self, folder: Path, max_length: int, model_vocab: int):
        self.folder, self.max_length, self._vocab = folder, max_length, model_vocab
        self._special, self._types = BulkTokenizer(folder, _UNCUT, model_vocab).pair_frame()
        self._bare = BulkTokenizer(folder, _UNCUT, model_vocab, special_tokens=False)
        self._room = max_length - sum(map(len, self._special))
        if self._room < 2:
            raise InputError(
                f"{spelled('max_length')} is {max_length}; the special tokens of a pair take {max_length - self._room}."
            )

    def sentences(self, texts: Iterable[object]) -> TokenIds:
        """Token ids of sentences, whole and without special tokens; InputError for an item that is not a string."""
        return self._bare(checked_text(list(texts)))

    def join(self, sentences: TokenIds, first: Rows, second: Rows) -> TokenIds:
        """Token ids of pairs, each plus the vocabulary's size times its token type; too long ones are cut.

        Args:
          sentences: From `sentences`.
          first, second: Which of them each pair has.
        """
        n, flat = len(first), sentences.flat
        special = np.array([len(part) for part in self._special])
        lengths, starts = np.empty((2, n, 5), np.int64)
        lengths[:, ::2], starts[:, ::2] = special, len(flat) + np.cumsum(special) - special
        lengths[:, 1], lengths[:, 3] = longest_first(sentences.lengths[first], sentences.lengths[second], self._room)
        starts[:, 1], starts[:, 3] = sentences.starts[first], sentences.starts[second]
        each = lengths.reshape(-1)
        within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        pool = np.concatenate([flat, *(np.array(part, np.int32) for part in self._special)])
        types = np.repeat(np.tile(np.array(self._types, np.int32), n), each)
        ids = pool[np.repeat(starts.reshape(-1), each) + within] + types * np.int32(self._vocab)
        return TokenIds(ids, lengths.sum(axis=1))


def longest_first(first: Rows, second: Rows, room: int) -> tuple[Rows, Rows]:
    """Tokens kept of the sentences of each pair: those of the longer one go first, as in the tokenizers library.

    >>> import numpy as np
    >>> longest_first(np.array([3, 9, 9]), np.array([4, 2, 8]), 8)
    (array([3, 6, 4]), array([4, 2, 4]))
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    long = np.minimum(long, np.maximum(short, room - short))
    both = short + long > room
    short, long = np.where(both, room // 2, short), np.where(both, room - room // 2, long)
    return np.where(first > second, long, short), np.where(first > second, short, long)
