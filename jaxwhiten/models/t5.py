"""T5's encoder: norms without bias or mean before each part, relative positions, and unscaled attention scores.

T5 v1.1 and mT5 gate the feed-forward layer; the `config.json` of T5 v1.1 has the same `model_type` as T5's.

References:
  Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 2.1.
  Xue et al. 2021, "mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer", section 3.2.
  Ni et al. 2022, "Sentence-T5: Scalable Sentence Encoders from Pre-trained Text-to-Text Models".
"""

from __future__ import annotations

import dataclasses

from jaxwhiten.models import llama
from jaxwhiten.models.config import MOST_POSITIONS, EncoderConfig, check_supported
from jaxwhiten.models.family import Family, Names
from jaxwhiten.types import Fields, Json

_ATTENTION = "encoder.block.*.layer.0.SelfAttention"
_INNER = "encoder.block.*.layer.1.DenseReluDense"
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
    "relative_buckets": "relative_attention_num_buckets",
    "relative_distance": "relative_attention_max_distance",
    "layer_norm_eps": "layer_norm_epsilon",
    "dropout": "dropout_rate",
    "pad_token_id": "pad_token_id",
}
DEFAULTS = llama.DEFAULTS | {
    "hidden_act": "relu",
    "dropout": 0.1,
    "query_scalar": 1.0,
    "head_size": 64,
    "relative_buckets": 32,
    "max_positions": MOST_POSITIONS,  # of relative ones
}


def _read(raw: Fields, fields: Fields) -> Json:
    """The activation and the gate, both named by `feed_forward_proj`; its "gated-gelu" is the GELU by tanh."""
    activation: str = fields["hidden_act"]
    name = "gelu_new" if activation == "gated-gelu" else activation.removeprefix("gated-")
    gated = activation.startswith("gated-")
    check_supported(raw, {"dense_act_fn": name, "is_gated_act": gated})  # transformers lets these override the key
    if not gated:
        kind = "t5"
    elif raw["model_type"] == "mt5":
        kind = "mt5"
    else:
        kind = "t5_v1_1"
    return {"model_type": kind, "gated": gated, "hidden_act": name}


def _write_gated(config: EncoderConfig) -> Json:
    kind = config.model_type.removesuffix("_v1_1")
    name = config.hidden_act.removesuffix("_new")
    return {"model_type": kind, "feed_forward_proj": f"gated-{name}"}


_GATED = {"layers.*.feed_forward.up": f"{_INNER}.wi_0", "layers.*.feed_forward.gate": f"{_INNER}.wi_1"}
T5 = Family("T5Encoder", NAMES, ("", "transformer."), KEYS, defaults=DEFAULTS, read=_read)
T5_V1_1 = dataclasses.replace(T5, names={**NAMES, **_GATED}, write=_write_gated)
MT5 = dataclasses.replace(T5_V1_1, stem="MT5Encoder", defaults=DEFAULTS | {"hidden_act": "gated-gelu"})
