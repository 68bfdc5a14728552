"""Tokenizers and vocabularies."""

from jaxwhiten.text.ids import TokenIds
from jaxwhiten.text.prompts import in_role, prompt_for, prompt_named
from jaxwhiten.text.tokenization import PLAIN, BulkTokenizer, TextForm, checked_text, copy_tokenizer, uncounted
from jaxwhiten.text.vocabulary import SPECIAL_TOKENS, cached_wordpiece, save_wordpiece, train_wordpiece
