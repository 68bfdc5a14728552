"""The decoders with Llama's layers as encoders: Qwen3, EuroBERT, Ministral3, Gemma3.

Heads of queries share those of keys and values. Attention is causal or bidirectional. Gemma3's text model has four
norms per layer, whose weights are stored minus 1, and local layers between global ones.

References:
  Yang et al. 2025, "Qwen3 Technical Report", section 2.
  Zhang et al. 2025, "Qwen3 Embedding: Advancing Text Embedding and Reranking Through Foundation Models".
  Boizard et al. 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages", section 2.1.
  Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.4 (Ministral3, whose
  queries are also scaled by position).
  Gemma Team 2025, "Gemma 3 Technical Report", section 2.
  Vera et al. 2025, "EmbeddingGemma: Powerful and Lightweight Text Representations" (bidirectional).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from jaxwhiten.models.config import FULL, LOCAL, EncoderConfig, Rope, layer_types, read_local_layers, typed
from jaxwhiten.models.family import ROTARY, Family, Names
from jaxwhiten.types import Fields, Json

# The files call the branch with the activation the gate.
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
_OWN = {"type_vocab_size": 0, "embedding_norm": False, "pre_norm": True, "norm": "rms", "layer_norm_eps": 1e-6}
DEFAULTS = {**ROTARY, **_OWN}


def _read_decoder(raw: Fields, fields: Fields, slides: bool, is_local: Callable[[int], bool] = lambda _: True) -> Json:
    """Fields common to decoders: `is_causal`, windows of some layers, and their rotary positions."""
    causal = typed(raw.get("is_causal", fields["causal"]), bool, "is_causal")
    local = read_local_layers(raw, fields["num_layers"], is_local) if slides else ()
    window = typed(raw.get("sliding_window"), int, "sliding_window", 1) if local else causal
    return {
        "causal": causal,
        "local_rotary_theta": fields["rotary_theta"],
        "local_rotary_scaling": fields["rotary_scaling"],
        "local_layers": local,
        "local_window": window - causal,  # causal attention excludes the token at the window's distance
    }


def _write_decoder(config: EncoderConfig) -> Json:
    """The inverse of `_read_decoder`, without the list of local layers."""
    window = config.local_window + config.causal if config.local_layers else None
    return {"is_causal": config.causal, "sliding_window": window}


def _read_qwen3(raw: Fields, fields: Fields) -> Json:
    slides = bool(raw.get("use_sliding_window")) and raw.get("sliding_window") is not None
    first = typed(raw.get("max_window_layers", 28), int, "max_window_layers")
    return {"model_type": "qwen3", **_read_decoder(raw, fields, slides, lambda layer: layer >= first)}


def _write_qwen3(config: EncoderConfig) -> Json:
    more = {"layer_types": layer_types(config), "use_sliding_window": bool(config.local_layers)}
    return {**_write_decoder(config), **more}


_QWEN3 = DEFAULTS | {"head_size": 128, "head_norm": True, "causal": True}
_ROPE = Rope("rope_theta", 10_000.0, ("default", "linear", "yarn"))
QWEN3 = Family(
    "Qwen3",
    NAMES,
    ("", "model.", "transformer."),
    KEYS,
    defaults=_QWEN3,
    read=_read_qwen3,
    write=_write_qwen3,
    rotary=(_ROPE,),
)
# The name in Perplexity's files; it is written as Qwen3, which needs no code from its folder.
BIDIRECTIONAL_QWEN3 = dataclasses.replace(QWEN3, defaults=_QWEN3 | {"causal": False})

EUROBERT = Family(
    "EuroBert",
    NAMES,
    ("", "model."),
    KEYS | {"feed_forward_bias": "mlp_bias"},
    defaults=DEFAULTS | {"layer_norm_eps": 1e-5, "pad_token_id": 128001},
    rotary=(_ROPE,),
)

_YARN = {
    "rope_type": "yarn",
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "attention_factor": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def _read_ministral3(raw: Fields, fields: Fields) -> Json:
    return _read_decoder({**raw, "layer_types": None}, fields, raw.get("sliding_window") is not None)


MINISTRAL3 = Family(
    "Ministral3",
    NAMES,
    ("", "model."),
    KEYS,
    defaults=DEFAULTS | {"layer_norm_eps": 1e-5, "head_size": 128, "causal": True, "pad_token_id": 11},
    read=_read_ministral3,
    write=_write_decoder,
    rotary=(_ROPE._replace(theta=1_000_000.0, default=_YARN),),
)

_GEMMA3_NAMES: Names = {
    **NAMES,
    "layers.*.attention_output_norm": "layers.*.post_attention_layernorm",
    "layers.*.feed_forward_norm": "layers.*.pre_feedforward_layernorm",
    "layers.*.feed_forward_output_norm": "layers.*.post_feedforward_layernorm",
}
_GEMMA3 = DEFAULTS | {
    "norm": "rms, 1 + w",
    "output_norms": True,
    "head_norm": True,
    "head_size": 256,
    "hidden_act": "gelu_pytorch_tanh",
}


def _read_gemma3(raw: Fields, fields: Fields) -> Json:
    bidirectional = typed(raw.get("use_bidirectional_attention") or False, bool, "use_bidirectional_attention")
    causal = typed(raw.get("is_causal", True), bool, "is_causal")
    least = 0 if bidirectional else 1  # with which a token still attends to itself
    window = typed(raw.get("sliding_window", 4096), int, "sliding_window", least)
    every = max(typed(raw.get("sliding_window_pattern", 6), int, "sliding_window_pattern"), 1)
    return {
        "causal": causal and not bidirectional,
        "query_scalar": typed(raw.get("query_pre_attn_scalar", 256), float, "query_pre_attn_scalar"),
        "embedding_scale": math.sqrt(max(fields["hidden_size"], 1)),
        "local_layers": read_local_layers(raw, fields["num_layers"], lambda layer: (layer + 1) % every > 0),
        # Bidirectional attention reaches half of the window to either side; the edge is outside.
        "local_window": (window // 2 + 1 if bidirectional else window) - causal,
    }


def _write_gemma3(config: EncoderConfig) -> Json:
    whole = int(config.query_scalar)
    return {
        "use_bidirectional_attention": not config.causal,
        "query_pre_attn_scalar": whole if whole == config.query_scalar else config.query_scalar,
        "sliding_window": config.local_window + 1 if config.causal else 2 * config.local_window,
    }


GEMMA3 = Family(
    "Gemma3Text",
    _GEMMA3_NAMES,
    ("", "model."),
    KEYS | {"hidden_act": "hidden_activation"},
    defaults=_GEMMA3,
    supported={"attn_logit_softcapping": None},
    read=_read_gemma3,
    write=_write_gemma3,
    rotary=(
        _ROPE._replace(theta=1_000_000.0, kind=FULL),
        _ROPE._replace(older="rope_local_base_freq", kind=LOCAL),
    ),
)
