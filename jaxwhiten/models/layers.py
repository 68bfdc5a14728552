"""Flax NNX layers of the encoders: embeddings, self-attention, feed-forward, transformer layer.

Parameters are float32; `dtype` is the dtype of matrix products. Layer-norm statistics and softmax are always float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike, DTypeLike

from jaxwhiten.models.attention import Kernel, by_queries
from jaxwhiten.models.config import ACTIVATIONS, EncoderConfig
from jaxwhiten.models.positions import Packing, Rotary, embedding_rows
from jaxwhiten.types import Array, Bool, Float, Int


class EncoderOutput(NamedTuple):
    """Output of an encoder. Under `jit`, unused parts are not computed.

    >>> ids = jnp.array([[2, 9, 3]])
    >>> len(load_model("jaxwhiten-tiny")[0](ids, jnp.ones_like(ids)).hidden_states)
    5
    """

    hidden_states: tuple[Float[Array, "batch length d"], ...]  # the embedding output first, then one per layer
    pooler: Float[Array, "*batch d"] | None  # BERT's pooler output of each sentence; None for encoders without one


class Context(NamedTuple):
    """Inputs of attention other than the hidden states, shared by all layers of a kind.

    With `packing`, hidden states are packed tokens; without it, padded rows. A `kernel` uses `segment` instead of the
    mask, and gives no attention maps.

    >>> Context(jnp.ones((1, 1, 3, 3), bool)).kernel is None
    True
    """

    mask: Bool[Array, "batch 1 queries length"]
    bias: Float[Array, "1 heads length length"] | None = None
    rotary: Rotary | None = None
    packing: Packing | None = None
    kernel: Kernel | None = None
    segment: Int[Array, "batch length"] | None = None


def gelu(x: jax.Array) -> jax.Array:
    """GELU by the error function. `jax.nn.gelu` takes its complement, which costs twice as much on CPU.

    References:
      Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)", section 2.
    """
    return x * (1 + jax.lax.erf(x * math.sqrt(0.5))) / 2


_BY_TANH = functools.partial(jax.nn.gelu, approximate=True)
_Function = Callable[[jax.Array], jax.Array]
_FUNCTIONS: tuple[_Function, ...] = (gelu, _BY_TANH, _BY_TANH, jax.nn.relu, jax.nn.silu, jax.nn.silu, jnp.tanh)


def activation(name: str) -> _Function:
    """The activation function called `name` in a `config.json`."""
    return dict(zip(ACTIVATIONS, _FUNCTIONS, strict=True))[name]


def matmul_precision(dtype: DTypeLike) -> str | None:
    """Full precision for float32, because TPUs and recent GPUs otherwise multiply in bfloat16 or TF32."""
    return "highest" if dtype == jnp.float32 else None


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _times(x: Array, kernel: Array, dimensions: Any) -> Array:
    return jax.lax.dot_general(x, kernel.astype(x.dtype), dimensions)


def _times_forward(x: Array, kernel: Array, dimensions: Any) -> tuple[Array, tuple[Array, Array]]:
    return _times(x, kernel, dimensions), (x, kernel)


def _times_backward(dimensions: Any, kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    x, kernel = kept
    rows = tuple(range(x.ndim - 1))
    to_kernel = jax.lax.dot_general(x, change, ((rows, rows), ((), ())), preferred_element_type=jnp.float32)
    return jnp.matmul(change, kernel.T.astype(change.dtype)), to_kernel.astype(kernel.dtype)


_times.defvjp(_times_forward, _times_backward)


def narrow_product(x: Array, kernel: ArrayLike, dimensions: Any, **_: Any) -> Array:
    """A dense layer's product in bfloat16, with a gradient summed in float32 over rows and devices.

    If the kernel were rounded first, each device's share of the gradient would be rounded and summed in bfloat16; on 64
    devices this doubled the error of a gradient.
    """
    return _times(x, jnp.asarray(kernel), dimensions)


def _narrow_but_kernel(arrays: tuple[Any, ...], *, dtype: DTypeLike, **_: Any) -> tuple[Any, ...]:
    x, kernel, bias = arrays
    return x.astype(dtype), kernel, None if bias is None else bias.astype(dtype)


def linear(
    inputs: int, outputs: int, config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs, bias: bool = True
) -> nnx.Linear:
    """A dense layer with BERT's initialization.

    >>> from flax import nnx
    >>> config = load_config(resolve_folder("jaxwhiten-tiny"))
    >>> linear(256, 2, config, jnp.float32, nnx.Rngs(0))(jnp.ones(256)).shape
    (2,)
    """
    narrow: dict[str, Any] = {"dot_general": narrow_product, "promote_dtype": _narrow_but_kernel}
    return nnx.Linear(
        inputs,
        outputs,
        use_bias=bias,
        dtype=dtype,
        precision=matmul_precision(dtype),
        **({} if dtype == jnp.float32 else narrow),
        kernel_init=nnx.initializers.normal(config.initializer_range),
        rngs=rngs,
    )


class Embedding(nnx.Embed):
    """An embedding whose rows are rounded to `dtype` after the lookup, so that its gradient is summed in float32."""

    def __call__(self, inputs: Array, out_sharding: Any = None) -> Array:
        return super().__call__(inputs, out_sharding).astype(self.dtype)


def embedding(rows: int, width: int, config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.Embed:
    """An embedding table with BERT's initialization."""
    init = nnx.initializers.normal(config.initializer_range)
    return Embedding(rows, width, dtype=dtype, embedding_init=init, promote_dtype=_as_they_are, rngs=rngs)


