"""Inverse document frequencies of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from jaxwhiten.encoding.stream import BLOCK, checked_blocks
from jaxwhiten.errors import InputError
from jaxwhiten.text import BulkTokenizer


def inverse_document_frequencies(
    sentences: Iterable[str], tokenizer: BulkTokenizer, vocab_size: int
) -> Float[np.ndarray, " vocab"]:
    """log((n + 1) / (count + 1)) for every token id, where count of the n sentences contain it.

    References:
      Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3 (importance weighting).
    """
    total, counts = 0, np.zeros(vocab_size, np.int64)
    for block in checked_blocks(sentences, BLOCK):
        total += len(block)
        counts += tokenizer(block).document_frequencies(vocab_size)
    if not total:
        raise InputError("No sentences to count tokens in.")
    return np.log((total + 1) / (counts + 1))
