"""How far the vectors of random folders are from sentence-transformers': ours and keras-hub's, nothing timed.

    KERAS_BACKEND=jax python -m benchmarks.folders

sentence-transformers saves each folder, in its own spelling of today, and its vectors of one text at a time are what
the others are compared with. keras-hub gets the token ids and the mask, so that no tokenizer takes part; it is skipped
where it is not installed (extra `bench-more`). Errors are the largest difference of an entry of vectors of unit length.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np

from benchmarks.harness import flat, save
from jaxwhiten import Encoder
from jaxwhiten.errors import JaxwhitenError

WORDS = [f"w{number}" for number in range(300)]
SIZES = {
    "vocab_size": 320,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 160,
    "initializer_range": 0.1,
}
DECODER = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 1}
GEMMA = {"use_bidirectional_attention": True, "sliding_window": 16, "query_pre_attn_scalar": 16}
# Name -> transformers' class, its configuration, pooling, inner width of two dense layers, which unit length follows.
FOLDERS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "bert, mean": ("BertModel", SIZES, "mean", 0),
    "bert, cls": ("BertModel", SIZES, "cls", 0),
    "xlm-roberta, mean": ("XLMRobertaModel", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1}, "mean", 0),
    "xlm-roberta, cls": ("XLMRobertaModel", {**SIZES, "pad_token_id": 1, "type_vocab_size": 1}, "cls", 0),
    "gemma3_text, mean": ("Gemma3TextModel", DECODER, "mean", 0),
    "gemma3_text as EmbeddingGemma": ("Gemma3TextModel", {**DECODER, **GEMMA}, "mean", 96),
    "qwen3, lasttoken": ("Qwen3Model", DECODER, "lasttoken", 0),
    "qwen3, mean": ("Qwen3Model", DECODER, "mean", 0),
}
KERAS = {"bert": "BertTextEmbedder", "xlm-roberta": "XLMRobertaTextEmbedder"}
KERAS |= {"gemma3_text": "Gemma3TextEmbedder", "qwen3": "Qwen3TextEmbedder"}


def texts() -> list[str]:
    """Of 1 to 120 words."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=length)) for length in (1, 3, 8, 17, 40, 120)]


def write_model(
    kind: str, config: dict[str, Any], pooling: str, dense: int, folder: Path, prompts: dict[str, str]
) -> None:
    """A random model as transformers saves it, in plain/, and as sentence-transformers does, in model/."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    module = getattr(transformers, kind)
    model = module(module.config_class(**config))
    for parameter in model.parameters():  # norms and biases count, too
        parameter.data += 0.05 * torch.randn_like(parameter)
    plain = folder / "plain"
    model.save_pretrained(plain)
    ids = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=150
    ).save_pretrained(plain)
    width = model.config.hidden_size
    modules: list[Any] = [Transformer(str(plain)), Pooling(width, pooling)]
    if dense:
        identity = torch.nn.Identity()
        modules += [Dense(width, dense, False, identity), Dense(dense, width, False, identity), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", prompts=prompts).save(str(folder / "model"))


def reference(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(texts(), batch_size=1, show_progress_bar=False)


def of_jaxwhiten(folder: Path, name: str) -> np.ndarray:
    return Encoder.from_pretrained(folder).encode(texts())


def of_keras(folder: Path, name: str) -> np.ndarray:
    import keras_hub
    from transformers import AutoTokenizer

    embedder = getattr(keras_hub.models, KERAS[name.split(", ")[0].split(" ")[0]])
    rows = AutoTokenizer.from_pretrained(str(folder))(texts(), padding=True, return_tensors="np")
    inputs = {"token_ids": rows["input_ids"], "padding_mask": rows["attention_mask"]}
    if name.startswith("bert"):
        inputs["segment_ids"] = np.zeros_like(rows["input_ids"])
    return np.asarray(embedder.from_preset(str(folder), preprocessor=None).predict(inputs, verbose=0))


CONTESTANTS: dict[str, Callable[[Path, str], np.ndarray]] = {"jaxwhiten": of_jaxwhiten, "keras-hub": of_keras}


def error(vectors: np.ndarray, expected: np.ndarray) -> float | str:
    """Largest difference of the vectors scaled to unit length, or what is wrong with their shape."""
    if vectors.shape != expected.shape:
        return f"{vectors.shape[1]} dimensions, not {expected.shape[1]}"
    unit = [x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True) for x in (vectors, expected)]
    return float(np.abs(unit[0] - unit[1]).max())


def measure(name: str) -> dict[str, float | str]:
    """The error of each contestant on one folder, or why it has none."""
    errors: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_model(*FOLDERS[name], Path(scratch), {})
        folder = Path(scratch) / "model"
        expected = reference(folder)
        errors["sentence-transformers, in a batch"] = error(_batched(folder), expected)
        for contestant, encode in CONTESTANTS.items():
            try:
                errors[contestant] = error(encode(folder, name), expected)
            except ImportError as missing:
                errors[contestant] = f"skipped: {missing}"
            except JaxwhitenError as refusal:
                errors[contestant] = f"refused: {refusal}".replace(str(folder), "")
            except Exception as failure:  # of a peer, to be reported
                errors[contestant] = f"{type(failure).__name__}: {failure}".replace(str(folder), "")[:300]
    return errors


def _batched(folder: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(texts(), show_progress_bar=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folders", default=",".join(FOLDERS).replace(", ", "; "), help="names separated by commas")
    args = parser.parse_args()
    names = [name.strip().replace("; ", ", ") for name in args.folders.split(",")]
    rows = {name: measure(name) for name in names}
    columns = list(next(iter(rows.values())))
    print(f"\n{'folder':32}" + "".join(f"{column:>36}" for column in columns))
    for name, row in rows.items():
        cells = (f"{x:.1e}" if isinstance(x, float) else x[:34] for x in row.values())
        print(f"{name:32}" + "".join(f"{cell:>36}" for cell in cells))
    save("folders", flat(rows, "folder"))


if __name__ == "__main__":
    main()
