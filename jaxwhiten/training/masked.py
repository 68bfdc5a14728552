"""Masked language modelling in the training loop: batches of masked blocks, the loss, the held-out score.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Int

from jaxwhiten.models import MaskedLM
from jaxwhiten.runtime.distributed import gather_rows
from jaxwhiten.training.batches import Batches
from jaxwhiten.training.corpus import TokenStream
from jaxwhiten.training.loop import Evaluate
from jaxwhiten.training.masking import MaskRules, mask_blocks
from jaxwhiten.training.step import Batch, LossFn, Params, place_batch

HELD_OUT_LOSS, HELD_OUT_ACCURACY = "held-out loss", "held-out accuracy"
RebuildMasked = Callable[[nnx.State[Any, Any]], MaskedLM]


def split_masked_lm(model: MaskedLM) -> tuple[nnx.State[Any, Any], RebuildMasked]:
    """Splits a model into its parameters and a function that rebuilds it from trained ones."""
    graph, params = nnx.split(model)
    return params, lambda trained: nnx.merge(graph, trained)


def masked_batches(
    stream: TokenStream, rules: MaskRules, *, batch_size: int, seed: int = 0, process: tuple[int, int] = (0, 1)
) -> Batches:
    """Shuffled batches of blocks for `masked_loss`; a block is masked differently in every epoch.

    Args:
      stream: The blocks.
      rules: The rules of masking.
      batch_size, seed, process: As in `Batches`.
    """

    def collate(rows: Int[np.ndarray, " b"], length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        del length
        return mask_blocks(stream.blocks(rows), rules, rng)

    lengths, ladder = np.full(len(stream), stream.length), np.array([stream.length])
    return Batches(lengths, collate, batch_size=batch_size, ladder=ladder, buckets=1, seed=seed, process=process)


def _sums(model: MaskedLM, batch: Batch, **how: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Summed loss, number of correct predictions, and number of masked positions."""
    everywhere = jnp.ones(batch["input_ids"].shape, jnp.int32)  # blocks have no padding
    scores = model(batch["input_ids"], everywhere, batch["positions"], **how)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch["targets"])
    correct = (jnp.argmax(scores, axis=-1) == batch["targets"]).astype(jnp.float32)
    weights = batch["weights"]
    return jnp.sum(losses * weights), jnp.sum(correct * weights), jnp.sum(weights)


def masked_loss(rebuild: RebuildMasked) -> LossFn:
    """The mean cross-entropy over the masked positions, with the model's dropout.

    Args:
      rebuild: From `split_masked_lm`.

    Returns:
      A loss for `make_step` on batches of `masked_batches`.
    """

    def loss_fn(params: Params, batch: Batch, key: jax.Array) -> Any:
        model = rebuild(params)
        loss, correct, count = _sums(model, batch, deterministic=False, rngs=nnx.Rngs(dropout=key))
        count = jnp.maximum(count, 1.0)
        return loss / count, {"accuracy": 100 * correct / count}

    return loss_fn


def masked_evaluator(
    rebuild: RebuildMasked, stream: TokenStream, rules: MaskRules, *, blocks: int = 0, batch_size: int = 64
) -> Evaluate:
    """Mean loss in nats and accuracy in per cent on blocks with fixed masks, as an `evaluate` for the loop.

    Every process must call it: each evaluates its share of the batches.

    Args:
      rebuild: From `split_masked_lm`.
      stream: Held-out blocks.
      rules: The rules of masking, as in training.
      blocks: How many blocks to use, evenly spaced; 0 for all.
      batch_size: Blocks per batch.
    """
    count = min(blocks or len(stream), len(stream))
    rows = np.linspace(0, len(stream) - 1, count).astype(np.int64)
    mesh = Mesh(np.asarray(jax.local_devices()), ("data",))
    height = -(-min(batch_size, count) // mesh.size) * mesh.size
    sums = jax.jit(lambda params, batch: _sums(rebuild(params), batch))

    def evaluate(params: Params) -> dict[str, float]:
        params = jax.device_get(params)  # the next step donates the buffers on the devices
        total = np.zeros(3)
        starts = range(0, count, height)
        for start in starts[jax.process_index() :: jax.process_count()]:
            chosen = np.resize(rows[start : start + height], height)
            batch = mask_blocks(stream.blocks(chosen), rules, np.random.default_rng(start))
            batch["weights"][count - start :] = 0.0  # padding of the last batch
            total += np.array(jax.device_get(sums(params, place_batch(batch, mesh))), np.float64)
        total = gather_rows(total[None]).sum(axis=0)
        return {HELD_OUT_LOSS: total[0] / total[2], HELD_OUT_ACCURACY: 100 * total[1] / total[2]}

    return evaluate
