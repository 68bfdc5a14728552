"""BERT and the families with its layers and names: RoBERTa, XLM-RoBERTa, ELECTRA.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
  Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".
  Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at Scale" (XLM-RoBERTa).
  Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxwhiten.models.family import Family

EMBEDDING_NAMES = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
FEED_FORWARD_NAMES = {
    "layers.*.feed_forward.up": "encoder.layer.*.intermediate.dense",
    "layers.*.feed_forward.down": "encoder.layer.*.output.dense",
    "layers.*.feed_forward_norm": "encoder.layer.*.output.LayerNorm",
}
NAMES = {
    **EMBEDDING_NAMES,
    "layers.*.attention.query": "encoder.layer.*.attention.self.query",
    "layers.*.attention.key": "encoder.layer.*.attention.self.key",
    "layers.*.attention.value": "encoder.layer.*.attention.self.value",
    "layers.*.attention.output": "encoder.layer.*.attention.output.dense",
    "layers.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    **FEED_FORWARD_NAMES,
    "pooler": "pooler.dense",
}
KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "layer_norm_eps": "layer_norm_eps",
    "hidden_act": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}


def _after_padding(raw: Mapping[str, Any], where: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """RoBERTa's positions start after the padding id.

    RoBERTa counts the tokens that are not padding; with padding on the right that count is the position.
    """
    del raw, where
    return {"position_offset": fields["pad_token_id"] + 1}


BERT = Family("BertModel", NAMES, ("", "bert."), KEYS)
ROBERTA = Family("RobertaModel", NAMES, ("", "roberta."), KEYS, {"pad_token_id": 1}, _after_padding)
XLM_ROBERTA = dataclasses.replace(ROBERTA, architecture="XLMRobertaModel")
ELECTRA = Family(
    "ElectraModel",
    {**NAMES, "embeddings.projection": "embeddings_project"},
    ("", "electra."),
    {**KEYS, "embedding_size": "embedding_size"},
    {"embedding_size": 128, "pooler": False},
)
