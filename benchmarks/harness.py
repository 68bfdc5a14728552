"""What every benchmark shares: interleaved rounds, medians and ratios with their spread, the machine, JSON out."""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxwhiten.runtime import hardware

RESULTS = Path("runs/benchmarks")
PAUSE = 0.05  # seconds before each run, in which threads that the last one left waiting in a loop go to sleep


def interleave(contestants: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Times each contestant `rounds` times, in turn, so that a drift of the machine's speed hits all of them.

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
    for _ in range(rounds):
        for name, run in contestants.items():
            gc.collect()
            time.sleep(PAUSE)
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


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
    packages = (
        "jax",
        "jaxlib",
        "flax",
        "numpy",
        "torch",
        "sentence-transformers",
        "onnxruntime",
        "faiss-cpu",
        "scikit-learn",
    )
    return {
        "cpu": cpu,
        "cores": hardware.cores(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {name: v for name in packages if (v := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def save(name: str, result: Mapping[str, object]) -> Path:
    """Writes `runs/benchmarks/NAME.json` with the machine and this process's peak memory beside the result."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(
        json.dumps({"machine": machine(), "peak_memory_gb": hardware.peak_memory(), **result}, indent=2) + "\n"
    )
    print(f"wrote {path}")
    return path
