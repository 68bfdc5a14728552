"""Jina embeddings v3: XLM-RoBERTa's layers with rotary positions; files that list LoRA tasks are refused.

References:
  Sturua et al. 2024, "jina-embeddings-v3: Multilingual Embeddings With Task LoRA", section 3.
"""

from __future__ import annotations

from jaxwhiten.models import bert
from jaxwhiten.models.config import read_rotary, write_rotary
from jaxwhiten.models.family import THIRDS, Family, Names, Part

_LAYER = "encoder.layers.*"
NAMES: Names = {
    **bert.EMBEDDING_NAMES,
    "embeddings.norm": "emb_ln",
    **{f"layers.*.attention.{name}": Part(f"{_LAYER}.mixer.Wqkv", *part) for name, part in THIRDS.items()},
    "layers.*.attention.output": f"{_LAYER}.mixer.out_proj",
    "layers.*.attention_norm": f"{_LAYER}.norm1",
    "layers.*.feed_forward.up": f"{_LAYER}.mlp.fc1",
    "layers.*.feed_forward.down": f"{_LAYER}.mlp.fc2",
    "layers.*.feed_forward_norm": f"{_LAYER}.norm2",
    "pooler": "pooler.dense",
}
DEFAULTS = {"type_vocab_size": 1, "learned_positions": False, "layer_norm_eps": 1e-5, "pad_token_id": 1}
JINA_V3 = Family(
    "JinaEmbeddingsV3",
    NAMES,
    ("", "roberta."),
    bert.KEYS,
    bert.ROBERTA_MASKED,
    None,
    DEFAULTS,
    {"lora_adaptations": None},
    lambda raw, _: read_rotary(raw, None, "rope_theta", 20_000.0),
    write_rotary,
)
