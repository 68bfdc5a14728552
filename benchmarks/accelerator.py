"""All that is to be measured on a machine with a GPU or a TPU, in one command and under ten minutes.

    python -m benchmarks.accelerator [--only parity,codes,encode,…] [--model FOLDER] [--seconds 600]

- `parity`: vectors of real weights on the device beside those of the CPU, float32 and bfloat16, short and long texts.
- `codes`: a million vectors coded in 48 bytes, and searched exactly as codes, beside FAISS on the CPU.
- `coded_search`: codes of 16 points per half byte, searched in each way that a device has, beside float32.
- The others are benchmarks of their own, with arguments that suit an accelerator. Where PyTorch, sentence-transformers
  and the GPU build of FAISS are installed, they run on the same device.

Each runs in a process of its own, since JAX keeps most of a GPU's memory until its process ends, and writes its own
results into `runs/benchmarks/accelerator`, if it is stopped what it has measured so far. One that cannot run is named
and the others follow. `runs/benchmarks/DEVICE.jsonl`, such as `h100.jsonl`, has all parts, those of earlier runs, too.
On a CPU everything runs with few rows, which shows that the command works, and nothing of an accelerator.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.encode import described
from benchmarks.harness import OURS, RESULTS, flat, interleave, median, ratio, save, table, times
from eval.machine import devices
from eval.report import Table
from eval.runs import Record, Run, command

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PARTS = RESULTS / "accelerator"
MODELS = ("parity", "encode", "train_throughput")  # that are given the model
# What each benchmark is given, on an accelerator and on a CPU.
OTHERS = {
    "encode": ("--tokens 200000 --rounds 3", "--tokens 2000 --rounds 1 --no-base"),
    "train_throughput": ("--rows 5000 --batch-size 128 --rounds 3", "--rows 64 --steps 2 --rounds 1"),
    "whitening_fit": ("--rounds 3", "--rows 4000 --width 64 --rounds 1"),
    "coded_search": (
        "--documents 1000000,10000000",
        "--documents 3000 --queries 1,16 --bytes 24 --rounds 1",
    ),
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


def parity(small: bool, model: str) -> list[dict[str, Any]]:
    """Largest difference from the CPU's float32 vectors, relative to their largest component, and least cosine.

    Long texts are ones whose attention a kernel computes (`jaxwhiten.models.attention`), in bfloat16.
    """
    from jaxwhiten import Encoder, metrics

    texts = sentences(64 if small else 780)
    encoders = {dtype: Encoder.from_pretrained(model, dtype=dtype, engine="jax") for dtype in ("float32", "bfloat16")}
    cpu = Encoder.from_pretrained(model, device="cpu", engine="jax")
    rows: dict[str, Any] = {}
    joined = [" ".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]
    for kind, chosen in {"short": texts, "long": joined}.items():
        expected = np.asarray(cpu.encode(chosen, show_progress=False))
        for dtype, encoder in encoders.items():
            vectors = np.asarray(encoder.encode(chosen, show_progress=False))
            rows[f"{dtype}, {kind}"] = {
                "texts": len(chosen),
                "largest_difference": float(np.abs(vectors - expected).max() / np.abs(expected).max()),
                "least_cosine": float(metrics.cosine_pairs(vectors, expected).min()),
            }
    return flat(rows, "vectors")


def codes(small: bool, _model: str) -> list[dict[str, Any]]:
    """A million vectors in 48 bytes each: coded, and searched by 1,000 queries, in JAX and by FAISS on the CPU."""
    from benchmarks.whitening_fit import bert_like
    from jaxwhiten.codes import SpectrumCode
    from jaxwhiten.search import build_index

    if small:
        rows = 4_000
        queries = 100
    else:
        rows = 1_000_000
        queries = 1_000
    vectors = bert_like(rows + queries, 384)
    x = vectors[:rows]
    q = vectors[rows:]
    code = SpectrumCode(bytes=48).fit(x[:100_000])
    start = time.perf_counter()
    coded = code.encode(x)
    first = time.perf_counter() - start
    encode = interleave({"encode": lambda: code.encode(x)}, 1 if small else 2, warmup=0)["encode"]
    indexes = {name: build_index(coded, name, codes=coded.code) for name in ("jax", "faiss-flat")}
    hits = {name: index.search(q, 10) for name, index in indexes.items()}
    seconds = interleave({name: lambda i=index: i.search(q, 10) for name, index in indexes.items()}, 1 if small else 5)
    row = {
        "rows": rows,
        "queries": queries,
        "encode_seconds": {"first": first, "later": encode},
        "rows_per_second": rows / median(encode),
        "search_seconds": seconds,
        "queries_per_second": {name: queries / median(rounds) for name, rounds in seconds.items()},
        "ratio": ratio(seconds, "jax", "faiss-flat"),
        "same_neighbours": float((hits["jax"][1] == hits["faiss-flat"][1]).mean()),
    }
    return [row]


OWN = {"parity": parity, "codes": codes}


def parts_of(folders: Sequence[Path]) -> dict[str, Run]:
    """The parts in some folders, each as its program wrote it; of a part in several folders, all rows."""
    parts: dict[str, Run] = {}
    for name in (*OWN, *OTHERS):
        for file in (folder / f"{name}.jsonl" for folder in folders if (folder / f"{name}.jsonl").is_file()):
            part = Run.load(file)
            parts[name] = Run(part.header, [*(parts[name].rows if name in parts else ()), *part.rows])
    return parts


def device_name(parts: Mapping[str, Run]) -> str:
    """The name of the combined file: of an `NVIDIA H100 80GB HBM3`, `h100`; of other devices, `accelerator`."""
    described = " ".join(str(part.header.machine.devices) for part in parts.values())
    match = re.search(r"\b(?:NVIDIA|TPU)\s+(?:RTX\s+)?(\w+)", described)
    if match:
        return match[1].lower()
    return "accelerator"


def combine(stopped: Mapping[str, str], *folders: Path) -> None:
    """Writes one file of all parts, and of those that are missing or were stopped; named by the device."""
    parts = parts_of(folders)
    missing = {name: "not run" for name in (*OWN, *OTHERS) if name not in parts} | stopped
    if parts:  # whose machine it is: to ask for the devices would take their memory in this process
        headers = {name: part.header for name, part in parts.items()}
        rows = [Record(row, part=name) for name, part in parts.items() for row in part.rows]
        program = "benchmarks.accelerator"
        base_command = command(program, {}).partition(" --combine")[0]
        header = headers[next(iter(headers))].but(program=program, command=base_command, missing=missing, parts=headers)
        path = Run(header, rows).save(RESULTS / f"{device_name(parts)}.jsonl")
        print(f"wrote {path}", flush=True)


def device_table(run: Run) -> Table:
    """Encoding on a GPU, compared with sentence-transformers there."""
    cells: dict[str, list[Record]] = {}
    for row in (row for row in run.rows if row.part == "encode"):
        cells.setdefault(described(row), []).append(row)
    rows = [
        Record(row, ours=cell[0].texts_per_second) for cell in cells.values() for row in cell if row.contestant != OURS
    ]
    columns = {
        "encoder, texts": described,
        "number": lambda row: f"{row.count:,}",
        "compared with sentence-transformers in": lambda row: row.contestant.partition(", ")[2] or "batches of 32",
        "ours, texts/s": lambda row: f"{row.ours:,.0f}",
        "theirs, texts/s": lambda row: f"{row.texts_per_second:,.0f}",
        "their time ÷ ours": lambda row: times(row.speed_of_ours),
    }
    return table(run, columns, 3, rows, notes=())


def coded_search_table(run: Run) -> Table:
    """Milliseconds of a search of codes on a GPU, of float32 there, and of FAISS's scan of the codes on the CPU."""
    first: dict[tuple[int, int, int], Record] = {}
    for row in (row for row in run.rows if row.part == "coded_search"):
        first.setdefault((row.documents, row.queries, row.bytes), row)
    columns = {
        "documents": lambda row: f"{row.documents:,}",
        "queries": lambda row: f"{row.queries:,}",
        "bytes": "bytes",
        "codes, ms": lambda row: f"{_fastest(row):,.2f}",
        "float32, ms": lambda row: f"{row.milliseconds.float32:,.2f}",
        "FAISS's fast scan, 16 cores, ms": lambda row: (
            f"{row.milliseconds.faiss:,.2f}" if "faiss" in row.milliseconds else ""
        ),
    }
    return table(run, columns, 3, [first[key] for key in sorted(first)], notes=())


