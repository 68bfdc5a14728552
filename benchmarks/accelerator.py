"""All that is to be measured on a machine with a GPU or a TPU, in one command and under ten minutes.

    python -m benchmarks.accelerator [--quick] [--seconds 600]

1. Vectors of real weights on the device beside those of the CPU, float32 and bfloat16, short and long texts.
2. Sentences a second in bfloat16 beside sentence-transformers, SDPA and FlashAttention 2, batches of 32 and 256
   (`benchmarks.encode` has the share of the device's matmul rate).
3. The benchmarks of search and training, each in a process of its own.

A part that cannot run, such as a peer that is not installed, is reported and left out; nothing else fails for it. On a
CPU everything runs too, which shows that the command works, and nothing of an accelerator. `--quick` takes few
sentences.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks.harness import interleave, median, ratio, save
from jaxwhiten import Encoder
from jaxwhiten.datasets import load_sts
from jaxwhiten.runtime import hardware

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
BATCHES = (32, 256)


def sentences(count: int) -> list[str]:
    """Sentences of sts_sample, over again."""
    pairs = load_sts("sts_sample").splits["test"]
    texts = [*pairs.sentence1, *pairs.sentence2]
    return (texts * -(-count // len(texts)))[:count]


def parity(texts: list[str]) -> dict[str, float]:
    """Largest difference from the CPU's float32 vectors, relative to their largest component.

    Long texts are ones whose attention a kernel computes (`jaxwhiten.models.attention`), in bfloat16.
    """
    encoders = {dtype: Encoder.from_pretrained(MODEL, dtype=dtype) for dtype in ("float32", "bfloat16")}
    cpu = Encoder.from_pretrained(MODEL, device="cpu")
    found = {}
    for kind, chosen in {"": texts, ", long": [" ".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]}.items():
        expected = cpu.encode(chosen, show_progress=False)
        for dtype, encoder in encoders.items():
            vectors = encoder.encode(chosen, show_progress=False)
            found[dtype + kind] = float(np.abs(vectors - expected).max() / np.abs(expected).max())
    return found


def encode(texts: list[str], rounds: int) -> dict[str, Any]:
    """Rates beside sentence-transformers on the same kind of device."""
    encoder = Encoder.from_pretrained(MODEL, dtype="bfloat16")
    contestants: dict[str, Callable[[], object]] = {"jaxwhiten": lambda: encoder.encode(texts, show_progress=False)}
    left_out = {}
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        left_out["sentence-transformers"] = str(error)
    else:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        for attention in ("sdpa", "flash_attention_2"):
            try:
                how = {"attn_implementation": attention, "dtype": torch.bfloat16}
                model = SentenceTransformer(MODEL, device=device, model_kwargs=how)
                model.encode(texts[:32], show_progress_bar=False)
            except Exception as error:
                left_out[f"sentence-transformers, {attention}"] = f"{type(error).__name__}: {error}"[:200]
                continue
            for size in BATCHES:
                contestants[f"sentence-transformers, {attention}, {size}"] = lambda model=model, size=size: (
                    model.encode(texts, batch_size=size, show_progress_bar=False)
                )
    seconds = interleave(contestants, rounds)
    return {
        "left_out": left_out,
        "sentences_per_second": {name: len(texts) / median(of) for name, of in seconds.items()},
        "ratio": {name: ratio(seconds, "jaxwhiten", name) for name in contestants if name != "jaxwhiten"},
    }


def program(name: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    """Another benchmark, which writes its own results."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return {"left_out": "there was no time for it"}
    return {"code": done.returncode, "said": (done.stdout if done.returncode == 0 else done.stderr)[-2000:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few sentences, and no other benchmark")
    parser.add_argument("--seconds", type=float, default=600, help="after which nothing further is started")
    args = parser.parse_args()
    start, few = time.monotonic(), args.quick or jax.default_backend() == "cpu"
    many, rounds = (64, 1) if args.quick else (2_000, 2) if few else (200_000, 3)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "parity": lambda: parity(sentences(min(many, 780))),
        "encode": lambda: encode(sentences(many), rounds),
    }
    if not args.quick:
        small = ["--documents", "20000", "--queries", "2000", "--rounds", "1"]
        others = {"search_scale": small if few else ["--rounds", "1"], "train_throughput": ["--rounds", "1"]}
        for name, arguments in others.items():
            parts[name] = lambda name=name, arguments=arguments: program(
                name, arguments, args.seconds - (time.monotonic() - start)
            )
    results: dict[str, Any] = {"device": hardware.describe(), "kind": jax.devices()[0].device_kind}
    for name, run in parts.items():
        if time.monotonic() - start > args.seconds:
            results[name] = {"left_out": "there was no time for it"}
            continue
        try:
            results[name] = run()
        except Exception as error:  # the other parts are worth having
            results[name] = {"left_out": f"{type(error).__name__}: {error}"[:500]}
        print(f"{name}: {results[name]}", flush=True)
    save("accelerator", results)


if __name__ == "__main__":
    main()
