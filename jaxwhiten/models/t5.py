"""T5's encoder: norms without bias or mean before each part, relative positions, and unscaled attention scores.

References:
  Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 2.1.
  Ni et al. 2022, "Sentence-T5: Scalable Sentence Encoders from Pre-trained Text-to-Text Models".
"""

from __future__ import annotations

from jaxwhiten.models import qwen3
from jaxwhiten.models.family import Family, Names

_ATTENTION, _INNER = "encoder.block.*.layer.0.SelfAttention", "encoder.block.*.layer.1.DenseReluDense"
NAMES: Names = {
    "embeddings.word": "shared",
    "relative_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "layers.*.attention.query": f"{_ATTENTION}.q",
    "layers.*.attention.key": f"{_ATTENTION}.k",
    "layers.*.attention.value": f"{_ATTENTION}.v",
    "layers.*.attention.output": f"{_ATTENTION}.o",
    "layers.*.attention_norm": "encoder.block.*.layer.0.layer_norm",
    "layers.*.feed_forward.up": f"{_INNER}.wi",
    "layers.*.feed_forward.down": f"{_INNER}.wo",
    "layers.*.feed_forward_norm": "encoder.block.*.layer.1.layer_norm",
    "final_norm": "encoder.final_layer_norm",
}
KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "head_size": "d_kv",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "intermediate_size": "d_ff",
    "hidden_act": "feed_forward_proj",
    "max_positions": "n_positions",
    "relative_buckets": "relative_attention_num_buckets",
    "relative_distance": "relative_attention_max_distance",
    "layer_norm_eps": "layer_norm_epsilon",
    "dropout": "dropout_rate",
    "pad_token_id": "pad_token_id",
}
DEFAULTS = qwen3.DEFAULTS | {
    "gated": False,
    "hidden_act": "relu",
    "dropout": 0.1,
    "query_scalar": 1.0,
    "head_size": 64,
    "relative_buckets": 32,
    "max_positions": 512,
}
T5 = Family("T5Encoder", NAMES, ("", "transformer."), KEYS, defaults=DEFAULTS)
