"""All that is to be measured on a machine with a GPU or a TPU, in one command and under ten minutes.

    python -m benchmarks.accelerator [--only parity,codes,encode,…] [--model FOLDER] [--seconds 600]

- `parity`: vectors of real weights on the device beside those of the CPU, float32 and bfloat16, short and long texts.
- `codes`: a million vectors coded in 48 bytes and searched there, beside float32, and beside FAISS on the CPU.
- The others are benchmarks of their own, with arguments that suit an accelerator. Where PyTorch and
  sentence-transformers are installed, they run on the same device.

Each runs in a process of its own, since JAX keeps most of a GPU's memory until its process ends, and writes its own
results into `runs/benchmarks/accelerator`, if it is stopped what it has measured so far. One that cannot run is named
and the others follow. `runs/benchmarks/DEVICE.jsonl`, such as `h100.jsonl`, has all parts, those of earlier runs, too.
On a CPU everything runs with few rows, which shows that the command works, and nothing of an accelerator.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks import harness
from benchmarks.encode import described, texts_of
from benchmarks.harness import MINILM, OURS, RESULTS, interleave, median, table, times
from configs import launch
from configs.settings import Config, setting
from eval.report import Table
from eval.runs import Record, Run, command
from jaxwhiten import Encoder, metrics
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.models import resolve_folder
from jaxwhiten.search import build_index
from jaxwhiten.text import BulkTokenizer

PARTS = RESULTS / "accelerator"
MODELS = ("parity", "encode")  # that are given the model
# What each benchmark is given, on an accelerator and on a CPU.
OTHERS = {
    "encode": ("--tokens 200000 --rounds 3", "--tokens 2000 --rounds 1 --base False"),
    "whitening": ("--rounds 3", "--rows 4000 --width 64 --rounds 1"),
}


@dataclass(slots=True)
class Accelerator(Config):
    """The settings of benchmarks.accelerator."""

    only: str = setting("parity,codes,encode,whitening", "what is measured")
    model: str = setting(MINILM, "all-MiniLM-L6-v2, where it lies")
    seconds: float = setting(600.0, "for all parts together; then they are stopped")


def parity(small: bool, model: str) -> Iterator[harness.Row]:
    """Largest difference from the CPU's float32 vectors, relative to their largest component, and least cosine.

    Long texts are ones whose attention a kernel computes (`jaxwhiten.models.attention`), in bfloat16.
    """
    texts = texts_of("short", BulkTokenizer(resolve_folder(model), 64), 1_000 if small else 12_000)
    encoders = {dtype: Encoder.from_pretrained(model, dtype=dtype, engine="jax") for dtype in ("float32", "bfloat16")}
    cpu = Encoder.from_pretrained(model, device="cpu", engine="jax")
    joined = [" ".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]
    for kind, chosen in {"short": texts, "long": joined}.items():
        expected = np.asarray(cpu.encode(chosen, show_progress=False))
        for dtype, encoder in encoders.items():
            vectors = np.asarray(encoder.encode(chosen, show_progress=False))
            yield {
                "vectors": f"{dtype}, {kind}",
                "texts": len(chosen),
                "largest_difference": float(np.abs(vectors - expected).max() / np.abs(expected).max()),
                "least_cosine": float(metrics.cosine_pairs(vectors, expected).min()),
            }


def codes(small: bool, _model: str) -> Iterator[harness.Row]:
    """Exact search of codes and of float32 on the device, and of the codes by FAISS on the CPU."""
    from benchmarks.search_batches import documents

    x = documents(4_000 if small else 1_000_000)
    queries = documents(1024, seed=1)
    code = SpectrumCode(bytes=48).fit(x[:100_000])
    indexes = {
        "codes": build_index(x, "jax", codes=code),
        "float32": build_index(x, "jax"),
        "faiss": build_index(x, "faiss-flat", codes=code),
    }
    for count in (1, 16, 1024):
        block = queries[:count]
        searches = {name: functools.partial(index.search, block, 10) for name, index in indexes.items()}
        seconds = interleave(searches, 1 if small else 5)
        yield {
            "documents": len(x),
            "queries": count,
            "bytes": code.nbytes,
            "seconds": seconds,
            "milliseconds": {name: 1000 * median(series) for name, series in seconds.items()},
            "same_neighbours": float((searches["codes"]()[1] == searches["faiss"]()[1]).mean()),
        }


OWN = {"parity": parity, "codes": codes}


def device_name(parts: Mapping[str, Run]) -> str:
    """The name of the combined file: of an `NVIDIA H100 80GB HBM3`, `h100`; of other devices, `accelerator`."""
    devices = " ".join(str(part.header.machine.devices) for part in parts.values())
    match = re.search(r"\b(?:NVIDIA|TPU)\s+(?:RTX\s+)?(\w+)", devices)
    return match[1].lower() if match else "accelerator"


def combine(stopped: Mapping[str, str]) -> None:
    """Writes one file of all parts, and of those that are missing or were stopped; named by the device."""
    files = {name: PARTS / f"{name}.jsonl" for name in (*OWN, *OTHERS)}
    parts = {name: Run.load(file) for name, file in files.items() if file.is_file()}
    missing = {name: "not run" for name in files if name not in parts} | stopped
    if parts:  # whose machine it is: to ask for the devices would take their memory in this process
        headers = {name: part.header for name, part in parts.items()}
        rows = [Record(row, part=name) for name, part in parts.items() for row in part.rows]
        program = "benchmarks.accelerator"
        base = next(iter(headers.values()))
        header = base.but(program=program, command=command(program, {}), missing=missing, parts=headers)
        print(f"wrote {Run(header, rows).save(RESULTS / f'{device_name(parts)}.jsonl')}", flush=True)


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
    for row in (row for row in run.rows if "milliseconds" in row):
        first.setdefault((row.documents, row.queries, row.bytes), row)
    columns = {
        "documents": lambda row: f"{row.documents:,}",
        "queries": lambda row: f"{row.queries:,}",
        "bytes": "bytes",
        "codes, ms": lambda row: f"{_of_codes(row):,.2f}",
        "float32, ms": lambda row: f"{row.milliseconds.float32:,.2f}",
        "FAISS's fast scan, 16 cores, ms": lambda row: (
            f"{row.milliseconds.faiss:,.2f}" if "faiss" in row.milliseconds else ""
        ),
    }
    return table(run, columns, 3, [first[key] for key in sorted(first)], notes=())


def _of_codes(row: Record) -> float:
    """The search of codes; of a run that timed several ways, the one that the library takes for so many queries."""
    names = ("codes", "bytes" if row.queries <= 4 else "gather")
    return min(
        milliseconds
        for name, milliseconds in row.milliseconds.items()
        if name.partition(",")[0] in names and "tiles of 32" not in name
    )


TABLES = {"device_table": device_table, "coded_search_table": coded_search_table}


def main(config: Accelerator) -> None:
    """Runs each part in a process, for at most twice its share of the time that is left."""
    probe = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    small = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.split()[-1] == "cpu"
    names = config.only.split(",")
    if len(names) == 1 and names[0] in OWN:
        harness.driven_by_rows(names[0], lambda config: OWN[names[0]](small, config.model))(config)
        return
    environment = {**os.environ, "JAXWHITEN_BENCHMARKS": str(PARTS)}
    end = time.monotonic() + config.seconds
    missing = {}
    for number, name in enumerate(names):
        arguments = f"accelerator --only {name}" if name in OWN else f"{name} {OTHERS[name][small]}"
        words = f"-m benchmarks.{arguments}".split() + (["--model", config.model] if name in MODELS else [])
        print(f"== {' '.join(words)}", flush=True)
        limit = max(end - time.monotonic(), 1.0) * 2 / (1 + len(names) - number)
        try:
            code = subprocess.run([sys.executable, *words], env=environment, timeout=limit).returncode
            if code:
                missing[name] = f"exit {code}"
        except subprocess.TimeoutExpired:
            missing[name] = f"stopped after {limit:.0f} s"
        combine(missing)
    if missing:
        raise SystemExit(f"Not measured to the end: {', '.join(missing)}")


if __name__ == "__main__":
    launch.run(main, Accelerator)
