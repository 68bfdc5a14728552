"""What holds of each encoder family, on random models beside transformers and sentence-transformers; nothing is timed.

    python -m benchmarks.families

For every family of the registry sentence-transformers saves a random folder with a prompt and the pooling of the
family's best-known members. Hidden states are compared with transformers' in one padded batch, vectors with those of
`SentenceTransformer` on the same folder, without and with the prompt, on each engine in float32. Families whose module
transformers has not are compared with the golden vectors of the repository instead.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import folders
from benchmarks.harness import RESULTS, save
from eval.runs import Run
from jaxwhiten import Encoder
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.models import FAMILIES, load_model
from jaxwhiten.training import (
    TrainingOptions,
    create_state,
    data_mesh,
    make_step,
    objective_loss,
    place_batch,
    sentence_loss,
    split_encoder,
)
from tests.golden import cases
from train.masked import FORMS

_SMALL = {**folders.SIZES, "pad_token_id": 1}
_DISTILBERT = {"vocab_size": 320, "dim": 48, "n_layers": 4, "n_heads": 4, "hidden_dim": 96, "pad_token_id": 1}
_T5 = {"vocab_size": 320, "d_model": 48, "d_kv": 7, "d_ff": 96, "num_layers": 5, "num_heads": 6, "pad_token_id": 1}
_WINDOW = {"sliding_window": 16, "num_hidden_layers": 7}
# Family -> transformers' class, its configuration, pooling, names on the hub that are known to be of the family.
MODELS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "bert": ("BertModel", _SMALL, "mean", "bert-base-uncased, all-MiniLM-L6-v2, bge-base-en-v1.5, e5-base-v2"),
    "roberta": ("RobertaModel", _SMALL, "mean", "roberta-base, all-distilroberta-v1, sup-simcse-roberta-base"),
    "xlm-roberta": ("XLMRobertaModel", _SMALL, "cls", "bge-m3, snowflake-arctic-embed-l-v2.0, multilingual-e5-large"),
    "electra": ("ElectraModel", {**_SMALL, "embedding_size": 32}, "mean", "electra-base-discriminator"),
    "distilbert": ("DistilBertModel", _DISTILBERT, "mean", "distilbert-base-uncased, msmarco-distilbert-base-v4"),
    "albert": ("AlbertModel", {**_SMALL, "embedding_size": 32}, "mean", "albert-base-v2, paraphrase-albert-small-v2"),
    "mpnet": ("MPNetModel", {**_SMALL, "max_position_embeddings": 180}, "mean", "all-mpnet-base-v2"),
    "modernbert": (
        "ModernBertModel",
        {**_SMALL, "num_hidden_layers": 7, "local_attention": 16},
        "cls",
        "gte-modernbert-base, mmBERT-base, granite-embedding-english-r2",
    ),
    "nomic_bert": ("NomicBertModel", _SMALL, "mean", "nomic-embed-text-v1.5"),
    "nomic_bert_moe": ("", {}, "mean", "nomic-embed-text-v2-moe"),
    "qwen3": ("Qwen3Model", folders.DECODER, "lasttoken", "Qwen3-Embedding-0.6B, harrier 0.6b"),
    "bidirectional_pplx_qwen3": ("Qwen3Model", {**folders.DECODER, "is_causal": False}, "mean", "pplx-embed-v1"),
    "gemma3_text": (
        "Gemma3TextModel",
        {**folders.DECODER, **folders.GEMMA, **_WINDOW},
        "mean",
        "embeddinggemma-300m, harrier 270m",
    ),
    "t5": ("T5EncoderModel", _T5, "mean", "sentence-t5-base, gtr-t5-base"),
    "t5_v1_1": ("T5EncoderModel", {**_T5, "feed_forward_proj": "gated-gelu"}, "mean", "t5-v1_1-base, flan-t5-base"),
    "mt5": ("MT5EncoderModel", _T5, "mean", "mt5-base"),
    "eurobert": ("EuroBertModel", folders.DECODER, "mean", "EuroBERT-210m, jina-v5-nano with its LoRA merged"),
    "gte": ("GteModel", _SMALL, "cls", "gte-multilingual-base, in transformers' form"),
    "new": ("GteModel", _SMALL, "cls", "gte-multilingual-base, snowflake-arctic-embed-m-v2.0"),
    "jina_embeddings_v3": ("JinaEmbeddingsV3Model", _SMALL, "mean", "jina-embeddings-v3 without its tasks' LoRA"),
    "ministral3": ("Ministral3Model", {**folders.DECODER, "is_causal": False}, "mean", "Nemotron-3-Embed"),
}
NAMED_ALIKE = {"bidirectional_pplx_qwen3": "qwen3", "new": "gte"}  # transformers saves those names
PROMPT = "w1 w2 w3 "


def measure(name: str) -> dict[str, Any]:
    """All that the table says of a family."""
    architecture, config, pooling, hub = MODELS[name]
    family = FAMILIES[name]
    heads = [("ForMaskedLM", name in FORMS), ("ForSequenceClassification", family.pairs)]
    row: dict[str, Any] = {"pooling": pooling, "hub": hub}
    row["architectures"] = [family.stem + task for task, form in [("Model", True), *heads] if form]
    row["golden"] = [case for case in cases.CASES if _family_of(case) == name]
    with tempfile.TemporaryDirectory() as scratch:
        if architecture:
            folders.write_model(architecture, config, pooling, 0, Path(scratch), {"query": PROMPT})
            folder = Path(scratch) / "model"
            expected = _hidden_states(Path(scratch) / "plain")
            vectors = _vectors(folder)
            _rename(folder, name)
            row |= {"against": "transformers", "states": _states_error(folder, *expected)}
            row["engines"] = {engine: _engine_error(folder, engine, vectors) for engine in ("jax", "openvino")}
        else:
            folder = cases.write_checkpoint(Path(scratch), row["golden"][0])
            row |= {"against": "golden vectors", "states": _golden_error(folder, row["golden"][0]), "engines": {}}
        row["training"] = train(folder)
    return row


@functools.cache
def _family_of(case: str) -> str:
    """The family that a golden case is read as."""
    facts = cases.metadata(cases.FAMILIES_FILE)["cases"][case]["config"]
    return FAMILIES[facts["model_type"]].parse_config(facts).model_type


def _rename(folder: Path, name: str) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["model_type"] == NAMED_ALIKE.get(name):
        path.write_text(json.dumps({**config, "model_type": name}), encoding="utf-8")


def _hidden_states(folder: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """transformers' of all texts in one batch, padded on the right."""
    import torch
    import transformers

    rows = transformers.AutoTokenizer.from_pretrained(str(folder))(folders.texts(), padding=True, return_tensors="pt")
    inputs = {key: rows[key] for key in ("input_ids", "attention_mask")}
    architecture = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    model = getattr(transformers, architecture).from_pretrained(str(folder), attn_implementation="eager").eval()
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    return {key: value.numpy() for key, value in inputs.items()}, [x.numpy() for x in states]


