"""Qwen3: a decoder as an encoder, causal or bidirectional, with shared key and value heads and norms of each head.

References:
  Yang et al. 2025, "Qwen3 Technical Report", section 2.
  Zhang et al. 2025, "Qwen3 Embedding: Advancing Text Embedding and Reranking Through Foundation Models".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxwhiten.models.config import EncoderConfig, layer_types, read_local_layers, read_rotary, typed, write_rotary
from jaxwhiten.models.family import ROTARY, Family, Names

# For the decoders after Llama. Their files call the branch with the activation the gate.
NAMES: Names = {
    "embeddings.word": "embed_tokens",
    "layers.*.attention.query": "layers.*.self_attn.q_proj",
    "layers.*.attention.key": "layers.*.self_attn.k_proj",
    "layers.*.attention.value": "layers.*.self_attn.v_proj",
    "layers.*.attention.output": "layers.*.self_attn.o_proj",
    "layers.*.attention.query_norm": "layers.*.self_attn.q_norm",
    "layers.*.attention.key_norm": "layers.*.self_attn.k_norm",
    "layers.*.attention_norm": "layers.*.input_layernorm",
    "layers.*.feed_forward.up": "layers.*.mlp.gate_proj",
    "layers.*.feed_forward.gate": "layers.*.mlp.up_proj",
    "layers.*.feed_forward.down": "layers.*.mlp.down_proj",
    "layers.*.feed_forward_norm": "layers.*.post_attention_layernorm",
    "final_norm": "norm",
}
_SAME = ("vocab_size", "hidden_size", "intermediate_size", "hidden_act", "initializer_range", "pad_token_id")
KEYS = {name: name for name in (*_SAME, "attention_bias", "attention_dropout")} | {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "max_positions": "max_position_embeddings",
    "layer_norm_eps": "rms_norm_eps",
}
DEFAULTS = {
    **ROTARY,
    **{"type_vocab_size": 0, "embedding_norm": False, "pre_norm": True, "norm": "rms", "layer_norm_eps": 1e-6},
}
SCALINGS = ("default", "linear", "yarn")


def is_causal(raw: Mapping[str, Any], default: bool = True) -> bool:
    """Whether attention is causal, by the key of a decoder's `config.json` that can make it bidirectional."""
    causal: bool = typed(raw.get("is_causal", default), "bool", "is_causal")
    return causal


def read_decoder(
    raw: Mapping[str, Any],
    fields: Mapping[str, Any],
    theta: float,
    slides: bool,
    is_local: Callable[[int], bool] = lambda _: True,
) -> dict[str, Any]:
    """Fields common to decoders: `is_causal`, rotary positions with default base `theta`, windows of some layers."""
    causal = is_causal(raw, fields["causal"])
    local = read_local_layers(raw, fields["num_layers"], is_local) if slides else ()
    window = typed(raw.get("sliding_window"), "int", "sliding_window", 1) if local else causal
    return {
        "causal": causal,
        **read_rotary(raw, None, "rope_theta", theta, SCALINGS),
        **read_rotary(raw, None, "rope_theta", theta, SCALINGS, prefix="local_"),
        "local_layers": local,
        "local_window": window - causal,  # causal attention excludes the token at the window's distance
    }


def write_decoder(config: EncoderConfig) -> dict[str, Any]:
    """The inverse of `read_decoder`, without the list of local layers."""
    window = config.local_window + config.causal if config.local_layers else None
    return {**write_rotary(config), "is_causal": config.causal, "sliding_window": window}


def _read(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    slides = bool(raw.get("use_sliding_window")) and raw.get("sliding_window") is not None
    first = typed(raw.get("max_window_layers", 28), "int", "max_window_layers")
    return {"model_type": "qwen3", **read_decoder(raw, fields, 10_000.0, slides, lambda layer: layer >= first)}


def _write(config: EncoderConfig) -> dict[str, Any]:
    more = {"layer_types": layer_types(config), "use_sliding_window": bool(config.local_layers)}
    return {**write_decoder(config), **more}


_DEFAULTS = DEFAULTS | {"head_size": 128, "head_norm": True, "causal": True}
QWEN3 = Family("Qwen3", NAMES, ("", "model.", "transformer."), KEYS, defaults=_DEFAULTS, read=_read, write=_write)
# The name in Perplexity's files; it is written as Qwen3, which needs no code from its folder.
BIDIRECTIONAL_QWEN3 = dataclasses.replace(QWEN3, defaults=_DEFAULTS | {"causal": False})
