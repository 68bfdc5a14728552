"""NomicBERT: BERT's post-norm layers with rotary positions, SwiGLU, and biases in the norms only.

Version 2 has biases, no gate, and a mixture of experts in every other layer. Its `config.json` has the same name.

Tensors have the names of published files, which transformers writes, or of transformers' modules; `config.json` has
transformers' keys, or the GPT-2 keys of older files.

References:
  Nussbaum et al. 2024, "Nomic Embed: Training a Reproducible Long Context Text Embedder", section 3.1.
  Nussbaum & Duderstadt 2025, "Training Sparse Mixture Of Experts Text Embedding Models", section 3.
"""

from __future__ import annotations

import dataclasses

from jaxwhiten.errors import ModelError
from jaxwhiten.models import bert
from jaxwhiten.models.config import MAX_LAYERS, EncoderConfig, Rope, check_supported, typed
from jaxwhiten.models.family import ROTARY, Family, Names, Part
from jaxwhiten.types import Fields, Json

_LAYER = "encoder.layers.*"
NAMES: Names = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
    "embeddings.norm": ("emb_ln", "embeddings.LayerNorm"),
    "layers.*.attention.query": (Part(f"{_LAYER}.attn.Wqkv", 0, 3), "layers.*.self_attn.q_proj"),
    "layers.*.attention.key": (Part(f"{_LAYER}.attn.Wqkv", 1, 3), "layers.*.self_attn.k_proj"),
    "layers.*.attention.value": (Part(f"{_LAYER}.attn.Wqkv", 2, 3), "layers.*.self_attn.v_proj"),
    "layers.*.attention.output": (f"{_LAYER}.attn.out_proj", "layers.*.self_attn.o_proj"),
    "layers.*.attention_norm": (f"{_LAYER}.norm1", "layers.*.post_attention_layernorm"),
    "layers.*.feed_forward.up": (f"{_LAYER}.mlp.fc12", "layers.*.mlp.gate_proj"),
    "layers.*.feed_forward.gate": (f"{_LAYER}.mlp.fc11", "layers.*.mlp.up_proj"),
    "layers.*.feed_forward.down": (f"{_LAYER}.mlp.fc2", "layers.*.mlp.down_proj"),
    "layers.*.feed_forward_norm": (f"{_LAYER}.norm2", "layers.*.post_mlp_layernorm"),
}
KEYS = bert.KEYS | {
    "hidden_size": ("hidden_size", "n_embd"),
    "num_layers": ("num_hidden_layers", "n_layer"),
    "num_heads": ("num_attention_heads", "n_head"),
    "intermediate_size": ("intermediate_size", "n_inner"),
    "max_positions": ("max_position_embeddings", "n_positions"),
    "layer_norm_eps": ("layer_norm_eps", "layer_norm_epsilon"),
    "dropout": ("hidden_dropout_prob", "resid_pdrop"),
    "attention_dropout": ("attention_probs_dropout_prob", "attn_pdrop"),
}
# Options of older files, and the only value of each that is supported.
_SUPPORTED = {
    "causal": False,
    "parallel_block": False,
    "prenorm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
}
_DENSE = {"activation_function": "swiglu", "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False}
_SPARSE = {"activation_function": "gelu", "mlp_fc1_bias": True, "mlp_fc2_bias": True, "qkv_proj_bias": True} | {
    "expert_choice_router": False,
    "ffn_div": 1,
    "moe_normalize_expert_weights": False,
    "num_shared_experts": 0,
}


def _read(raw: Fields, fields: Fields) -> Json:
    head = raw.get("head_dim")
    if head is not None and typed(head, int, "head_dim") * fields["num_heads"] != fields["hidden_size"]:
        raise ModelError(f"head_dim is {head}; expected hidden_size / num_attention_heads.")
    every = typed(raw.get("moe_every_n_layers") or 0, int, "moe_every_n_layers")
    check_supported(raw, _SPARSE if every > 0 else _DENSE)
    if every <= 0:
        return {}
    return {
        "model_type": "nomic_bert_moe",
        "gated": False,
        "hidden_act": "gelu",
        "attention_bias": True,
        "feed_forward_bias": True,
        "experts": typed(raw.get("num_experts", 8), int, "num_experts"),
        "experts_taken": typed(raw.get("moe_top_k", 2), int, "moe_top_k"),
        "expert_layers": tuple(layer for layer in range(min(fields["num_layers"], MAX_LAYERS)) if layer % every == 1),
    }


NOMIC_BERT = Family(
    "NomicBert",
    NAMES,
    ("", "nomic_bert.", "bert."),
    KEYS,
    defaults=ROTARY,
    supported=_SUPPORTED,
    read=_read,
    rotary=(Rope("rotary_emb_base", 1000.0),),
)


def _write_sparse(config: EncoderConfig) -> Json:
    first, second = (*config.expert_layers, 0, 0)[:2]
    every = second - first if second else max(config.num_layers * first, 1)
    named = {"model_type": "nomic_bert", "num_experts": config.experts, "moe_top_k": config.experts_taken}
    return {**_SPARSE, **named, "moe_every_n_layers": every}


NOMIC_BERT_MOE = dataclasses.replace(
    NOMIC_BERT,
    names={
        **NAMES,
        "layers.*.feed_forward": f"{_LAYER}.mlp.experts",
        "layers.*.feed_forward.router": f"{_LAYER}.mlp.router.layer",
        "layers.*.feed_forward.up": f"{_LAYER}.mlp.fc1",
        "layers.*.feed_forward.down": f"{_LAYER}.mlp.fc2",
    },
    write=_write_sparse,
)
