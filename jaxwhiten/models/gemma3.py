"""Gemma3's text model: four norms per layer, weights of norms stored minus 1, and local layers between global ones.

References:
  Gemma Team 2025, "Gemma 3 Technical Report", section 2.
  Vera et al. 2025, "EmbeddingGemma: Powerful and Lightweight Text Representations" (bidirectional).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jaxwhiten.models import qwen3
from jaxwhiten.models.config import FULL, LOCAL, EncoderConfig, read_local_layers, read_rotary, typed, write_kinds
from jaxwhiten.models.family import Family, Names

NAMES: Names = {
    **qwen3.NAMES,
    "layers.*.attention_output_norm": "layers.*.post_attention_layernorm",
    "layers.*.feed_forward_norm": "layers.*.pre_feedforward_layernorm",
    "layers.*.feed_forward_output_norm": "layers.*.post_feedforward_layernorm",
}
DEFAULTS = qwen3.DEFAULTS | {
    "norm": "rms, 1 + w",
    "output_norms": True,
    "head_norm": True,
    "head_size": 256,
    "hidden_act": "gelu_pytorch_tanh",
}


def _read(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    bidirectional = typed(raw.get("use_bidirectional_attention") or False, "bool", "use_bidirectional_attention")
    causal = qwen3.is_causal(raw)
    least = 0 if bidirectional else 1  # with which a token still attends to itself
    window = typed(raw.get("sliding_window", 4096), "int", "sliding_window", least)
    every = max(typed(raw.get("sliding_window_pattern", 6), "int", "sliding_window_pattern"), 1)
    unscaled = {**raw, "rope_scaling": None}  # this older key concerns global layers only
    return {
        "causal": causal and not bidirectional,
        "query_scalar": typed(raw.get("query_pre_attn_scalar", 256), "float", "query_pre_attn_scalar"),
        "embedding_scale": math.sqrt(max(fields["hidden_size"], 1)),
        **read_rotary(raw, FULL, "rope_theta", 1_000_000.0, qwen3.SCALINGS),
        **read_rotary(unscaled, LOCAL, "rope_local_base_freq", 10_000.0, qwen3.SCALINGS, prefix="local_"),
        "local_layers": read_local_layers(raw, fields["num_layers"], lambda layer: (layer + 1) % every > 0),
        # Bidirectional attention reaches half of the window to either side; the edge is outside.
        "local_window": (window // 2 + 1 if bidirectional else window) - causal,
    }


def _write(config: EncoderConfig) -> dict[str, Any]:
    whole = int(config.query_scalar)
    return {
        **write_kinds(config),
        "use_bidirectional_attention": not config.causal,
        "query_pre_attn_scalar": whole if whole == config.query_scalar else config.query_scalar,
        "sliding_window": config.local_window + 1 if config.causal else 2 * config.local_window,
    }


GEMMA3 = Family(
    "Gemma3Text",
    NAMES,
    ("", "model."),
    qwen3.KEYS | {"hidden_act": "hidden_activation"},
    defaults=DEFAULTS,
    supported={"attn_logit_softcapping": None},
    read=_read,
    write=_write,
)
