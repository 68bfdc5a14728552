"""Tokenizers and vocabularies."""

from jaxwhiten.text.texts import SIDES, Texts, as_rows, as_texts, text_blocks, text_fingerprint
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

__all__ = ["PLAIN", "ROLES", "SIDES", "BulkTokenizer", "TextForm", "Texts", "TokenIds", "as_rows", "as_texts"]
__all__ += ["copy_tokenizer", "in_role", "prompt_for", "prompt_named", "text_blocks", "text_fingerprint"]
__all__ += ["uncounted"]
