"""Ministral3: a decoder as an encoder, with rotary positions stretched by YaRN and queries scaled by position.

References:
  Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxwhiten.models import qwen3
from jaxwhiten.models.family import Family

_ROTARY = {
    "rope_type": "yarn",
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "attention_factor": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def _read(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    raw = {**raw, "rope_parameters": raw.get("rope_parameters") or _ROTARY, "layer_types": None}
    return qwen3.read_decoder(raw, fields, 1_000_000.0, raw.get("sliding_window") is not None)


DEFAULTS = qwen3.DEFAULTS | {"layer_norm_eps": 1e-5, "head_size": 128, "causal": True, "pad_token_id": 11}
MINISTRAL3 = Family(
    "Ministral3", qwen3.NAMES, ("", "model."), qwen3.KEYS, None, None, DEFAULTS, read=_read, write=qwen3.write_decoder
)
