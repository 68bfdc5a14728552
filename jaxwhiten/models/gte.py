"""GTE: BERT's post-norm layers with rotary positions and a gate, as in multilingual GTE and Arctic-embed 2.

Tensors and `config.json` use the names of published files, which transformers writes, too.

References:
  Zhang et al. 2024, "mGTE: Generalized Long-Context Text Representation and Reranking Models for Multilingual Text
  Retrieval", section 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxwhiten.models import bert
from jaxwhiten.models.config import RotaryScaling, check_supported, read_rotary, write_rotary
from jaxwhiten.models.family import THIRDS, Family, MaskedForm, Names, Part

_LAYER = "encoder.layer.*"
NAMES: Names = {
    **bert.EMBEDDING_NAMES,
    **{f"layers.*.attention.{name}": Part(f"{_LAYER}.attention.qkv_proj", *part) for name, part in THIRDS.items()},
    "layers.*.attention.output": f"{_LAYER}.attention.o_proj",
    "layers.*.attention_norm": f"{_LAYER}.attn_ln",
    "layers.*.feed_forward.gate": Part(f"{_LAYER}.mlp.up_gate_proj", 0, 2),
    "layers.*.feed_forward.up": Part(f"{_LAYER}.mlp.up_gate_proj", 1, 2),
    "layers.*.feed_forward.down": f"{_LAYER}.mlp.down_proj",
    "layers.*.feed_forward_norm": f"{_LAYER}.mlp_ln",
}
DEFAULTS = {
    "type_vocab_size": 1,
    "pooler": False,
    "learned_positions": False,
    "gated": True,
    "feed_forward_bias": False,
    "down_bias": True,
    "attention_dropout": 0.0,
    "pad_token_id": 1,
}
_SUPPORTED = {"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "logn_attention_scale": False}


def _read(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary positions. Published files use NTK scaling: a larger base, and all angles divided alike."""
    turns = read_rotary(raw, None, "rope_theta", 160_000.0, ("default", "linear", "ntk"))
    theta, scaling = turns.values()
    said = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if scaling is not None and "ntk" in (said.get("rope_type"), said.get("type")):
        check_supported(said, {"mixed_b": None})
        exponent = 2 * fields["num_heads"] / max(fields["hidden_size"], 2)
        turns = {"rotary_theta": theta * scaling.factor, "rotary_scaling": RotaryScaling(scaling.factor**exponent)}
    return {"model_type": "gte", **turns}


MASKED = MaskedForm("lm_head.dense", "lm_head.norm", ("lm_head.decoder",), "gelu")
GTE = Family("Gte", NAMES, ("", "new.", "gte."), bert.KEYS, MASKED, None, DEFAULTS, _SUPPORTED, _read, write_rotary)
