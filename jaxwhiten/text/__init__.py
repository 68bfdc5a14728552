"""Tokenizers and vocabularies."""

from jaxwhiten.text.texts import SIDES, TextList, Texts, as_rows, as_texts, is_blank, text_blocks, text_fingerprint
from jaxwhiten.text.tokenization import (
    PLAIN,
    ROLES,
    BulkTokenizer,
    TextForm,
    copy_tokenizer,
    in_role,
    prompt_for,
    prompt_named,
    uncounted,
)
from jaxwhiten.text.words import TokenIds

__all__ = ["PLAIN", "ROLES", "SIDES", "BulkTokenizer", "TextForm", "TextList", "Texts", "TokenIds", "as_rows"]
__all__ += [
    "as_texts",
    "copy_tokenizer",
    "in_role",
    "is_blank",
    "prompt_for",
    "prompt_named",
    "text_blocks",
    "text_fingerprint",
]
__all__ += ["uncounted"]
