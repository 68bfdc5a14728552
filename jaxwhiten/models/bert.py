"""BERT (Devlin et al. 2019) in Flax NNX, and how its tensors are called in published checkpoints."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxwhiten.models.config import EncoderConfig, read_fields
from jaxwhiten.models.layers import Embeddings, EncoderOutput, TransformerLayer, linear

# Our parameter path -> the checkpoint's tensor name, both without the last part (kernel, scale, ...).
# "*" is the number of a layer.
NAMES = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.*.attention.query": "encoder.layer.*.attention.self.query",
    "layers.*.attention.key": "encoder.layer.*.attention.self.key",
    "layers.*.attention.value": "encoder.layer.*.attention.self.value",
    "layers.*.attention.output": "encoder.layer.*.attention.output.dense",
    "layers.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    "layers.*.feed_forward.up": "encoder.layer.*.intermediate.dense",
    "layers.*.feed_forward.down": "encoder.layer.*.output.dense",
    "layers.*.feed_forward_norm": "encoder.layer.*.output.LayerNorm",
    "pooler": "pooler.dense",
}

# EncoderConfig field -> key in config.json.
CONFIG_KEYS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}


def parse_config(raw: dict[str, Any], where: str) -> EncoderConfig:
    """Reads BERT's `config.json`.

    Args:
      raw: The parsed file.
      where: The file's path, for messages.

    Returns:
      The configuration.

    Raises:
      ModelError: A key is missing or asks for something this encoder does not have.
    """
    from jaxwhiten.errors import ModelError

    position = raw.get("position_embedding_type") or "absolute"
    if position != "absolute":
        raise ModelError(f"{where}: position_embedding_type {position!r} is not supported; only 'absolute' is.")
    return EncoderConfig(**{**read_fields(raw, CONFIG_KEYS, where), "model_type": "bert"})


class Bert(nnx.Module):
    """BERT's encoder: embeddings, post-norm transformer layers, pooler.

    Args:
      config: Sizes and rates.
      dtype: What matrix products run in: `jnp.float32` or `jnp.bfloat16`. Parameters are float32.
      rngs: Source of the initial weights.
      remat: Recompute each layer's activations in the backward pass (gradient checkpointing).
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32, remat: bool = False):
        self.config = config
        self.dtype = dtype
        self.remat = remat
        self.embeddings = Embeddings(config, dtype=dtype, rngs=rngs)
        self.layers = nnx.List([TransformerLayer(config, dtype=dtype, rngs=rngs) for _ in range(config.num_layers)])
        self.pooler = linear(config.hidden_size, config.hidden_size, config, dtype, rngs) if config.pooler else None

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        attention_mask: Int[Array, "batch length"],
        token_type_ids: Int[Array, "batch length"] | None = None,
        *,
        deterministic: bool = True,
        rngs: nnx.Rngs | None = None,
    ) -> EncoderOutput:
        """Runs the encoder.

        Args:
          input_ids: Token ids; padding may hold any valid id.
          attention_mask: 1 for tokens, 0 for padding.
          token_type_ids: Segment of each token; None means all 0.
          deterministic: True switches dropout off.
          rngs: Source of dropout noise (stream `dropout`), needed when `deterministic` is False.

        Returns:
          All hidden states, the embedding output first, and the pooler output.
        """
        mask = attention_mask.astype(bool)
        x = self.embeddings(input_ids, token_type_ids, deterministic=deterministic, rngs=rngs)
        hidden_states = [x]
        for layer in self.layers:
            x = _run_layer(layer, x, mask, deterministic, rngs, self.remat)
            hidden_states.append(x)
        return EncoderOutput(tuple(hidden_states), self._pool(x[:, 0]))

    def _pool(self, first_token: Float[Array, "batch d"]) -> Float[Array, "batch d"] | None:
        return None if self.pooler is None else jnp.tanh(self.pooler(first_token))


def _run_layer(layer, x, mask, deterministic, rngs, remat):
    def call(layer, x, mask, rngs):
        return layer(x, mask, deterministic=deterministic, rngs=rngs)

    return nnx.remat(call)(layer, x, mask, rngs) if remat else call(layer, x, mask, rngs)
