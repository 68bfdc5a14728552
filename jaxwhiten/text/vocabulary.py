"""WordPiece vocabularies trained on text, as tokenizer folders that transformers and this library both read.

The same text gives the same vocabulary on every run. The trainer numbers single characters in the order of a hash
table and settles ties by number, so it is handed the characters, in order, as its first tokens.

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

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_CONTINUING = "##"


def train_wordpiece(
    passages: Callable[[], Iterable[list[str]]],
    size: int,
    *,
    lower_case: bool = True,
    alphabet: int = 300,
    min_frequency: int = 2,
) -> list[str]:
    """Trains a vocabulary.

    Args:
      passages: Starts a pass over the text, in lists of passages; called twice.
      size: Most tokens to have, BERT's five special ones included.
      lower_case: Whether text is lower-cased and accents are dropped, as in BERT's uncased models.
      alphabet: How many characters to keep, the most frequent; a word with another one is unknown.
      min_frequency: How often two pieces must stand together to become one.

    Returns:
      The tokens in the order of their ids: special tokens, characters, their continuing forms, and what was merged.

    Raises:
      InputError: There is no text, or the vocabulary cannot hold the alphabet.
    """
    from tokenizers import Tokenizer, models, trainers

    if size < len(SPECIAL_TOKENS) + 2 * alphabet:
        raise InputError(f"A vocabulary of {size} cannot hold {alphabet} characters in two forms; raise its size.")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    _set_text_rules(tokenizer, lower_case)
    kept = _frequent_characters(passages(), tokenizer.normalizer, alphabet)
    if not kept:
        raise InputError("There is no text to make a vocabulary of.")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *kept, *(_CONTINUING + character for character in kept)],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        continuing_subword_prefix=_CONTINUING,
        show_progress=False,
    )
    tokenizer.train_from_iterator(passages(), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _set_text_rules(tokenizer: Any, lower_case: bool) -> None:
    from tokenizers import normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _frequent_characters(passages: Iterable[list[str]], normalizer: Any, most: int) -> list[str]:
    """The most frequent characters of the text as the tokenizer sees it, in code-point order.

    The normaliser works character by character, so it is applied to the distinct ones only.
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
    return sorted(ordered[:most])


def save_wordpiece(tokens: list[str], folder: str | Path, *, max_length: int, lower_case: bool = True) -> Path:
    """Writes a BERT tokenizer: `tokenizer.json`, `tokenizer_config.json`, `vocab.txt`.

    Args:
      tokens: From `train_wordpiece`.
      folder: Made if missing.
      max_length: Longest input of the model it is for.
      lower_case: As in training.

    Returns:
      The folder.
    """
    from tokenizers import Tokenizer, decoders, models, processors

    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", continuing_subword_prefix=_CONTINUING))
    _set_text_rules(tokenizer, lower_case)
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUING)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
    )
    folder = Path(folder)
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": max_length, "do_lower_case": lower_case}
    io.write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens))
    io.write_json(folder / "tokenizer_config.json", settings | names)
    io.write_text(folder / "tokenizer.json", tokenizer.to_str())
    return folder


def cached_wordpiece(
    passages: Callable[[], Iterable[list[str]]],
    key: str,
    size: int,
    *,
    max_length: int,
    lower_case: bool = True,
    alphabet: int = 300,
    min_frequency: int = 2,
    cache: Path | None = None,
) -> Path:
    """The folder of a vocabulary, trained when it is not in the cache.

    Args:
      passages: As `train_wordpiece` takes them.
      key: Changes with the text.
      size: Most tokens to have.
      max_length: Longest input of the model it is for.
      lower_case: As `train_wordpiece` takes it.
      alphabet: As `train_wordpiece` takes it.
      min_frequency: As `train_wordpiece` takes it.
      cache: By default `vocabularies` in `jaxwhiten.io.cache_dir()`.

    Returns:
      A folder `save_wordpiece` wrote.

    Raises:
      InputError: As `train_wordpiece`.
    """
    settings: dict[str, Any] = {"lower_case": lower_case, "alphabet": alphabet, "min_frequency": min_frequency}
    entry = io.content_key("wordpiece", 1, key, size, max_length, settings)
    folder = (cache or io.cache_dir("vocabularies")) / entry
    if not (folder / "tokenizer.json").is_file():  # written last
        tokens = train_wordpiece(passages, size, **settings)
        save_wordpiece(tokens, folder, max_length=max_length, lower_case=lower_case)
    return folder