def _states_error(folder: Path, inputs: dict[str, np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference of any hidden state of any layer, as a share of the layer's largest where above 1."""
    model = load_model(folder)[0]
    states = model(**{key: jnp.asarray(value) for key, value in inputs.items()}).hidden_states
    mask = inputs["attention_mask"] > 0
    pairs = [(np.asarray(a)[mask], b[mask]) for a, b in zip(states, expected, strict=True)]
    return float(max(np.abs(a - b).max() / max(1.0, np.abs(b).max()) for a, b in pairs))


def _golden_error(folder: Path, case: str) -> float:
    model, config, _ = load_model(folder)
    inputs = {key: jnp.asarray(value) for key, value in cases.inputs(case, config.pad_token_id).items()}
    mask = np.asarray(inputs["attention_mask"])
    result = model(**inputs)
    outputs = dict(cases.outputs(mask, result.hidden_states, (), None))
    golden = cases.golden(case)
    return float(max(np.abs(x - golden[key]).max() / max(1.0, np.abs(golden[key]).max()) for key, x in outputs.items()))


def _vectors(folder: Path) -> list[np.ndarray]:
    """sentence-transformers' of each text alone, without and with the prompt."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return [
        model.encode(folders.texts(), prompt_name=name, batch_size=1, show_progress_bar=False)
        for name in (None, "query")
    ]


def _engine_error(folder: Path, engine: str, expected: list[np.ndarray]) -> float | str:
    try:
        encoder = Encoder.from_pretrained(folder, engine=engine, dtype="float32")
        vectors = [encoder.encode(folders.texts(), prompt_name=name) for name in (None, "query")]
    except JaxwhitenError as refusal:
        return f"refused: {refusal}".replace(str(folder), "")
    errors = [folders.error(a, b) for a, b in zip(vectors, expected, strict=True)]
    return max(error for error in errors if isinstance(error, float))


def train(folder: Path) -> str:
    """Three steps with in-batch negatives on one batch: whether the loss falls, and how many tensors move."""
    model = load_model(folder)[0]
    encoder, rebuild = split_encoder(model, "mean")
    options = TrainingOptions(steps=3, batch_size=8, learning_rate=1e-3, warmup=0.0)
    mesh = data_mesh(options)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 40, (8, 2, 10)).astype(np.int32)
    batch = place_batch({"input_ids": ids, "lengths": np.full((8, 2), 10, np.int32)}, mesh)
    state = create_state({"encoder": encoder, "head": {}}, options, mesh)
    before = [np.asarray(x) for x in jax.tree.leaves(nnx.to_pure_dict(encoder))]
    step = make_step(sentence_loss(rebuild, objective_loss("mnr")), options, mesh)
    losses = []
    for _ in range(3):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    after = jax.tree.leaves(nnx.to_pure_dict(state.params["encoder"]))
    moved = sum(bool(np.abs(np.asarray(b) - a).max() > 0) for a, b in zip(before, after, strict=True))
    if not losses[-1] < losses[0]:
        return f"the loss does not fall: {losses[0]:.4f} to {losses[-1]:.4f}"
    return f"{moved} of {len(before)} tensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--families", default=",".join(FAMILIES), help="separated by commas; rows of others stay")
    file = RESULTS / "families.jsonl"
    for name in parser.parse_args().families.split(","):
        row = measure(name)
        print(name, json.dumps(row), flush=True)
        earlier = {}
        if file.is_file():
            earlier = {row.family: row for row in Run.load(file).rows}
        merged = earlier | {name: {"family": name, **row}}
        save("families", [merged[name] | {"hub": MODELS[name][3]} for name in FAMILIES if name in merged])


if __name__ == "__main__":
    main()
