"""Cross-encoders in the training loop: rows of joined pairs, the loss on their logits, and scores.

References:
  Nogueira & Cho 2019, "Passage Re-ranking with BERT", section 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from configs.processes import gather_rows, share
from jaxwhiten import CrossEncoder, io
from jaxwhiten.datasets import Examples
from jaxwhiten.head import Head
from jaxwhiten.metrics import spearman
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training import Evaluate, LossFn, Params, Rebuild, TokenTable, sentence_loss


def pair_table(examples: Examples, tokenizer: BulkTokenizer) -> TokenTable:
    """Labelled pairs as rows of one column, for `sentence_batches`; the key changes with tokens and labels."""
    tokens = tokenizer.pairs(list(zip(*examples.columns.values(), strict=True)))
    parts = (tokens.flat, tokens.lengths, np.asarray(examples.label))
    key = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
    return TokenTable(tokens, np.arange(len(examples))[:, None], io.content_key("pairs", 1, key), tokenizer.max_length)


def pair_loss(rebuild: Rebuild) -> LossFn:
    """The mean cross-entropy of pairs scored by a `PairClassifier`, for `make_step`.

    With several labels, which are integers, it is a softmax cross-entropy; with one label in [0, 1], a sigmoid one.
    """

    def loss(columns: Sequence[Array], gold: Any, head: Any) -> Array:
        logits = columns[0].astype(jnp.float32)
        if logits.shape[1] == 1:
            return jnp.mean(optax.sigmoid_binary_cross_entropy(logits[:, 0], gold))
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, gold))

    return sentence_loss(rebuild, loss, steps=Head.named("pooler").steps)


def pair_evaluator(
    rebuild: Rebuild, tokenizer_folder: Path, name: str, examples: Examples, max_length: int
) -> Evaluate:
    """An `evaluate` for the loop: accuracy × 100 for classes, Spearman's correlation × 100 for scores."""
    pairs = list(zip(*examples.columns.values(), strict=True))
    gold = np.asarray(examples.label)

    def evaluate(params: Params) -> dict[str, float]:
        model = CrossEncoder(rebuild(params["encoder"]), tokenizer_folder, max_length=max_length)
        scores = gather_rows(model.predict(share(pairs), show_progress=False))
        if examples.classes:
            score = float((scores.argmax(axis=1) == gold).mean())
        else:
            score = spearman(scores, gold)
        return {name: 100 * score}

    return evaluate
