"""BERTScore: texts compared by the hidden states of their tokens, greedily matched.

References:
  Zhang et al. 2020, "BERTScore: Evaluating Text Generation with BERT", section 3.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32

from jaxwhiten.arrays import normalize_on_device
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.encoding.idf import inverse_document_frequencies
from jaxwhiten.encoding.stream import progress
from jaxwhiten.errors import DataError, InputError, spelled
from jaxwhiten.text import checked_text


class BERTScores(NamedTuple):
    """Precision, recall and their harmonic mean of every pair."""

    precision: Float32[np.ndarray, " n"]
    recall: Float32[np.ndarray, " n"]
    f1: Float32[np.ndarray, " n"]


def bert_score(
    encoder: Encoder,
    candidates: Sequence[str],
    references: Sequence[str],
    *,
    layer: int | None = None,
    idf: bool = False,
    baseline: Sequence[float] | None = None,
    show_progress: bool | None = None,
) -> BERTScores:
    """Scores candidate texts against reference texts, pair by pair.

    Every token is matched with the most similar token of the other text. The special tokens around a text can be
    matched and have no weight of their own. A text without tokens, or whose tokens all have weight 0, scores 0.

    Args:
      encoder: Its model and tokenizer are used; its head is not.
      candidates, references: As many of one as of the other.
      layer: Hidden state to compare, 0 for the embeddings; the last by default. The best is a model's own, often two
        thirds of the way up.
      idf: Whether tokens are weighted by their inverse document frequency in the references; else equally.
      baseline: Precision, recall and F1 of unrelated texts, which become 0: x → (x − b) / (1 − b).
      show_progress: As in `Encoder.encode`.

    Raises:
      InputError: Not as many candidates as references, none, an item that is not a string, no such layer, or a
        baseline that is not three numbers below 1.
    """
    candidates, references = checked_text(candidates), checked_text(references)
    if not candidates or len(candidates) != len(references):
        raise InputError(f"{len(candidates)} candidates for {len(references)} references; expected one for each.")
    layers = encoder.config.num_layers
    layer = layers if layer is None else layer
    if not 0 <= layer <= layers:
        raise InputError(f"{spelled('layer')} is {layer}; {encoder.name} has 0, the embeddings, to {layers}.")
    if baseline is not None and (len(baseline) != 3 or not max(baseline) < 1):
        raise InputError(f"{spelled('baseline')} is {baseline}; expected three numbers below 1.")
    weights = np.ones(encoder.config.vocab_size, np.float32)
    if idf:
        weights[:] = inverse_document_frequencies(references, encoder.tokenizer, len(weights))
    before, after = encoder.tokenizer.around
    weights[[*before, *after]] = 0.0

    sides = encoder.tokenizer(candidates), encoder.tokenizer(references)
    lengths = np.maximum(*(side.lengths for side in sides))
    graph, state = nnx.split(encoder.model())
    by_row = NamedSharding(encoder._engine.mesh, PartitionSpec("data"))
    found = np.empty((len(candidates), 3), np.float32)
    with progress(candidates, show_progress) as bar:
        for batch in encoder._engine.layout.plan(lengths, segments=False):
            arrays = [batch.arrays(side, encoder.config.pad_token_id) for side in sides]
            scores = _scored(graph, state, weights, layer, *jax.device_put(arrays, by_row))
            found[batch.rows] = np.asarray(scores)[: len(batch.rows)]
            bar.update(len(batch.rows))
    if baseline is not None:
        zero = np.asarray(baseline, np.float32)
        found = (found - zero) / (1 - zero)
    return BERTScores(*found.T)


@functools.partial(jax.jit, static_argnames=("graph", "layer"))
def _scored(
    graph: Any,
    state: Any,
    weights: Float[Array, " vocab"],
    layer: int,
    *texts: Any,
) -> Float[Array, "b 3"]:
    """The scores of candidates and references, each given as ids [b, length] and lengths [b]."""
    model, sides = nnx.merge(graph, state), []
    for ids, count in texts:
        mask = jnp.arange(ids.shape[1]) < count[:, None]
        states = model(ids, mask.astype(jnp.int32)).hidden_states[layer].astype(jnp.float32)
        sides.append((normalize_on_device(states), mask, jnp.where(mask, weights[ids], 0.0)))
    (x, in_x, of_x), (y, in_y, of_y) = sides
    similarity = jnp.einsum("bid,bjd->bij", x, y, precision="highest")
    similarity = jnp.where(in_x[:, :, None] & in_y[:, None, :], similarity, -1.0)

    def mean(best: Array, weight: Array) -> Array:
        total = jnp.sum(weight, axis=1)
        return jnp.sum(best * weight, axis=1) / jnp.where(total > 0, total, 1.0)

    both = (jnp.sum(of_x, axis=1) > 0) & (jnp.sum(of_y, axis=1) > 0)
    precision, recall = mean(jnp.max(similarity, axis=2), of_x), mean(jnp.max(similarity, axis=1), of_y)
    total = precision + recall
    f1 = 2 * precision * recall / jnp.where(total == 0, 1.0, total)
    return jnp.where(both[:, None], jnp.stack([precision, recall, f1], axis=1), 0.0)


def read_baseline(path: str | Path, layer: int) -> list[float]:
    """Precision, recall and F1 of a layer from a baseline file as published: LAYER,P,R,F, a line for each layer.

    Raises:
      DataError: The file cannot be read, or has no such line.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if row and row[0].strip() == str(layer):
                    _, precision, recall, f1 = row
                    return [float(precision), float(recall), float(f1)]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a baseline file, LAYER,P,R,F and a line for each layer ({error}).") from error
    raise DataError(f"{path}: no line for layer {layer}.")
