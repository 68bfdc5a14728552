"""DistilBERT: BERT's layers under other names, without token types and pooler.

References:
  Sanh et al. 2019, "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter".
"""

from __future__ import annotations

from jaxwhiten.models.bert import EMBEDDING_NAMES
from jaxwhiten.models.family import Family

NAMES = {
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
KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "max_positions": "max_position_embeddings",
    "hidden_act": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}

DISTILBERT = Family("DistilBertModel", NAMES, ("", "distilbert."), KEYS, {"type_vocab_size": 0, "pooler": False})
