"""Encoders of 2026 at their published sizes, with random weights: throughput, memory and agreement on a CPU.

    python -m benchmarks.sizes [--models NAME ...] [--rounds 2] [--texts 48]

A folder in bfloat16 as sentence-transformers saves it, with the published configuration, pooling and dense layers; the
tokenizer knows 300 words. Every contestant of every round has a process of its own, in rotated order, and encodes the
same texts of 6 to 120 words twice after one call that is not timed. Memory is the peak of the process, beside the size
of the weights in the folder. The cosine is the least one to sentence-transformers in float32.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

QWEN = {
    "vocab_size": 151_669,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "rope_theta": 1_000_000,
}
GEMMA = {
    "vocab_size": 262_144,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 24,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_position_embeddings": 2048,
    "sliding_window": 512,
    "query_pre_attn_scalar": 256,
    "use_bidirectional_attention": True,
}
# Name -> transformers' class, its configuration, pooling, inner width of the dense layers, which unit length follows.
MODELS: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "Qwen3-Embedding-0.6B": ("Qwen3Model", QWEN, "lasttoken", 0),
    "embeddinggemma-300m": ("Gemma3TextModel", GEMMA, "mean", 3072),
}
PEER = "sentence-transformers, float32"
Encode = Callable[[list[str]], np.ndarray]


def of_jaxwhiten(folder: Path, dtype: str, engine: str = "auto") -> Encode:
    from jaxwhiten import Encoder

    return Encoder.from_pretrained(folder, dtype=dtype, engine=engine).encode


def of_peer(folder: Path, dtype: str) -> Encode:
    import torch
    from sentence_transformers import SentenceTransformer

    model_kwargs = {"dtype": getattr(torch, dtype), "attn_implementation": "sdpa"}
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs=model_kwargs)
    return lambda texts: model.encode(texts, show_progress_bar=False)


CONTESTANTS: dict[str, Callable[[Path], Encode]] = {
    "jaxwhiten, float32": lambda folder: of_jaxwhiten(folder, dtype="float32"),
    "jaxwhiten, bfloat16": lambda folder: of_jaxwhiten(folder, dtype="bfloat16"),
    "jaxwhiten, engine openvino, float32": lambda folder: of_jaxwhiten(folder, engine="openvino", dtype="float32"),
    "jaxwhiten, engine openvino, bfloat16": lambda folder: of_jaxwhiten(folder, engine="openvino", dtype="bfloat16"),
    PEER: lambda folder: of_peer(folder, "float32"),
    "sentence-transformers, bfloat16": lambda folder: of_peer(folder, "bfloat16"),
}


def texts(number: int) -> list[str]:
    from benchmarks.folders import WORDS

    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=min(120, 6 + int(draw.expovariate(1 / 24))))) for _ in range(number)]


def write(name: str, scratch: Path) -> Path:
    """The folder of a model, its weights in bfloat16."""
    import torch
    from safetensors.torch import load_file, save_file

    from benchmarks.folders import write_model

    kind, config, pooling, dense = MODELS[name]
    write_model(kind, {**config, "pad_token_id": 1}, pooling, dense, scratch, {})
    for path in (scratch / "model").rglob("*.safetensors"):
        save_file({key: x.to(torch.bfloat16) for key, x in load_file(path).items()}, path, {"format": "pt"})
    path = scratch / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": "bfloat16"}))
    return scratch / "model"


def child(name: str, folder: Path, number: int) -> None:
    """One contestant: what it measured as JSON, its vectors beside the folder."""
    from eval.machine import peak_memory

    start = time.perf_counter()
    encode = CONTESTANTS[name](folder)
    rows = texts(number)
    loaded = time.perf_counter() - start
    peak = peak_memory()
    np.save(folder.parent / f"{name}.npy", encode(rows))
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        encode(rows)
        seconds.append(time.perf_counter() - start)
    figures = {"load_seconds": loaded, "loaded_gb": peak, "peak_gb": peak_memory(), "seconds": seconds}
    print(json.dumps(figures), flush=True)


def measure(name: str, rounds: int, number: int) -> dict[str, Any]:
    from benchmarks.harness import median, ratio, rotated

    with tempfile.TemporaryDirectory() as scratch:
        folder = write(name, Path(scratch))
        seconds = dict[str, list[float]]()
        weights = sum(path.stat().st_size for path in folder.rglob("*.safetensors")) / 1e9
        tokens = sum(len(text.split()) + 2 for text in texts(number))
        figures: dict[str, Any] = {}
        for start in range(rounds):
            for contestant in rotated(list(CONTESTANTS), start):
                words = [sys.executable, "-m", "benchmarks.sizes", "--child", contestant, str(folder)]
                result = subprocess.run([*words, "--texts", str(number)], capture_output=True, text=True)
                if result.returncode:
                    figures[contestant] = {"refused": result.stderr.strip().splitlines()[-1][-300:]}
                    continue
                row = json.loads(result.stdout.splitlines()[-1])
                seconds.setdefault(contestant, []).extend(row.pop("seconds"))
                peak = figures.setdefault(contestant, row)
                peak |= {key: max(peak[key], row[key]) for key in row}
        expected = np.load(folder.parent / f"{PEER}.npy").astype(np.float64)
        for contestant, times in seconds.items():
            x = np.load(folder.parent / f"{contestant}.npy").astype(np.float64)
            norms = np.linalg.norm(x, axis=1) * np.linalg.norm(expected, axis=1)
            figures[contestant] |= {
                "tokens_per_second": tokens / median(times),
                "of_the_peer": ratio(seconds, contestant, PEER),
                "cosine": float(((x * expected).sum(1) / norms).min()),
            }
            row = figures[contestant]
            print(
                f"{name}: {contestant}: {row['tokens_per_second']:.0f} tokens/s, {row['of_the_peer']['median']:.2f}"
                f" times the peer's; loaded {row['loaded_gb']:.1f} GB, peak {row['peak_gb']:.1f} GB,"
                f" cosine {row['cosine']:.5f}"
            )
    return {"weights_gb": weights, "tokens": tokens, "contestants": figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", type=int, default=48)
    parser.add_argument("--child", nargs=2, metavar=("CONTESTANT", "FOLDER"), help="one contestant, in this process")
    args = parser.parse_args()
    if args.child:
        child(args.child[0], Path(args.child[1]), args.texts)
        return
    from benchmarks.harness import flat, save

    models = {name: measure(name, args.rounds, args.texts) for name in args.models}
    figures = {name: model.pop("contestants") for name, model in models.items()}
    save("sizes", flat(figures, "model", "contestant"), models=models)


if __name__ == "__main__":
    main()