def _fastest(row: Record) -> float:
    """Of the ways of searching codes, the one that the library takes for so many queries."""
    kernel = "bytes" if row.queries <= 4 else "gather"
    times = row.milliseconds.items()
    return min(
        milliseconds for name, milliseconds in times if name.split(",")[0] == kernel and "tiles of 32" not in name
    )


TABLES = {"device_table": device_table, "coded_search_table": coded_search_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join([*OWN, *OTHERS]), help="names, comma-separated; default: all")
    parser.add_argument("--model", default=MODEL, help="all-MiniLM-L6-v2, where it lies")
    parser.add_argument("--seconds", type=float, default=600, help="for all parts together; then they are stopped")
    parser.add_argument("--combine", nargs="+", type=Path, help="only combine the parts in these folders")
    args = parser.parse_args()
    if args.combine:
        combine({}, *args.combine)
        return
    names = args.only.split(",")
    if len(names) == 1 and names[0] in OWN:
        import jax

        small = jax.default_backend() == "cpu"
        rows = OWN[names[0]](small, args.model)
        save(names[0], rows, device=devices(), kind=jax.devices()[0].device_kind, model=MODEL)
        print(rows)
        return
    probe = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    small = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.split()[-1] == "cpu"
    environment = {**os.environ, "JAXWHITEN_BENCHMARKS": str(PARTS)}
    end = time.monotonic() + args.seconds
    missing = {}
    for number, name in enumerate(names):
        if name in OWN:
            module = "accelerator"
            arguments = f"--only {name}"
        else:
            module = name
            arguments = OTHERS[name][small]
        words = [sys.executable, "-m", f"benchmarks.{module}", *arguments.split()]
        words += ["--model", args.model] if name in MODELS else []
        print(f"== {' '.join(words[1:])}", flush=True)
        start = time.monotonic()
        limit = max(end - start, 1.0) * 2 / (1 + len(names) - number)  # twice its share of what is left
        try:
            code: int | str = subprocess.run(words, env=environment, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = f"stopped after {limit:.0f} s"
        print(f"== {name}: exit {code} after {time.monotonic() - start:.0f} s", flush=True)
        if code:
            missing[name] = f"exit {code}"
            if isinstance(code, str):
                missing[name] = code
        combine(missing, PARTS)
    if missing:
        raise SystemExit(f"Not measured to the end: {', '.join(missing)}")


if __name__ == "__main__":
    main()
