"""Inverse document frequencies of tokens."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float32

from jaxwhiten.encoding.stream import BLOCK
from jaxwhiten.errors import InputError
from jaxwhiten.text import BulkTokenizer, Texts, text_blocks


def frequency_table(
    sentences: Texts, tokenizer: BulkTokenizer, vocab_size: int
) -> tuple[str, Float32[np.ndarray, " vocab"]]:
    """The name of a table, a hash of it, and the table: log((n + 1) / (count + 1)) for a token in count of n sentences.

    References:
      Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3 (importance weighting).
    """
    total, counts = 0, np.zeros(vocab_size, np.int64)
    for block in text_blocks(sentences, BLOCK):
        total += len(block)
        counts += tokenizer(block).document_frequencies(vocab_size)
    if not total:
        raise InputError("No sentences to count tokens in.")
    weights = np.log((total + 1) / (counts + 1)).astype(np.float32)
    return hashlib.sha256(weights.tobytes()).hexdigest()[:8], weights
