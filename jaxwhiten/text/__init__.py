"""Tokenizers and vocabularies."""

from jaxwhiten.text.ids import TokenIds
from jaxwhiten.text.prompts import ROLES, in_role, prompt_for, prompt_named
from jaxwhiten.text.texts import SIDES, Texts, as_rows, as_texts, text_blocks
from jaxwhiten.text.tokenization import PLAIN, BulkTokenizer, TextForm, copy_tokenizer, uncounted
from jaxwhiten.text.vocabulary import SPECIAL_TOKENS, cached_wordpiece, save_wordpiece, train_wordpiece
