"""ModernBERT: norms before attention and feed-forward, rotary positions, local and global layers, GeGLU, no biases.

`dropout` stands for its three dropout rates, all 0 as published.

References:
  Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient, and
  Long Context Finetuning and Inference", section 2.1.
"""

from __future__ import annotations

from jaxwhiten.models import bert
from jaxwhiten.models.config import FULL, LOCAL, EncoderConfig, Rope, read_local_layers, typed
from jaxwhiten.models.family import ROTARY, Family, Names, fused
from jaxwhiten.types import Fields, Json

NAMES: Names = {
    "embeddings.word": "embeddings.tok_embeddings",
    "embeddings.norm": "embeddings.norm",
    **fused("layers.*.attn.Wqkv"),
    "layers.*.attention.output": "layers.*.attn.Wo",
    "layers.*.attention_norm": "layers.*.attn_norm",
    **fused("layers.*.mlp.Wi", ("feed_forward.up", "feed_forward.gate")),
    "layers.*.feed_forward.down": "layers.*.mlp.Wo",
    "layers.*.feed_forward_norm": "layers.*.mlp_norm",
    "final_norm": "final_norm",
}
KEYS = bert.UNTYPED_KEYS | {
    "layer_norm_eps": "norm_eps",
    "hidden_act": "hidden_activation",
    "dropout": "mlp_dropout",
    "attention_dropout": "attention_dropout",
    "attention_bias": "attention_bias",
    "feed_forward_bias": "mlp_bias",
    "norm_bias": "norm_bias",
}
_OWN = {"type_vocab_size": 0, "pre_norm": True, "layer_norm_eps": 1e-5, "pad_token_id": 50283, "norm_bias": False}
DEFAULTS = {**ROTARY, **_OWN, "hidden_act": "gelu"}


def _read(raw: Fields, fields: Fields) -> Json:
    """Local layers, from the current keys or the older ones."""
    window = typed(raw.get("local_attention", 128), int, "local_attention", 0)
    every = raw.get("global_attn_every_n_layers", 3)

    def is_local(layer: int) -> bool:
        return typed(every, int, "global_attn_every_n_layers") < 1 or layer % every > 0

    return {
        "local_layers": read_local_layers(raw, fields["num_layers"], is_local),
        "local_window": window // 2,
    }


def _write(config: EncoderConfig) -> Json:
    return {"embedding_dropout": config.dropout, "local_attention": 2 * config.local_window}


MODERNBERT = Family(
    "ModernBert",
    NAMES,
    ("", "model."),
    KEYS,
    defaults=DEFAULTS,
    read=_read,
    write=_write,
    rotary=(
        Rope("global_rope_theta", 160_000.0, kind=FULL),
        Rope("local_rope_theta", 10_000.0, kind=LOCAL),
    ),
)
