"""WordPiece vocabularies trained on text, saved as tokenizer folders that transformers and this library both read.

Training is deterministic. The trainer numbers single characters in hash-table order and breaks ties by that number, so
the characters are passed to it in a fixed order as its first special tokens.

References:
  Wu et al. 2016, "Google's Neural Machine Translation System", section 4.1 (WordPiece).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import InputError

Passages = Callable[[], Iterable[list[str]]]
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CONTINUING = "##"


def train_wordpiece(
    passages: Passages, size: int, *, lower_case: bool = True, alphabet: int = 300, min_frequency: int = 2
) -> list[str]:
    """Trains a vocabulary.

    Args:
      passages: Returns an iterator over the text, in lists of passages; called twice.
      size: Maximum number of tokens, including BERT's five special ones.
      lower_case: Whether to lower-case text and strip accents, as in BERT's uncased models.
      alphabet: Number of characters to keep, by frequency; words with other characters are unknown.
      min_frequency: Minimum frequency of a pair of pieces to be merged.

    Returns:
      The tokens in the order of their ids: special tokens, characters, their continuation forms, merged pieces.
    """
    from tokenizers import BertWordPieceTokenizer

    if size < len(SPECIAL_TOKENS) + 2 * alphabet:
        raise InputError(f"A vocabulary of {size} cannot hold {alphabet} characters in two forms; raise its size.")
    tokenizer = BertWordPieceTokenizer(lowercase=lower_case)
    characters = _frequent_characters(passages(), tokenizer.normalizer, alphabet)
    if not characters:
        raise InputError("There is no text to train a vocabulary on.")
    tokenizer.train_from_iterator(
        passages(),
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *characters, *(_CONTINUING + character for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _frequent_characters(passages: Iterable[list[str]], normalizer: Any, count: int) -> list[str]:
    """The most frequent characters of the normalized text, in code-point order.

    The normalizer works character by character, so it is applied to the distinct ones only.
    """
    raw = np.zeros(0x110000, np.int64)
    for block in passages:
        codes = np.frombuffer("".join(block).encode("utf-32-le", "replace"), np.uint32)
        raw += np.bincount(codes, minlength=len(raw))
    counts: Counter[str] = Counter()
    for code in np.flatnonzero(raw):
        for character in normalizer.normalize_str(chr(code)):
            counts[character] += int(raw[code])
    ordered = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(ordered[:count])


def save_wordpiece(tokens: list[str], folder: io.PathLike, *, max_length: int, lower_case: bool = True) -> Path:
    """Writes a BERT tokenizer of the tokens of `train_wordpiece` into a folder, which is created if missing.

    The files are `tokenizer.json`, `tokenizer_config.json` and `vocab.txt`; `max_length` is the model's limit.
    """
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer({token: number for number, token in enumerate(tokens)}, lowercase=lower_case)
    folder = Path(folder)
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": max_length, "do_lower_case": lower_case}
    io.write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens))
    io.write_json(folder / "tokenizer_config.json", settings | names)
    io.write_text(folder / "tokenizer.json", tokenizer.to_str())
    return folder
