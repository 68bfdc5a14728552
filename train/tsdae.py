"""TSDAE: the encoder reads a sentence with tokens deleted; a small decoder restores it from the vector alone.

References:
  Wang, Reimers and Gurevych, TSDAE (Findings of EMNLP 2021), section 3: deletion of 60% of the tokens, a decoder whose
  cross-attention sees the sentence vector only, parameters shared with the encoder.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Scalar

from jaxwhiten.errors import Bounds, InputError
from jaxwhiten.losses import Loss
from jaxwhiten.models import Context, TransformerEncoder, linear, rotary
from jaxwhiten.training import Batch, Objective, Params, Plan, Setup, noisy_vectors, split_encoder
from train.masked import MaskedHead, load_masked_lm


class Decoder(nnx.Module):
    """Restores a sentence from its vector, token by token.

    It uses the encoder's embeddings for input and output. Its layers start as copies of the encoder's last layers and
    attend to earlier tokens. Cross-attention to a single vector has weight 1 for any query, so it reduces to one linear
    map of the vector per layer, added to the layer's input.

    `head` comes from the encoder's masked language model.
    """

    def __init__(self, model: TransformerEncoder, layers: int, head: MaskedHead, *, rngs: nnx.Rngs):
        config = model.config
        self.layers = nnx.List([nnx.clone(layer) for layer in model.layers[-layers:]])
        width = config.hidden_size
        self.memory = nnx.List([linear(width, width, config, model.dtype, rngs) for _ in range(layers)])
        self.head = head

    def __call__(
        self,
        model: TransformerEncoder,
        input_ids: Int[Array, "batch length"],
        vectors: Float[Array, "batch d"],
        *,
        rngs: nnx.Rngs,
    ) -> Float[Array, "batch length vocab"]:
        """Logits of the next token at each position, with dropout; `model` provides the embeddings."""
        length = input_ids.shape[1]
        config = model.config
        causal = jnp.tril(jnp.ones((1, 1, length, length), bool))
        turns = rotary(length, config.head_size, config.rotary_theta)
        x = model.embeddings(input_ids, None, deterministic=False, rngs=rngs)
        for layer, memory in zip(self.layers, self.memory, strict=True):
            x = x + memory(vectors.astype(x.dtype))[:, None]
            x = layer(x, Context(causal, rotary=turns), deterministic=False, rngs=rngs)
        if model.final_norm is not None:
            x = model.final_norm(x)
        return self.head(x, jnp.asarray(model.embeddings.word.embedding[...]))


def delete_tokens(
    input_ids: Int[Array, "batch length"], lengths: Int[Array, " batch"], share: float, key: Array
) -> tuple[Int[Array, "batch room"], Int[Array, " batch"]]:
    """Deletes a share of each sentence's tokens at random; returns the others in their order, and their number.

    The first and the last token, [CLS] and [SEP], and at least one more are kept.
    """
    length = input_ids.shape[1]
    position = jnp.arange(length)
    inner = (lengths - 2)[:, None]
    tokens = np.arange(length - 1)
    remaining = np.clip(np.round((1 - share) * tokens), 1, tokens).astype(np.int32)  # tokens kept, by number of tokens
    width = int(remaining[-1]) + 2
    draw = jnp.where((position > 0) & (position <= inner), jax.random.uniform(key, input_ids.shape), 2.0)
    rank = jnp.argsort(jnp.argsort(draw, axis=1), axis=1)
    keep = (rank < jnp.asarray(remaining)[inner]) | (position == 0) | (position == inner + 1)
    order = jnp.argsort(jnp.where(keep, position, length + position), axis=1)[:, :width]
    return jnp.take_along_axis(input_ids, order, axis=1), jnp.sum(keep, axis=1)


def plan_tsdae(objective: Objective, loss: Loss, setup: Setup, *, deletion: float = 0.6, layers: int = 1) -> Plan:
    """A plan for TSDAE.

    The loss is the mean cross-entropy of every token given the tokens before it. Only the encoder is exported.
    """
    del objective, loss  # they are on vectors, not on tokens
    model = setup.model
    steps = setup.start.view.head.steps
    if layers > len(getattr(model, "layers", ())):
        raise InputError(f"layers is {layers}; expected 1 to the number of the encoder's layers.")
    if setup.options.dims:
        raise InputError("The objective 'tsdae' has no Matryoshka prefixes: its decoder reads whole vectors.")
    if setup.start.dimension != model.config.hidden_size:
        raise InputError(
            "The objective 'tsdae' does not support a head that changes the number of dimensions: specify a pooling."
        )
    head = load_masked_lm(setup.start.name, seed=setup.options.seed, dtype=jnp.dtype(model.dtype).name)[0].head
    graph, decoder = nnx.split(Decoder(model, layers, head, rngs=nnx.Rngs(setup.options.seed)))
    encoder, rebuild = split_encoder(model, setup.start.view.head.name)

    def restoring(params: Params, batch: Batch, key: jax.Array) -> Any:
        noise, dropout = jax.random.split(key)
        rngs = nnx.Rngs(dropout=dropout)
        model = rebuild(params["encoder"])
        ids = batch["input_ids"][:, 0]
        lengths = batch["lengths"][:, 0]
        noised, remaining = delete_tokens(ids, lengths, deletion, noise)
        vectors = noisy_vectors(model, noised, remaining, steps, rngs)
        scores = nnx.merge(graph, params["head"])(model, ids[:, :-1], vectors, rngs=rngs)
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, ids[:, 1:])
        counted = jnp.arange(1, ids.shape[1]) < lengths[:, None]
        return jnp.sum(jnp.where(counted, losses, 0.0)) / jnp.sum(counted), {}

    return Plan({"encoder": encoder, "head": decoder}, restoring, rebuild, start=setup.start, fixed=steps)


def _planned(*_: Array) -> Scalar:
    raise InputError("TSDAE trains more than an encoder: plan it with jaxwhiten.training.make_plan.")


BOUNDS = {"deletion": Bounds(0.0, 1.0, below=True), "layers": Bounds(1)}
TSDAE = Objective("tsdae", _planned, (1, 1), plan=plan_tsdae, bounds=BOUNDS)
