"""MPNet: BERT's layers with a learned bias on attention scores by relative position, and no token types.

References:
  Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert
from jaxwhiten.models.family import Family

_ATTENTION = "encoder.layer.*.attention"
NAMES = {
    **bert.EMBEDDING_NAMES,
    "relative_bias": "encoder.relative_attention_bias",
    "layers.*.attention.query": f"{_ATTENTION}.attn.q",
    "layers.*.attention.key": f"{_ATTENTION}.attn.k",
    "layers.*.attention.value": f"{_ATTENTION}.attn.v",
    "layers.*.attention.output": f"{_ATTENTION}.attn.o",
    "layers.*.attention_norm": f"{_ATTENTION}.LayerNorm",
    **bert.FEED_FORWARD_NAMES,
    "pooler": "pooler.dense",
}
KEYS = {key: value for key, value in bert.KEYS.items() if key != "type_vocab_size"}
KEYS |= {"relative_buckets": "relative_attention_num_buckets"}
# Positions start after the padding id, which is always 1.
DEFAULTS = {"type_vocab_size": 0, "position_offset": 2, "relative_buckets": 32, "pad_token_id": 1}


def _published_buckets(raw: Mapping[str, Any], where: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    del raw
    if fields["relative_buckets"] != 32:
        raise ModelError(f"{where}: relative_attention_num_buckets is {fields['relative_buckets']}; only 32 is used.")
    return {}


MPNET = Family("MPNetModel", NAMES, ("", "mpnet."), KEYS, DEFAULTS, _published_buckets)
