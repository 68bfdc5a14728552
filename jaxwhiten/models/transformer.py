"""The encoder module in Flax NNX; families differ only in their `EncoderConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxwhiten.errors import InputError
from jaxwhiten.models.attention import BLOCK, Kernel
from jaxwhiten.models.config import Attention, EncoderConfig
from jaxwhiten.models.layers import Context, Embeddings, EncoderOutput, TransformerLayer, embedding, linear, norm
from jaxwhiten.models.positions import Packing, Segments, pair_distances, relative_buckets, rotary, visible
from jaxwhiten.types import AnyArray, Array, Int


class TransformerEncoder(nnx.Module):
    """Embeddings, transformer layers, pooler.

    >>> load_model("jaxwhiten-tiny")[0].pools
    False

    Args:
      config: Sizes, rates, and the family's differences from BERT.
      dtype: Dtype of matrix products, `jnp.float32` or `jnp.bfloat16`. Parameters are float32.
      rngs: Source of the initial weights.
      remat: Whether to recompute each layer's activations in the backward pass (gradient checkpointing).

    Attributes:
      module: Class of its first module in a sentence-transformers folder.
      pools: Whether this module averages the tokens itself.
      special_tokens: Whether sentences are put between the tokenizer's special tokens.
    """

    module: ClassVar[str] = "Transformer"
    pools: ClassVar[bool] = False
    special_tokens: ClassVar[bool] = True

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32, remat: bool = False):
        self.config = config
        self.dtype = dtype
        self.remat = remat
        self.embeddings = Embeddings(config, dtype=dtype, rngs=rngs)
        sets = config.layer_groups or config.num_layers
        self.layers = nnx.List([TransformerLayer(config, index, dtype=dtype, rngs=rngs) for index in range(sets)])
        buckets = config.relative_buckets
        self.relative_bias = embedding(buckets, config.num_heads, config, jnp.float32, rngs) if buckets else None
        self.final_norm = norm(config.hidden_size, config, dtype, rngs) if config.pre_norm else None
        self.pooler = linear(config.hidden_size, config.hidden_size, config, dtype, rngs) if config.pooler else None

    def __call__(
        self,
        input_ids: Int[AnyArray, "batch length"],
        attention_mask: Int[AnyArray, "batch length"],
        token_type_ids: Int[AnyArray, "batch length"] | None = None,
        *,
        deterministic: bool = True,
        rngs: nnx.Rngs | None = None,
        tokens: int | None = None,
        segments: Segments | None = None,
        kernel: Kernel | None = None,
    ) -> EncoderOutput:
        """Runs the encoder.

        Args:
          input_ids: Token ids; padding on the right, where the mask is 0, may hold any valid id.
          token_type_ids: Segment of each token; None means all 0.
          rngs: Source of dropout noise (stream `dropout`); required if `deterministic` is False.
          tokens: Size of the packed batch, at least the number of ones in the mask: everything except attention is then
            computed on packed tokens without padding. None computes on all positions.
          segments: The sentences of each row, if rows hold several. The mask is then 1 for the tokens of all of them,
            and the pooler output is [rows, sentences, d].
          kernel: Attention kernel for long rows with segments.

        Returns:
          All hidden states, the embedding output first; the pooler output. The
          last hidden state of a pre-norm encoder is taken after its final norm.
        """
        if token_type_ids is not None and not self.config.type_vocab_size:
            raise InputError(f"{self.config.model_type} has no token types: omit token_type_ids.")
        input_ids, attention_mask = jnp.asarray(input_ids), jnp.asarray(attention_mask)  # of NumPy, too
        packing = None if tokens is None else Packing.of(attention_mask, tokens)
        contexts = self._contexts(attention_mask, segments, packing, kernel)
        positions = None if segments is None else segments.position
        x = self.embeddings(input_ids, token_type_ids, deterministic=deterministic, rngs=rngs, positions=positions)
        if packing is not None:
            x = packing.pack(x)
        hidden_states = [x]

        def run(layer: Any, x: Array, context: Context, rngs: nnx.Rngs | None) -> AnyArray:
            return layer(x, context, deterministic=deterministic, rngs=rngs)

        for layer, kind in self.stack():
            x = (nnx.remat(run) if self.remat else run)(layer, x, contexts[kind], rngs)
            hidden_states.append(x)
        if self.final_norm is not None:
            hidden_states[-1] = self.final_norm(x)
        if packing is not None:
            hidden_states = [packing.pad(h) for h in hidden_states]
        last = hidden_states[-1]
        first = last[:, 0] if segments is None else segments.firsts(last)
        pooled = None if self.pooler is None else jnp.tanh(self.pooler(first))
        return EncoderOutput(tuple(hidden_states), pooled)

    def stack(self) -> Iterator[tuple[TransformerLayer, Attention]]:
        """The layers in the order they run, each with its attention; layers that share weights repeat."""
        for index, kind in enumerate(self.config.attention):
            yield self.layers[index * len(self.layers) // self.config.num_layers], kind

    def _contexts(
        self,
        attention_mask: Int[Array, "batch length"],
        segments: Segments | None,
        packing: Packing | None,
        kernel: Kernel | None,
    ) -> dict[Attention, Context]:
        config, length, bias = self.config, attention_mask.shape[1], None
        mask = attention_mask.astype(bool)[:, None, None, :] if segments is None else segments.together()
        if segments is None or length <= BLOCK or length % BLOCK or config.relative_buckets:
            kernel = None
        if self.relative_bias is not None:
            relative = relative_buckets(pair_distances(length), config.relative_buckets, config.relative_distance)
            by_pair = self.relative_bias(jnp.asarray(relative))
            bias = by_pair.transpose(2, 0, 1)[None]

        def context(kind: Attention) -> Context:
            near = visible(length, kind.window, kind.causal)
            visible_tokens = mask if near is None else mask & near
            turns = rotary(length, config.head_size, kind.rotary_theta, kind.scaling)
            if segments is None:
                return Context(visible_tokens, bias, turns, packing)
            fused = kernel and dataclasses.replace(kernel, window=kind.window, causal=kind.causal)
            return Context(visible_tokens, bias, turns and turns.at(segments.position), packing, fused, segments.number)

        return {kind: context(kind) for kind in dict.fromkeys(config.attention)}
