"""BERT and the families with its layers: RoBERTa, XLM-RoBERTa, ELECTRA, DistilBERT, ALBERT, MPNet, GTE, Jina v3.

References:
  Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
  Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".
  Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at Scale" (XLM-RoBERTa).
  Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators".
  Sanh et al. 2019, "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter".
  Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", section 3.1.
  Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding".
  Zhang et al. 2024, "mGTE: Generalized Long-Context Text Representation and Reranking Models for Multilingual Text
  Retrieval", section 2.1.
  Sturua et al. 2024, "jina-embeddings-v3: Multilingual Embeddings With Task LoRA", section 3.
"""

from __future__ import annotations

import dataclasses

from jaxwhiten.models.config import Rope, RotaryScaling, check_supported, typed
from jaxwhiten.models.family import Family, Names, PairForm, fused
from jaxwhiten.types import Fields, Json

EMBEDDING_NAMES = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
NAMES = {
    **EMBEDDING_NAMES,
    "layers.*.attention.query": "encoder.layer.*.attention.self.query",
    "layers.*.attention.key": "encoder.layer.*.attention.self.key",
    "layers.*.attention.value": "encoder.layer.*.attention.self.value",
    "layers.*.attention.output": "encoder.layer.*.attention.output.dense",
    "layers.*.attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    "layers.*.feed_forward.up": "encoder.layer.*.intermediate.dense",
    "layers.*.feed_forward.down": "encoder.layer.*.output.dense",
    "layers.*.feed_forward_norm": "encoder.layer.*.output.LayerNorm",
    "pooler": "pooler.dense",
}
_SAME = ("vocab_size", "hidden_size", "intermediate_size", "type_vocab_size", "layer_norm_eps", "hidden_act")
KEYS = {name: name for name in (*_SAME, "initializer_range", "pad_token_id")} | {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
UNTYPED_KEYS = {field: key for field, key in KEYS.items() if field != "type_vocab_size"}


def _after_padding(_: object, fields: Fields) -> Json:
    """RoBERTa counts tokens from the padding id; with padding on the right, this count gives the position."""
    return {"position_offset": fields["pad_token_id"] + 1}


BERT = Family("Bert", NAMES, ("", "bert."), KEYS, PairForm())

ROBERTA_PAIRS = PairForm("classifier.out_proj", "classifier.dense")
ROBERTA = Family("Roberta", NAMES, ("", "roberta."), KEYS, ROBERTA_PAIRS, {"pad_token_id": 1}, read=_after_padding)
XLM_ROBERTA = dataclasses.replace(ROBERTA, stem="XLMRoberta")
ELECTRA = Family(
    "Electra",
    {**NAMES, "embeddings.projection": "embeddings_project"},
    ("", "electra."),
    {**KEYS, "embedding_size": "embedding_size"},
    ROBERTA_PAIRS._replace(activation="gelu"),
    {"embedding_size": 128, "pooler": False},
)

# DistilBERT has neither token types nor a pooler.
DISTILBERT_NAMES = {
    **EMBEDDING_NAMES,
    "layers.*.attention.query": "transformer.layer.*.attention.q_lin",
    "layers.*.attention.key": "transformer.layer.*.attention.k_lin",
    "layers.*.attention.value": "transformer.layer.*.attention.v_lin",
    "layers.*.attention.output": "transformer.layer.*.attention.out_lin",
    "layers.*.attention_norm": "transformer.layer.*.sa_layer_norm",
    "layers.*.feed_forward.up": "transformer.layer.*.ffn.lin1",
    "layers.*.feed_forward.down": "transformer.layer.*.ffn.lin2",
    "layers.*.feed_forward_norm": "transformer.layer.*.output_layer_norm",
}
DISTILBERT_KEYS = {field: key for field, key in UNTYPED_KEYS.items() if field != "layer_norm_eps"} | {
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
DISTILBERT = Family(
    "DistilBert",
    DISTILBERT_NAMES,
    ("", "distilbert."),
    DISTILBERT_KEYS,
    PairForm(dense="pre_classifier", activation="relu"),
    {"type_vocab_size": 0, "pooler": False},
)

# ALBERT has narrow embeddings, a projection to the hidden width, and layers that share their weights.
_ALBERT_LAYER = "encoder.albert_layer_groups.*.albert_layers.0"
ALBERT_NAMES = {
    **EMBEDDING_NAMES,
    "embeddings.projection": "encoder.embedding_hidden_mapping_in",
    "layers.*.attention.query": f"{_ALBERT_LAYER}.attention.query",
    "layers.*.attention.key": f"{_ALBERT_LAYER}.attention.key",
    "layers.*.attention.value": f"{_ALBERT_LAYER}.attention.value",
    "layers.*.attention.output": f"{_ALBERT_LAYER}.attention.dense",
    "layers.*.attention_norm": f"{_ALBERT_LAYER}.attention.LayerNorm",
    "layers.*.feed_forward.up": f"{_ALBERT_LAYER}.ffn",
    "layers.*.feed_forward.down": f"{_ALBERT_LAYER}.ffn_output",
    "layers.*.feed_forward_norm": f"{_ALBERT_LAYER}.full_layer_layer_norm",
    "pooler": "pooler",
}
ALBERT_DEFAULTS = {
    "embedding_size": 128,
    "embedding_projection": True,
    "layer_groups": 1,
    "hidden_act": "gelu_new",
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
ALBERT = Family(
    "Albert",
    ALBERT_NAMES,
    ("", "albert."),
    {**KEYS, "embedding_size": "embedding_size", "layer_groups": "num_hidden_groups"},
    PairForm(),
    ALBERT_DEFAULTS,
    {"inner_group_num": 1},
    lambda _, fields: {"layer_groups": typed(fields["layer_groups"], int, "num_hidden_groups", 1)},
)

# MPNet has a learned bias on attention scores by relative position, and no token types.
MPNET_NAMES = {
    **NAMES,
    "relative_bias": "encoder.relative_attention_bias",
    "layers.*.attention.query": "encoder.layer.*.attention.attn.q",
    "layers.*.attention.key": "encoder.layer.*.attention.attn.k",
    "layers.*.attention.value": "encoder.layer.*.attention.attn.v",
    "layers.*.attention.output": "encoder.layer.*.attention.attn.o",
    "layers.*.attention_norm": "encoder.layer.*.attention.LayerNorm",
}
MPNET = Family(
    "MPNet",
    MPNET_NAMES,
    ("", "mpnet."),
    {**UNTYPED_KEYS, "relative_buckets": "relative_attention_num_buckets"},
    ROBERTA_PAIRS,
    # Positions start after the padding id, which is always 1.
    {"type_vocab_size": 0, "position_offset": 2, "relative_buckets": 32, "pad_token_id": 1},
    {"relative_attention_num_buckets": 32},
)

# GTE has rotary positions and a gate; so have multilingual GTE and Arctic-embed 2. Tensors and `config.json` use the
# names of published files, which transformers writes, too.
GTE_NAMES: Names = {
    **EMBEDDING_NAMES,
    **fused("encoder.layer.*.attention.qkv_proj"),
    "layers.*.attention.output": "encoder.layer.*.attention.o_proj",
    "layers.*.attention_norm": "encoder.layer.*.attn_ln",
    **fused("encoder.layer.*.mlp.up_gate_proj", ("feed_forward.gate", "feed_forward.up")),
    "layers.*.feed_forward.down": "encoder.layer.*.mlp.down_proj",
    "layers.*.feed_forward_norm": "encoder.layer.*.mlp_ln",
}
GTE_DEFAULTS = {
    "type_vocab_size": 1,
    "pooler": False,
    "learned_positions": False,
    "gated": True,
    "feed_forward_bias": False,
    "down_bias": True,
    "attention_dropout": 0.0,
    "pad_token_id": 1,
}


def _read_gte(raw: Fields, fields: Fields) -> Json:
    """The rotary positions. Published files use NTK scaling: a larger base, and all angles divided alike."""
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    turns = {}
    if (scaling := fields["rotary_scaling"]) and "ntk" in (rope.get("rope_type"), rope.get("type")):
        check_supported(rope, {"mixed_b": None})
        alike = scaling.factor ** (2 * fields["num_heads"] / max(fields["hidden_size"], 2))
        turns = {"rotary_theta": fields["rotary_theta"] * scaling.factor, "rotary_scaling": RotaryScaling(alike, 0)}
    return {"model_type": "gte", **turns}


GTE = Family(
    "Gte",
    GTE_NAMES,
    ("", "new.", "gte."),
    KEYS,
    defaults=GTE_DEFAULTS,
    supported={"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "logn_attention_scale": False},
    read=_read_gte,
    rotary=(Rope("rope_theta", 160_000.0, ("default", "linear", "ntk")),),
)

# Jina v3 has rotary positions; files that list LoRA tasks are refused.
JINA_NAMES: Names = {
    **EMBEDDING_NAMES,
    "embeddings.norm": "emb_ln",
    **fused("encoder.layers.*.mixer.Wqkv"),
    "layers.*.attention.output": "encoder.layers.*.mixer.out_proj",
    "layers.*.attention_norm": "encoder.layers.*.norm1",
    "layers.*.feed_forward.up": "encoder.layers.*.mlp.fc1",
    "layers.*.feed_forward.down": "encoder.layers.*.mlp.fc2",
    "layers.*.feed_forward_norm": "encoder.layers.*.norm2",
    "pooler": "pooler.dense",
}
JINA_V3 = Family(
    "JinaEmbeddingsV3",
    JINA_NAMES,
    ("", "roberta."),
    KEYS,
    defaults={"type_vocab_size": 1, "learned_positions": False, "layer_norm_eps": 1e-5, "pad_token_id": 1},
    supported={"lora_adaptations": None},
    rotary=(Rope("rope_theta", 20_000.0),),
)
