"""What every benchmark shares: interleaved rounds, medians and ratios with their spread, the machine, JSON out."""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import threadpoolctl

from jaxwhiten.runtime import hardware

RESULTS = Path(os.environ.get("JAXWHITEN_BENCHMARKS", "runs/benchmarks"))
PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "numpy",
    "torch",
    "transformers",
    "sentence-transformers",
    "onnxruntime",
    "openvino",
    "nncf",
    "optimum-intel",
    "keras-hub",
    "model2vec",
    "faiss-cpu",
    "faiss-gpu",
    "scikit-learn",
)
# What matrix products make use of, as Linux names it.
FLAGS = frozenset(("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "sve"))
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # of the machine, before a benchmark adds its own
PAUSE = 0.05  # seconds before each run, in which threads that the last one left waiting in a loop go to sleep


def interleave(contestants: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Times each contestant `rounds` times, in rotated order, so that a drift of the machine's speed hits all of them.

    Args:
      contestants: Name -> what to time.
      rounds: Counted runs of each.
      warmup: Runs of each that are not counted (compilation, caches).

    Returns:
      Name -> seconds of each counted run.
    """
    for _ in range(warmup):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in rotated(list(contestants), number):
            gc.collect()
            time.sleep(PAUSE)
            start = time.perf_counter()
            contestants[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def rotated(names: list[str], number: int) -> list[str]:
    """The names in the order of a round: each begins one in turn, so that none always follows the same other."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def ratio(seconds: Mapping[str, list[float]], ours: str, peer: str) -> dict[str, float]:
    """How many times faster `ours` is than `peer`, round by round: median, lowest, highest."""
    ratios = [b / a for a, b in zip(seconds[ours], seconds[peer], strict=True)]
    return {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


def in_words(found: Mapping[str, float] | None) -> str:
    """A ratio for the end of a line; nothing where there is none."""
    return f"ours is {found['median']:.2f}x ({found['low']:.2f} to {found['high']:.2f})" if found else ""


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def torch_device() -> str:
    """PyTorch's name for the kind of device that JAX computes on, so that peers run on the same.

    Raises:
      SystemExit: PyTorch has no such device here, and a comparison would say nothing.
    """
    import jax
    import torch

    ours = jax.default_backend()
    if ours == "cpu":
        return "cpu"
    if ours == "gpu" and torch.cuda.is_available():
        return "cuda"
    raise SystemExit(
        f"JAX computes on {ours}, PyTorch {torch.__version__} cannot here, and peers are timed on the same device: "
        "install a PyTorch with CUDA beside jaxwhiten[cuda], or measure the CPU with JAX_PLATFORMS=cpu"
    )


def machine() -> dict[str, object]:
    """Where and with what this was measured."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": hardware.cores(),
        "devices": hardware.describe() if "jax" in sys.modules else None,
        "flags": sorted(_cpu_flags() & FLAGS),
        "load_at_start": LOAD,
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
        "pools": [
            {key: pool.get(key) for key in ("user_api", "internal_api", "num_threads", "version")}
            for pool in threadpoolctl.threadpool_info()
        ],
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {name: v for name in PACKAGES if (v := _version(name))},
    }


def _cpu_flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = [line for line in lines if line.partition(":")[0].strip() in ("flags", "Features")]
    return set(named[0].partition(":")[2].split()) if named else set()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def command() -> str:
    """The program as it was started, but for where it keeps its vectors and where the model lies."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    words = list(sys.argv[1:])
    for option in ("--cache", "--model"):
        at = words.index(option) if option in words else len(words)
        if option == "--cache" or Path(*words[at + 1 : at + 2]).is_absolute():
            del words[at : at + 2]
    return " ".join(["python", "-m", spec.name if spec else sys.argv[0], *words])


def save(name: str, result: Mapping[str, object]) -> Path:
    """Writes `runs/benchmarks/NAME.json` with the machine and this process's peak memory beside the result.

    `make tables` keeps it in benchmarks/results and writes the tables of the documents from it.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(
        json.dumps(
            {"command": command(), "machine": machine(), "peak_memory_gb": hardware.peak_memory(), **result}, indent=2
        )
        + "\n"
    )
    print(f"wrote {path}")
    return path
