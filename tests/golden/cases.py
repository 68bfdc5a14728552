"""What the golden files were made of: encoder configurations, weights that NumPy makes again, inputs, sentences."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

FOLDER = Path(__file__).resolve().parent
FAMILIES_FILE = FOLDER / "families.safetensors"
SENTENCES_FILE = FOLDER / "sentences.safetensors"

# Heads are half as wide as the hidden states, and the layer norm's epsilon is large, so that either shows when wrong.
_SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "layer_norm_eps": 0.02,
}
_DISTILBERT = {
    "vocab_size": 40,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 2,
    "hidden_dim": 24,
    "max_position_embeddings": 24,
}
_MODERNBERT = {
    **{name: size for name, size in _SIZES.items() if name != "layer_norm_eps"},
    "norm_eps": 0.02,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "local_attention": 4,
}
_QWEN3 = {
    **{name: size for name, size in _SIZES.items() if name != "layer_norm_eps"},
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "rms_norm_eps": 0.02,
    "pad_token_id": 12,  # also a token of sentences, as the end of a sentence is of published models
}
_SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
_GEMMA3 = {
    **{name: size for name, size in _QWEN3.items() if name != "num_hidden_layers"},
    "num_hidden_layers": 4,
    "query_pre_attn_scalar": 10,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 400.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    },
}
_T5 = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 3,
    "num_heads": 3,
    "layer_norm_epsilon": 0.02,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 60,
}
# Keys of the published file; transformers has no experts in this family, `make.py` adds them.
_EXPERTS = {
    "num_experts": 4,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
    "activation_function": "gelu",
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "qkv_proj_bias": True,
    "num_shared_experts": 0,
}
_ROPE = {"rope_type": "default", "rope_theta": 50.0}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 50.0,
    "factor": 4.0,
    "original_max_position_embeddings": 4,
    "beta_fast": 2.0,
    "beta_slow": 0.1,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "llama_4_scaling_beta": 0.3,
}
# Popular members of families, narrower and with fewer layers.
_BGE_M3 = {**_SIZES, "num_hidden_layers": 4, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
_DEEP = {**_MODERNBERT, "num_hidden_layers": 7, "num_attention_heads": 1}
_MMBERT = {f"{kind}_attention": {"rope_type": "default", "rope_theta": 160_000.0} for kind in ("full", "sliding")}
# Name of the case -> transformers' class and its configuration.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", _SIZES),
    "bert, gelu_new": ("BertModel", {**_SIZES, "hidden_act": "gelu_new", "num_attention_heads": 4}),
    "bert, relu": ("BertModel", {**_SIZES, "hidden_act": "relu", "layer_norm_eps": 1e-12}),
    "roberta": ("RobertaModel", {**_SIZES, "type_vocab_size": 1}),
    "roberta, other padding": ("RobertaModel", {**_SIZES, "pad_token_id": 3}),
    "xlm-roberta": ("XLMRobertaModel", {**_SIZES, "type_vocab_size": 1}),
    "electra": ("ElectraModel", {**_SIZES, "embedding_size": 16}),
    "electra, narrow embeddings": ("ElectraModel", {**_SIZES, "embedding_size": 8}),
    "distilbert": ("DistilBertModel", _DISTILBERT),
    "albert": ("AlbertModel", {**_SIZES, "embedding_size": 8}),
    "albert, two groups": ("AlbertModel", {**_SIZES, "num_hidden_groups": 2, "embedding_size": 16}),
    "mpnet": ("MPNetModel", {**_SIZES, "max_position_embeddings": 160}),
    "modernbert": ("ModernBertModel", _MODERNBERT),
    "modernbert, biases": (
        "ModernBertModel",
        {**_MODERNBERT, "norm_bias": True, "mlp_bias": True, "attention_bias": True, "hidden_activation": "silu"},
    ),
    "nomic_bert": ("NomicBertModel", _SIZES),
    "qwen3": ("Qwen3Model", {**_QWEN3, **_SLIDING, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "qwen3, bidirectional": ("Qwen3Model", {**_QWEN3, **_SLIDING, "attention_bias": True, "is_causal": False}),
    "gemma3_text": ("Gemma3TextModel", _GEMMA3),
    "gemma3_text, bidirectional": ("Gemma3TextModel", {**_GEMMA3, "use_bidirectional_attention": True}),
    "t5": ("T5EncoderModel", _T5),
    "t5, version 1.1": ("T5EncoderModel", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "mt5": ("MT5EncoderModel", _T5),
    "eurobert": ("EuroBertModel", {**_QWEN3, "rms_norm_eps": 0.02, "mlp_bias": True, "rope_parameters": _ROPE}),
    "gte": ("GteModel", {**_SIZES, "rope_parameters": _ROPE}),
    "nomic_bert, experts": ("NomicBertModel", {**_SIZES, **_EXPERTS}),
    "xlm-roberta, as bge-m3, multilingual-e5 and arctic-l-v2": ("XLMRobertaModel", _BGE_M3),
    "modernbert, as gte-modernbert": ("ModernBertModel", _DEEP),
    "modernbert, as mmBERT": ("ModernBertModel", {**_DEEP, "rope_parameters": _MMBERT}),
    "ministral3": ("Ministral3Model", {**_QWEN3, "rope_parameters": _YARN, "is_causal": False}),
    "jina_embeddings_v3": ("JinaEmbeddingsV3Model", {**_SIZES, "rope_parameters": _ROPE}),
}
TOKEN_TYPES = ("bert", "roberta, other padding", "electra", "albert", "nomic_bert")

# Models with real weights -> the poolings whose vectors of `SENTENCES` are kept.
REAL_MODELS: dict[str, tuple[str, ...]] = {
    "jaxwhiten-tiny": ("cls", "mean", "first_last_avg"),
    "sentence-transformers/all-MiniLM-L6-v2": ("mean",),
}
MAX_LENGTH = 32
SENTENCES = (
    "The kettle began to whistle before anyone had found the cups.",
    "Nobody remembers who planted the walnut tree behind the school.",
    "Tickets for the late ferry sell out on summer weekends.",
    "She read the contract twice and signed it without a word.",
    "A faulty relay stopped every train between the two cities.",
    "Rain.",
    "How long does it take to boil an egg at 3,000 metres?",
    "The museum closes at 17:30, but the café stays open until eight.",
    "Our neighbour's dog barks whenever the postman rings.",
    "Protein folding is, in part, a search for the lowest free energy.",
    "He whispered “not now” and closed the door.",
    "The committee's report, 240 pages long, recommends no change at all.",
    "Goats climbed the ruined wall to reach the fig leaves.",
    "Is there a bakery near the station that opens before six?",
    "Interest rates rose by half a percentage point in March.",
    "The violinist tuned her instrument while the hall was still empty.",
    "Email me at the usual address if the parcel has not arrived by Friday.",
    "Over the winter the river froze, thawed, flooded the lower meadows and froze again, and the farmers who had moved"
    " their hay to the upper barn in good time were the only ones who did not have to buy feed from the valley.",
    "ÜBERMUT tut selten gut.",
    "Two plus two is four; two times two is four as well.",
)


def weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """The tensors of a random checkpoint, the same on every machine: only raw bits of a generator are used.

    Matrices are wide enough that attention is far from uniform; embeddings are small enough that an epsilon shows.

    Args:
      shapes: Shape of each tensor by its name in the checkpoint.
    """
    tensors = {}
    for name, shape in shapes.items():
        bits = np.random.PCG64(zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
        uniform = (bits >> np.uint64(11)).astype(np.float64) / 2**52 - 1  # -1 to 1
        if len(shape) == 1:
            values = 0.3 * uniform + (1.0 if name.endswith("weight") else 0.0)
        else:
            values = uniform * (0.05 if "embeddings.weight" in name else 2.0 if "bias" in name else 0.6)
        tensors[name] = values.reshape(shape).astype(np.float32)
    return tensors


def inputs(case: str, pad: int) -> dict[str, np.ndarray]:
    """Ids, mask and, for the families that have them, token types; padding on the right of all rows but one."""
    length = 150 if case in ("mpnet", "t5") else 11  # beyond every boundary of the relative buckets
    lengths = np.array([length, 1, length // 2, length - 1])[:, None]
    position = np.arange(length)
    ids = 5 + (7 * position + 11 * np.arange(4)[:, None] ** 2 + position**2 // 3) % 35
    mask = (position < lengths).astype(np.int64)
    found = {"input_ids": np.where(mask, ids, pad), "attention_mask": mask}
    if case in TOKEN_TYPES:
        found["token_type_ids"] = (position >= lengths // 2).astype(np.int64)
    return found


def kept(mask: np.ndarray, states: np.ndarray) -> np.ndarray:
    """The states of the tokens that a golden file keeps: all of short rows, every seventeenth of long ones."""
    return states[mask > 0][:: 17 if mask.shape[1] > 100 else 1]


def outputs(
    mask: np.ndarray,
    hidden_states: Sequence[np.ndarray],
    pooler: np.ndarray | None,
) -> Iterator[tuple[str, np.ndarray]]:
    """What is kept of an encoder's output, by name."""
    for layer, states in enumerate(hidden_states):
        yield f"hidden state {layer}", kept(mask, np.asarray(states))
    if pooler is not None:
        yield "pooler", np.asarray(pooler)


@functools.cache
def metadata(path: Path) -> dict[str, Any]:
    """What a golden file says of itself: the versions that made it and, of families, their checkpoints."""
    with safe_open(path, framework="numpy") as file:
        return {name: json.loads(text) for name, text in file.metadata().items()}


@functools.cache
def golden(case: str) -> dict[str, np.ndarray]:
    """The outputs of a case's encoder, by the names of `outputs`."""
    tensors = load_file(FAMILIES_FILE)
    return {name.split("/")[1]: value for name, value in tensors.items() if name.split("/")[0] == case}


def write_checkpoint(folder: Path, case: str) -> Path:
    """Writes `config.json` and `model.safetensors` of a case as transformers does; needs no PyTorch."""
    facts = metadata(FAMILIES_FILE)["cases"][case]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(facts["config"]))
    save_file(weights(facts["shapes"]), folder / "model.safetensors", metadata={"format": "pt"})
    return folder
