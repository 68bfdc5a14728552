"""All that is to be measured on a machine with a GPU or a TPU, in one command and under ten minutes.

    python -m benchmarks.accelerator [--only parity,codes,encode,train_throughput,whitening_fit,search_scale]

- `parity`: vectors of real weights on the device beside those of the CPU, float32 and bfloat16, short and long texts.
- `codes`: a million vectors coded in 48 bytes, and searched exactly as codes, beside FAISS on the CPU.
- The others are benchmarks of their own, with arguments that suit an accelerator. Where PyTorch, sentence-transformers
  and the GPU build of FAISS are installed, they run on the same device.

Each runs in a process of its own, since JAX keeps most of a GPU's memory until its process ends, and writes its own
results. One that cannot run is reported, and the others follow. On a CPU everything runs with few rows, which shows
that the command works, and nothing of an accelerator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.harness import interleave, median, ratio, save

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# What each benchmark is given, on an accelerator and on a CPU.
OTHERS = {
    "encode": ("--tokens 200000 --rounds 3", "--tokens 2000 --rounds 1 --no-base"),
    "train_throughput": ("--rows 5000 --batch-size 128 --rounds 3", "--rows 64 --steps 2 --rounds 1"),
    "whitening_fit": ("--rounds 3", "--rows 4000 --width 64 --rounds 1"),
    "search_scale": (
        "--queries 100000 --rounds 3",
        "--documents 3000 --queries 3000 --sample 50 --rounds 1 --slices 2",
    ),
}


def sentences(count: int) -> list[str]:
    """Sentences of sts_sample, over again."""
    from jaxwhiten.datasets import load_sts

    pairs = load_sts("sts_sample").splits["test"]
    texts = [*pairs.sentence1, *pairs.sentence2]
    return (texts * -(-count // len(texts)))[:count]


def parity(few: bool) -> dict[str, Any]:
    """Largest difference from the CPU's float32 vectors, relative to their largest component, and least cosine.

    Long texts are ones whose attention a kernel computes (`jaxwhiten.models.attention`), in bfloat16.
    """
    from jaxwhiten import Encoder, metrics

    texts = sentences(64 if few else 780)
    encoders = {dtype: Encoder.from_pretrained(MODEL, dtype=dtype, engine="jax") for dtype in ("float32", "bfloat16")}
    cpu = Encoder.from_pretrained(MODEL, device="cpu", engine="jax")
    found: dict[str, Any] = {}
    joined = [" ".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]
    for kind, chosen in {"short": texts, "long": joined}.items():
        expected = np.asarray(cpu.encode(chosen, show_progress=False))
        for dtype, encoder in encoders.items():
            vectors = np.asarray(encoder.encode(chosen, show_progress=False))
            found[f"{dtype}, {kind}"] = {
                "texts": len(chosen),
                "largest_difference": float(np.abs(vectors - expected).max() / np.abs(expected).max()),
                "least_cosine": float(metrics.cosine_pairs(vectors, expected).min()),
            }
    return {"model": MODEL, "vectors": found}


def codes(few: bool) -> dict[str, Any]:
    """A million vectors in 48 bytes each: coded, and searched by 1,000 queries, in JAX and by FAISS on the CPU."""
    from benchmarks.whitening_fit import bert_like
    from jaxwhiten.codes import SpectrumCode
    from jaxwhiten.search import build_index

    rows, queries = (4_000, 100) if few else (1_000_000, 1_000)
    x = bert_like(rows + queries, 384)
    x, q = x[:rows], x[rows:]
    code = SpectrumCode(bytes=48).fit(x[:100_000])
    start = time.perf_counter()
    coded = code.encode(x)
    first = time.perf_counter() - start
    encode = interleave({"encode": lambda: code.encode(x)}, 1 if few else 2, warmup=0)["encode"]
    indexes = {name: build_index(coded, name, codes=coded.code) for name in ("jax", "faiss-flat")}
    found = {name: index.search(q, 10) for name, index in indexes.items()}
    seconds = interleave({name: lambda i=index: i.search(q, 10) for name, index in indexes.items()}, 1 if few else 5)
    return {
        "rows": rows,
        "queries": queries,
        "encode_seconds": {"first": first, "later": encode},
        "rows_per_second": rows / median(encode),
        "search_seconds": seconds,
        "queries_per_second": {name: queries / median(of) for name, of in seconds.items()},
        "ratio": ratio(seconds, "jax", "faiss-flat"),
        "same_neighbours": float((found["jax"][1] == found["faiss-flat"][1]).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    own = {"parity": parity, "codes": codes}
    parser.add_argument("--only", default=",".join([*own, *OTHERS]), help="names, comma-separated; default: all")
    names = parser.parse_args().only.split(",")
    if len(names) == 1 and names[0] in own:
        import jax

        from jaxwhiten.runtime import hardware

        found = own[names[0]](jax.default_backend() == "cpu")
        save(f"accelerator_{names[0]}", {"device": hardware.describe(), "kind": jax.devices()[0].device_kind, **found})
        print(found)
        return
    asked = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    few = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[-1] == "cpu"
    failed = []
    for name in names:
        module, arguments = ("accelerator", f"--only {name}") if name in own else (name, OTHERS[name][few])
        print(f"== {name} {arguments}", flush=True)
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *arguments.split()])
        print(f"== {name}: exit {done.returncode} after {time.monotonic() - start:.0f} s", flush=True)
        failed += [name] if done.returncode else []
    if failed:
        raise SystemExit(f"Not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
