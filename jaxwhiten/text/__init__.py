"""Tokenizers and vocabularies."""

from jaxwhiten.text.tokenization import PLAIN, BulkTokenizer, TextForm, TokenIds, checked_text, copy_tokenizer
from jaxwhiten.text.vocabulary import SPECIAL_TOKENS, cached_wordpiece, save_wordpiece, train_wordpiece

__all__ = [
    "PLAIN",
    "SPECIAL_TOKENS",
    "BulkTokenizer",
    "TextForm",
    "TokenIds",
    "cached_wordpiece",
    "checked_text",
    "copy_tokenizer",
    "save_wordpiece",
    "train_wordpiece",
]
