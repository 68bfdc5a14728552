"""EuroBERT: Llama's layers, bidirectional, with shared heads of keys and values.

References:
  Boizard et al. 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages", section 2.1.
"""

from __future__ import annotations

from jaxwhiten.models import qwen3
from jaxwhiten.models.config import read_rotary, write_rotary
from jaxwhiten.models.family import Family

EUROBERT = Family(
    "EuroBert",
    qwen3.NAMES,
    ("", "model."),
    qwen3.KEYS | {"feed_forward_bias": "mlp_bias"},
    defaults=qwen3.DEFAULTS | {"layer_norm_eps": 1e-5, "pad_token_id": 128001},
    read=lambda raw, _: read_rotary(raw, None, "rope_theta", 10_000.0, qwen3.SCALINGS),
    write=write_rotary,
)