def _as_they_are(arrays: Any, **_: Any) -> Any:  # one function for all tables, so that equal models share a program
    return arrays


class RootNorm(nnx.Module):
    """Root mean square norm, with float32 statistics. `offset` is added to the weight: 1 if files store it minus 1.

    References:
      Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", section 3.
    """

    def __init__(self, width: int, epsilon: float, offset: float, dtype: DTypeLike):
        self.epsilon = epsilon
        self.offset = offset
        self.dtype = dtype
        self.scale = nnx.Param(jnp.full(width, 1 - offset, jnp.float32))

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        x = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        return (x * (self.offset + self.scale[...])).astype(self.dtype)


Norm = nnx.LayerNorm | RootNorm


def norm(width: int, config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> Norm:
    """A norm of the configuration's kind."""
    if config.norm == "layer":
        return layer_norm(width, config, dtype, rngs)
    return RootNorm(width, config.layer_norm_eps, 1.0 if config.norm == "rms, 1 + w" else 0.0, dtype)


def layer_norm(width: int, config: EncoderConfig, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """A layer norm with two-pass float32 statistics."""
    return nnx.LayerNorm(
        width, epsilon=config.layer_norm_eps, use_bias=config.norm_bias, dtype=dtype, use_fast_variance=False, rngs=rngs
    )


class Embeddings(nnx.Module):
    """Sum of word, position and token-type embeddings, norm, dropout, projection; some are optional."""

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        width = config.embedding_size

        def table(rows: int) -> nnx.Embed:
            return embedding(rows, width, config, dtype, rngs)

        self.position_offset = config.position_offset
        self.scale = config.embedding_scale
        self.word = table(config.vocab_size)
        self.position = table(config.max_positions) if config.learned_positions else None
        self.token_type = table(config.type_vocab_size) if config.type_vocab_size else None
        self.norm = norm(width, config, dtype, rngs) if config.embedding_norm else None
        projects = config.embedding_projection
        self.projection = linear(width, config.hidden_size, config, dtype, rngs) if projects else None
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        token_type_ids: Int[Array, "batch length"] | None,
        *,
        deterministic: bool,
        rngs: nnx.Rngs | None,
        positions: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length d"]:
        x = self.word(input_ids)
        if self.scale != 1:
            x = x * jnp.asarray(self.scale, x.dtype)
        if self.position is not None:
            if self.position_offset:
                positions = embedding_rows(input_ids, positions, self.position_offset)
            if positions is None:
                places = self.position.embedding[: input_ids.shape[1]]
            else:
                places = jnp.take(self.position.embedding[...], positions, axis=0, mode="clip")
            x = x + places.astype(x.dtype)
        if self.token_type is not None:
            first_type = self.token_type.embedding[0].astype(x.dtype)
            x = x + (first_type if token_type_ids is None else self.token_type(token_type_ids))
        x = self.dropout(x if self.norm is None else self.norm(x), deterministic=deterministic, rngs=rngs)
        if self.projection is None:
            return x
        return self.projection(x)


class SelfAttention(nnx.Module):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2), without the output norm.

    Query heads may share key and value heads.

    References:
      Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
      section 2.2 (shared heads).
      Henry et al. 2020, "Query-Key Normalization for Transformers" (norms of queries and keys).
    """

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.config = config
        self.head_size = config.head_size
        self.kv_heads = config.num_kv_heads
        self.query_scalar = config.query_scalar or config.head_size
        self.precision = matmul_precision(dtype)

        def project(inputs: int, outputs: int) -> nnx.Linear:
            return linear(inputs, outputs, config, dtype, rngs, config.attention_bias)

        width = config.num_heads * config.head_size
        shared = config.num_kv_heads * config.head_size
        self.query = project(config.hidden_size, width)
        self.key = project(config.hidden_size, shared)
        self.value = project(config.hidden_size, shared)
        self.output = project(width, config.hidden_size)
        self.query_norm = norm(config.head_size, config, dtype, rngs) if config.head_norm else None
        self.key_norm = norm(config.head_size, config, dtype, rngs) if config.head_norm else None
        self.dropout = nnx.Dropout(config.attention_dropout)

    def __call__(
        self, x: Float[Array, "*rows d"], context: Context, *, deterministic: bool, rngs: nnx.Rngs | None
    ) -> Float[Array, "*rows d"]:
        """The attended states."""
        projected = [project(x) for project in (self.query, self.key, self.value)]
        if context.packing is not None:
            projected = [context.packing.pad(y) for y in projected]
        batch, length, _ = projected[0].shape
        query, key, value = (y.reshape(batch, length, -1, self.head_size) for y in projected)
        if self.query_norm is not None and self.key_norm is not None:
            query = self.query_norm(query)
            key = self.key_norm(key)
        if context.rotary is not None:
            query = context.rotary.rotate(query)
            key = context.rotary.rotate(key)
            if (growth := context.rotary.growth) is not None:
                query = query * growth[..., None, None].astype(query.dtype)
        # Heads before tokens makes both products plain batched ones, which are several times faster on CPU.
        query, key, value = (y.transpose(0, 2, 1, 3) for y in (query, key, value))
        if context.kernel is not None and context.segment is not None:
            key, value = (jnp.repeat(y, query.shape[1] // y.shape[1], axis=1) for y in (key, value))
            if self.query_scalar != self.head_size:  # the kernels divide by the root of the width
                query = query * math.sqrt(self.head_size / self.query_scalar)
            mixed = context.kernel(query, key, value, context.segment).astype(x.dtype)
            return self.output(mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1))

        def attend(query: Array, mask: Array, bias: Array | None) -> Array:
            """The result of a block of queries."""
            rows = query.shape[2]
            # Queries that share keys and values are stacked, so that one product serves them.
            shared = (batch, self.kv_heads, -1)
            whole = (batch, self.config.num_heads, rows, -1)
            query = query.reshape(*shared, self.head_size)
            scores = jnp.matmul(query, key.swapaxes(2, 3), precision=self.precision).astype(jnp.float32)
            scores = scores.reshape(whole) / math.sqrt(self.query_scalar)
            if bias is not None:
                scores = scores + bias
            scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
            # Dividing by the softmax's denominator after the product with the values touches a smaller array.
            weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
            total = jnp.sum(weights, axis=-1, keepdims=True)
            weights = self.dropout(weights.astype(x.dtype), deterministic=deterministic, rngs=rngs)
            mixed = jnp.matmul(weights.reshape(*shared, length), value, precision=self.precision).reshape(whole)
            return (mixed / total).astype(x.dtype)

        if deterministic:
            mixed = by_queries(attend, query, context.mask, context.bias)
        else:
            mixed = attend(query, context.mask, context.bias)
        mixed = mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)
        return self.output(mixed if context.packing is None else context.packing.pack(mixed))


class FeedForward(nnx.Module):
    """Two dense layers with an activation between them, optionally gated by a third; without the output norm.

    References:
      Shazeer 2020, "GLU Variants Improve Transformer", section 2 (gated).
    """

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        inner = config.intermediate_size
        bias = config.feed_forward_bias
        self.activation = activation(config.hidden_act)
        self.up = linear(config.hidden_size, inner, config, dtype, rngs, bias)
        self.gate = linear(config.hidden_size, inner, config, dtype, rngs, bias) if config.gated else None
        self.down = linear(inner, config.hidden_size, config, dtype, rngs, bias or config.down_bias)

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        inner = self.activation(self.up(x))
        return self.down(inner if self.gate is None else inner * self.gate(x))


class Experts(nnx.Module):
    """A mixture of experts: feed-forward layers, with a router that selects a few for each token.

    Every token goes through all experts, with weight 0 for those not selected, so that its sums do not depend on its
    place in the batch.

    References:
      Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", section 2.
    """

    def __init__(self, config: EncoderConfig, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.config = config
        self.activation = activation(config.hidden_act)
        rows = config.experts * config.intermediate_size
        init = nnx.initializers.normal(config.initializer_range)
        self.router = linear(config.hidden_size, config.experts, config, dtype, rngs, bias=False)
        self.w1 = nnx.Param(init(rngs.params(), (rows, config.hidden_size)))
        self.w2 = nnx.Param(init(rngs.params(), (rows, config.hidden_size)))
        self.bias = nnx.Param(jnp.zeros(config.hidden_size))

    def __call__(self, x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
        weights = jax.nn.softmax(self.router(x).astype(jnp.float32), axis=-1)
        chosen, which = jax.lax.top_k(weights, self.config.experts_taken)
        weights = jnp.sum(chosen[..., None] * jax.nn.one_hot(which, self.config.experts), axis=-2)
        precision = matmul_precision(x.dtype)
        inner = self.activation(jnp.matmul(x, self.w1[...].T.astype(x.dtype), precision=precision))
        inner = inner * jnp.repeat(weights, self.config.intermediate_size, axis=-1).astype(x.dtype)
        outer = jnp.matmul(inner, self.w2[...].astype(x.dtype), precision=precision)
        return outer + self.bias[...].astype(x.dtype)


class TransformerLayer(nnx.Module):
    """Attention and feed-forward, each with dropout, a residual and a norm.

    Post-norm, as in BERT, normalizes each sum. Pre-norm normalizes each input instead; the attention of the first
    layer then has no norm if the embeddings end with one. The outputs may have norms of their own.
    """

    def __init__(self, config: EncoderConfig, index: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.pre_norm = config.pre_norm
        self.attention = SelfAttention(config, dtype=dtype, rngs=rngs)
        normed = index == 0 and config.pre_norm and config.embedding_norm
        width = config.hidden_size
        outputs = config.output_norms
        self.attention_norm = None if normed else norm(width, config, dtype, rngs)
        self.attention_output_norm = norm(width, config, dtype, rngs) if outputs else None
        inner = Experts if index in config.expert_layers else FeedForward
        self.feed_forward = inner(config, dtype=dtype, rngs=rngs)
        self.feed_forward_norm = norm(width, config, dtype, rngs)
        self.feed_forward_output_norm = norm(width, config, dtype, rngs) if outputs else None
        self.dropout = nnx.Dropout(config.dropout)

    def __call__(
        self, x: Float[Array, "*rows d"], context: Context, *, deterministic: bool, rngs: nnx.Rngs | None
    ) -> Float[Array, "*rows d"]:
        noise: dict[str, Any] = {"deterministic": deterministic, "rngs": rngs}
        return self.composed(
            x,
            lambda y: self.attention(y, context, **noise),
            self.feed_forward,
            norm=lambda y, norm: y if norm is None else norm(y),
            add=lambda y, change: y + self.dropout(change, **noise),
        )

    def composed(
        self,
        x: Any,
        attention: Callable[[Any], Any],
        feed_forward: Callable[[Any], Any],
        *,
        norm: Callable[[Any, Norm | None], Any],
        add: Callable[[Any, Any], Any],
    ) -> Any:
        """The layer's output, by its parts in JAX or in a graph; `norm` and `add` are of the same kind."""
        parts = (
            (attention, self.attention_norm, self.attention_output_norm),
            (feed_forward, self.feed_forward_norm, self.feed_forward_output_norm),
        )
        for part, around, of_output in parts:
            change = part(norm(x, around) if self.pre_norm else x)
            x = add(x, norm(change, of_output))
            x = x if self.pre_norm else norm(x, around)
        return x
