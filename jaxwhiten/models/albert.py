"""ALBERT: narrow embeddings, a projection to the hidden width, and layers that share their weights.

References:
  Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert
from jaxwhiten.models.family import Family

_LAYER = "encoder.albert_layer_groups.*.albert_layers.0"
NAMES = {
    **bert.EMBEDDING_NAMES,
    "embeddings.projection": "encoder.embedding_hidden_mapping_in",
    "layers.*.attention.query": f"{_LAYER}.attention.query",
    "layers.*.attention.key": f"{_LAYER}.attention.key",
    "layers.*.attention.value": f"{_LAYER}.attention.value",
    "layers.*.attention.output": f"{_LAYER}.attention.dense",
    "layers.*.attention_norm": f"{_LAYER}.attention.LayerNorm",
    "layers.*.feed_forward.up": f"{_LAYER}.ffn",
    "layers.*.feed_forward.down": f"{_LAYER}.ffn_output",
    "layers.*.feed_forward_norm": f"{_LAYER}.full_layer_layer_norm",
    "pooler": "pooler",
}
KEYS = {**bert.KEYS, "embedding_size": "embedding_size", "layer_groups": "num_hidden_groups"}
DEFAULTS = {
    "embedding_size": 128,
    "embedding_projection": True,
    "layer_groups": 1,
    "hidden_act": "gelu_new",
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def _checked_groups(raw: Mapping[str, Any], where: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    if fields["layer_groups"] < 1:
        raise ModelError(f"{where}: num_hidden_groups is {fields['layer_groups']}; expected at least 1.")
    if raw.get("inner_group_num", 1) != 1:
        raise ModelError(f"{where}: inner_group_num is {raw['inner_group_num']!r}; only 1 is supported.")
    return {}


ALBERT = Family("AlbertModel", NAMES, ("", "albert."), KEYS, DEFAULTS, _checked_groups)
