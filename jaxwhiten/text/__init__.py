"""Tokenizers and vocabularies."""

from jaxwhiten.text.tokenization import BulkTokenizer, TextForm, TokenIds, copy_tokenizer
from jaxwhiten.text.vocabulary import SPECIAL_TOKENS, cached_wordpiece, save_wordpiece, train_wordpiece

__all__ = [
    "SPECIAL_TOKENS",
    "BulkTokenizer",
    "TextForm",
    "TokenIds",
    "cached_wordpiece",
    "copy_tokenizer",
    "save_wordpiece",
    "train_wordpiece",
]
