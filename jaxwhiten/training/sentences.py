"""Sentence-BERT in the training loop: batches of sentence rows, the loss through the encoder, the STS score.

References:
  Reimers and Gurevych, Sentence-BERT (EMNLP 2019), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Shaped

from jaxwhiten.encoding.batching import length_ladder
from jaxwhiten.encoding.encoder import Encoder
from jaxwhiten.head import canonical, pool
from jaxwhiten.losses import Loss
from jaxwhiten.metrics.scores import cosine_pairs, spearman
from jaxwhiten.runtime.distributed import gather_rows, share
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.loop import Evaluate
from jaxwhiten.training.step import LossFn, Params
from jaxwhiten.training.tokens import TokenTable

Rebuild = Callable[[nnx.State[Any, Any]], Any]


def split_encoder(model: nnx.Module, pooling: str) -> tuple[nnx.State[Any, Any], Rebuild]:
    """Splits an encoder into the parameters to train and a function that rebuilds it from trained ones.

    Args:
      model: An encoder of `jaxwhiten.models`.
      pooling: The pooling to train for; BERT's pooler stays frozen unless it is used.
    """
    kept = nnx.PathContains("pooler") if canonical(pooling) != "pooler" else nnx.Nothing()
    graph, frozen, params = nnx.split(model, kept, ...)  # type: ignore[misc]
    return params, lambda trained: nnx.merge(graph, frozen, trained)


def noisy_vectors(
    model: Any, ids: Int[Array, "b length"], lengths: Int[Array, " b"], pooling: str, rngs: nnx.Rngs
) -> Float[Array, "b d"]:
    """Pooled vectors of padded sentences, with dropout."""
    mask = (jnp.arange(ids.shape[1]) < lengths[:, None]).astype(jnp.int32)
    output = model(ids, mask, deterministic=False, rngs=rngs)
    vectors: Array = pool(output, mask, (pooling,))[pooling]
    return vectors


def sentence_loss(rebuild: Rebuild, loss: Loss, *, pooling: str = "mean", passes: int = 1) -> LossFn:
    """The loss of a batch of sentence rows through encoder and pooling, with dropout.

    All columns are encoded in one call.

    Args:
      rebuild: From `split_encoder`.
      loss: From `jaxwhiten.losses.objective`.
      pooling: A name of `jaxwhiten.POOLINGS`.
      passes: How often each sentence is encoded, with independent dropout (SimCSE: 2).

    Returns:
      A loss for `make_step`. Parameters are `{"encoder": state, "head": arrays}`; a batch has `input_ids`
      [b, columns, length], `lengths` [b, columns] and, if the objective needs them, `labels` [b].
    """

    def loss_fn(params: Params, batch: dict[str, jax.Array], key: jax.Array) -> Any:
        ids, lengths = (jnp.concatenate([batch[name]] * passes, axis=1) for name in ("input_ids", "lengths"))
        rows, columns, length = ids.shape
        model, rngs = rebuild(params["encoder"]), nnx.Rngs(dropout=key)
        vectors = noisy_vectors(model, ids.reshape(-1, length), lengths.reshape(-1), pooling, rngs)
        vectors = vectors.reshape(rows, columns, -1)
        return loss([vectors[:, column] for column in range(columns)], batch.get("labels"), params.get("head", {})), {}

    return loss_fn


def sentence_batches(
    table: TokenTable,
    labels: Shaped[np.ndarray, " n *m"] | None,
    *,
    max_length: int,
    pad_id: int = 0,
    buckets: int = 4,
    vectors: Float[np.ndarray, "n columns d"] | None = None,
    **order: Any,
) -> Batches:
    """Batches of tokenised rows for `sentence_loss`.

    Args:
      table: From `tokenize_columns`.
      labels: One label per row, a number or an array, or None.
      max_length: Longest padded length.
      pad_id: Token id of padding.
      buckets: How many padded lengths to use, each with its own compilation; 1 pads everything to the longest.
      vectors: Vectors of the rows' sentences, which the loss finds as `vectors`; memory-mapped as well.
      **order: `batch_size`, `seed` and `process` of `Batches`.
    """
    given = {name: array for name, array in (("labels", labels), ("vectors", vectors)) if array is not None}

    def collate(rows: Int[np.ndarray, " b"], length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del rng
        return table.batch(rows, length, pad_id) | {name: array[rows] for name, array in given.items()}

    return Batches(table.lengths, collate, ladder=length_ladder(max_length), buckets=buckets, **order)


def sts_evaluator(
    rebuild: Rebuild,
    tokenizer_folder: Path,
    name: str,
    sentence1: Sequence[str],
    sentence2: Sequence[str],
    gold: Float[np.ndarray, " n"],
    *,
    pooling: str = "mean",
    max_length: int = 128,
) -> Evaluate:
    """Spearman's correlation of cosines with gold scores, times 100, as an `evaluate` for the loop.

    Every process must call it: each encodes its share.

    Args:
      rebuild: From `split_encoder`.
      tokenizer_folder: Folder of the model's tokenizer.
      name: Name of the score.
      sentence1, sentence2, gold: The pairs and their gold scores.
      pooling: A name of `jaxwhiten.POOLINGS`.
      max_length: Maximum number of tokens per sentence.
    """

    def evaluate(params: Params) -> dict[str, float]:
        host = jax.device_get(params["encoder"])  # the next step donates the buffers on the devices
        encoder = Encoder(rebuild(host), tokenizer_folder, pooling=pooling, max_length=max_length)
        if steps := jax.device_get(params.get("steps", ())):
            encoder = encoder.then(*steps)
        vectors = gather_rows(encoder.encode(share([*sentence1, *sentence2]), show_progress=False))
        half = len(sentence1)
        return {name: 100 * spearman(cosine_pairs(vectors[:half], vectors[half:]), gold)}

    return evaluate
