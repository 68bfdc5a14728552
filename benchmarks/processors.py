"""One query at a time on two kinds of processor, on an idle machine and beside busy processes.

    python -m benchmarks.processors [--rounds 6] [--queries 60]

all-MiniLM-L6-v2 in float32 on queries of `sts_sample`, as in `benchmarks.latency`. Each kind of processor is a process
of its own: `AVX2` has `ONEDNN_MAX_CPU_ISA=AVX2` and XLA's `--xla_cpu_max_isa=AVX2`. ONNX Runtime has no such setting:
it uses all instructions of this processor in both. Busy processes are as many endless loops as there are cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.contestants import Job, quiet
from benchmarks.encode import MINILM, MODEL
from benchmarks.harness import flat, save
from benchmarks.latency import ONNX, OPENVINO, by_onnx, by_openvino, calls, our_encoders, report
from jaxwhiten.datasets import load_sts
from jaxwhiten.models import resolve_folder
from jaxwhiten.runtime.hardware import cores
from jaxwhiten.text import BulkTokenizer

FREE = f"{OPENVINO}, threads not tied to cores"
LIMITS = {
    "all instructions": {},
    "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
}


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """A busy process for each core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(rounds: int, count: int, scratch: Path) -> dict[str, Any]:
    """Each contestant's p50 and p99, idle and beside busy processes; processes share what they export in `scratch`."""
    folder = Path(resolve_folder(MODEL))
    queries = list(dict.fromkeys(load_sts("sts_sample").splits["test"].sentence1))[:count]
    job = Job(folder, 128, BulkTokenizer(folder, 128), scratch, scratch, "cpu", "float32")
    with quiet():
        contestants = our_encoders(job) | {ONNX: by_onnx(job, "1"), OPENVINO: by_openvino(job)}
        contestants[FREE] = by_openvino(job, ENABLE_CPU_PINNING=False)  # they may move, which by default they may not
    idle = report(f"{MINILM}, idle", *calls(contestants, queries, rounds))
    with busy():
        loaded = report(f"{MINILM}, beside {cores()} busy processes", *calls(contestants, queries, rounds))
    return {"idle": idle, "beside busy processes": loaded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)  # of a process with a limit
    args = parser.parse_args()
    if args.result is not None:
        args.result.write_text(json.dumps(measure(args.rounds, args.queries, args.result.parent)))
        return
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, limit in LIMITS.items():
            print(f"\n{name}", flush=True)
            result = Path(scratch) / "result.json"
            command = [sys.executable, "-m", "benchmarks.processors", "--result", str(result)]
            command += ["--rounds", str(args.rounds), "--queries", str(args.queries)]
            subprocess.run(command, env=os.environ | limit, check=True)
            figures[name] = json.loads(result.read_text())
    save("processors", flat(figures, "processor", "load", "contestant"))


if __name__ == "__main__":
    main()
