"""The pieces every encoder is built from: embeddings, self-attention, feed-forward, one transformer layer.

Written in Flax NNX. Parameters are float32; `dtype` is what the matrix products run in. Layer norms, softmax and
their inputs' means are computed in float32 whatever `dtype` is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxwhiten.errors import unknown_name
from jaxwhiten.models.config import EncoderConfig

ACTIVATIONS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
}


class EncoderOutput(NamedTuple):
    """What an encoder returns.

    Attributes:
      hidden_states: One [batch, length, d] array a layer, the embedding output first. Under `jit` those that are
        not used are never materialised.
      pooler: [batch, d], BERT's pooler output, or None for encoders without one.
    """

    hidden_states: tuple[Float[Array, "batch length d"], ...]
    pooler: Float[Array, "batch d"] | None


def activation(name: str):
    """The activation function called `name` in a `config.json`."""
    if name not in ACTIVATIONS:
        raise unknown_name("hidden_act", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def matmul_precision(dtype: DTypeLike) -> str | None:
    """Float32 means float32: TPUs and recent GPUs would otherwise use bfloat16 or TF32 passes."""
    return "highest" if dtype == jnp.float32 else None


def linear(inputs: int, outputs: int, config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer with BERT's initialisation."""
    return nnx.Linear(
        inputs,
        outputs,
        dtype=dtype,
        precision=matmul_precision(dtype),
        kernel_init=nnx.initializers.normal(config.initializer_range),
        rngs=rngs,
    )


def layer_norm(config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A layer norm over the hidden width; its statistics are taken in float32, in two passes."""
    return nnx.LayerNorm(
        config.hidden_size, epsilon=config.layer_norm_eps, dtype=dtype, use_fast_variance=False, rngs=rngs
    )


class Embeddings(nnx.Module):
    """Word + position + token-type embeddings, layer norm, dropout."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        init = nnx.initializers.normal(config.initializer_range)

        def table(rows: int) -> nnx.Embed:
            return nnx.Embed(rows, config.hidden_size, dtype=dtype, embedding_init=init, rngs=rngs)

        self.word = table(config.vocab_size)
        self.position = table(config.max_positions)
        self.token_type = table(config.type_vocab_size)
        self.norm = layer_norm(config, dtype, rngs)
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        token_type_ids: Int[Array, "batch length"] | None,
        *,
        deterministic: bool,
        rngs: nnx.Rngs | None,
    ) -> Float[Array, "batch length d"]:
        x = self.word(input_ids) + self.position.embedding[: input_ids.shape[1]].astype(self.word.dtype)
        if token_type_ids is None:
            x = x + self.token_type.embedding[0].astype(x.dtype)
        else:
            x = x + self.token_type(token_type_ids)
        return self.dropout(self.norm(x), deterministic=deterministic, rngs=rngs)


class SelfAttention(nnx.Module):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2), without the output norm."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.config = config
        self.precision = matmul_precision(dtype)
        self.query = linear(config.hidden_size, config.hidden_size, config, dtype, rngs)
        self.key = linear(config.hidden_size, config.hidden_size, config, dtype, rngs)
        self.value = linear(config.hidden_size, config.hidden_size, config, dtype, rngs)
        self.output = linear(config.hidden_size, config.hidden_size, config, dtype, rngs)
        self.dropout = nnx.Dropout(config.attention_dropout)

    def __call__(
        self,
        x: Float[Array, "batch length d"],
        mask: Bool[Array, "batch length"],
        *,
        deterministic: bool,
        rngs: nnx.Rngs | None,
    ) -> Float[Array, "batch length d"]:
        batch, length, _ = x.shape
        heads = (batch, length, self.config.num_heads, self.config.head_size)
        query, key, value = (project(x).reshape(heads) for project in (self.query, self.key, self.value))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key, precision=self.precision).astype(jnp.float32)
        scores = scores / math.sqrt(self.config.head_size)
        scores = jnp.where(mask[:, None, None, :], scores, jnp.finfo(jnp.float32).min)
        weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
        weights = self.dropout(weights, deterministic=deterministic, rngs=rngs)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value, precision=self.precision)
        return self.output(mixed.reshape(batch, length, self.config.hidden_size))


class FeedForward(nnx.Module):
    """Two dense layers with an activation between them, without the output norm."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.activation = activation(config.hidden_act)
        self.up = linear(config.hidden_size, config.intermediate_size, config, dtype, rngs)
        self.down = linear(config.intermediate_size, config.hidden_size, config, dtype, rngs)

    def __call__(self, x: Float[Array, "batch length d"]) -> Float[Array, "batch length d"]:
        return self.down(self.activation(self.up(x)))


class TransformerLayer(nnx.Module):
    """Attention and feed-forward, each with dropout, a residual and a norm after it (post-norm, as in BERT)."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.attention = SelfAttention(config, dtype=dtype, rngs=rngs)
        self.attention_norm = layer_norm(config, dtype, rngs)
        self.feed_forward = FeedForward(config, dtype=dtype, rngs=rngs)
        self.feed_forward_norm = layer_norm(config, dtype, rngs)
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(
        self,
        x: Float[Array, "batch length d"],
        mask: Bool[Array, "batch length"],
        *,
        deterministic: bool,
        rngs: nnx.Rngs | None,
    ) -> Float[Array, "batch length d"]:
        attended = self.attention(x, mask, deterministic=deterministic, rngs=rngs)
        x = self.attention_norm(x + self.dropout(attended, deterministic=deterministic, rngs=rngs))
        fed = self.feed_forward(x)
        return self.feed_forward_norm(x + self.dropout(fed, deterministic=deterministic, rngs=rngs))
