"""Tokenizers and vocabularies."""

from jaxwhiten.text.ids import TokenIds
from jaxwhiten.text.prompts import ROLES, in_role, prompt_for, prompt_named
from jaxwhiten.text.texts import SIDES, Texts, as_rows, as_texts, text_blocks, text_fingerprint
from jaxwhiten.text.tokenization import PLAIN, BulkTokenizer, TextForm, copy_tokenizer, uncounted
from jaxwhiten.text.vocabulary import SPECIAL_TOKENS, cached_wordpiece, save_wordpiece, train_wordpiece

__all__ = ["PLAIN", "ROLES", "SIDES", "SPECIAL_TOKENS", "BulkTokenizer", "TextForm", "Texts", "TokenIds", "as_rows"]
__all__ += ["as_texts", "cached_wordpiece", "copy_tokenizer", "in_role", "prompt_for", "prompt_named"]
__all__ += ["save_wordpiece", "text_blocks", "text_fingerprint", "train_wordpiece", "uncounted"]
