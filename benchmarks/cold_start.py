"""From process start to the first vectors: ten sentences, with and without the compilation cache, beside peers.

    python -m benchmarks.cold_start [--rounds 3]

Every measurement is a process of its own: import, load all-MiniLM-L6-v2, encode ten sentences, end. `cold` has an empty
cache, `warm` the one an earlier process left. Peers are sentence-transformers on the same folder, and what light
libraries do: tokenizers, and ONNX Runtime or OpenVINO, with its cache, on a graph that was exported before. All have
their bytecode. What the parts of our start take is recorded: import, load, first call (it compiles) and second call.
All choose their device; where one takes a GPU and another cannot, nothing is reported.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.contestants import PEER, Job, exported
from benchmarks.harness import OURS, interleave, median, ratio
from configs.settings import Config, setting

PROGRAM = """
import time
marks = [time.perf_counter()]
from jaxwhiten import Encoder
marks.append(time.perf_counter())
encoder = Encoder.from_pretrained({folder!r}, pooling="mean"{options})
marks.append(time.perf_counter())
assert encoder.encode({sentences!r}).shape == (10, 384)
marks.append(time.perf_counter())
encoder.encode({sentences!r})
marks.append(time.perf_counter())
import sys
backend = sys.modules["jax"].default_backend() if "jax" in sys.modules else "cpu"
print(*(b - a for a, b in zip(marks, marks[1:])), "cuda" if backend == "gpu" else backend)
"""
LIGHT = """
import numpy as np
from tokenizers import Tokenizer
{engine}
tokenizer = Tokenizer.from_file({folder!r} + "/tokenizer.json")
tokenizer.enable_padding()
tokenizer.enable_truncation(128)
rows = tokenizer.encode_batch({sentences!r})
ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
assert run({{"input_ids": ids, "attention_mask": mask}})[0].shape == (10, 384)
print("cpu")
"""
ONNX = """
import onnxruntime
session = onnxruntime.InferenceSession({graph!r}, providers=["CPUExecutionProvider"])
run = lambda feed: session.run(None, feed)
"""
OPENVINO = """
import openvino
hints = {{"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "CACHE_DIR": {graph!r} + ".compiled"}}
run = openvino.Core().compile_model({graph!r}, "CPU", hints)
"""
SENTENCE_TRANSFORMERS = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r})
assert model.encode({sentences!r}).shape == (10, 384)
print(model.device.type)
"""
PARTS = ("import", "load", "first call", "second call")
COLD = f"{OURS}, cold"
WARM = f"{OURS}, warm"
JAX = f"{OURS}, engine jax, warm"
SENTENCES = [f"{number} birds sit on a wire and wait for the rain to end." for number in range(10)]


@dataclass(slots=True)
class ColdStart(Config):
    """The settings of benchmarks.cold_start."""

    rounds: int = setting(3, "of each contestant")


def start(program: str, folder: Path, cache: str, graph: Path, options: str = "") -> list[str]:
    """Runs a program to its end; the words of its last line, the device it ran on at the end.

    Its bytecode is kept, as in an installation.
    """
    engine = {ONNX: ONNX, OPENVINO: OPENVINO}.get(program, "").format(graph=str(graph))
    text = LIGHT if engine else program
    code = text.format(folder=str(folder), sentences=SENTENCES, options=options, engine=engine)
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"HF_HUB_OFFLINE": "1", "JAXWHITEN_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": tempfile.gettempdir()}
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, check=True, env=environment, capture_output=True, text=True)
    return result.stdout.splitlines()[-1].split()


def measure(config: ColdStart) -> Iterator[harness.Row]:
    """Processes of each contestant, in rotated order."""
    peers = {PEER: SENTENCE_TRANSFORMERS, "tokenizers and ONNX Runtime": ONNX, "tokenizers and OpenVINO": OPENVINO}
    parts: dict[str, list[list[float]]] = {name: [] for name in (COLD, WARM, JAX)}
    with tempfile.TemporaryDirectory() as warm:
        job = Job.of(harness.MINILM, Path(warm))
        graph = exported(job)
        devices = {name: start(code, job.folder, warm, graph)[-1] for name, code in {OURS: PROGRAM, **peers}.items()}
        start(PROGRAM, job.folder, warm, graph, ', engine="jax"')  # what a first process keeps
        if len(set(devices.values())) > 1:
            raise SystemExit(f"they ran on {devices}: CUDA_VISIBLE_DEVICES= JAX_PLATFORMS=cpu measures the CPU")
        yield harness.Facts(device=devices[OURS])

        def ours(name: str, cache: str, options: str = "") -> None:
            marks = start(PROGRAM, job.folder, cache, graph, options)[:-1]
            parts[name].append([float(mark) for mark in marks])

        def cold() -> None:
            with tempfile.TemporaryDirectory() as empty:
                ours(COLD, empty)

        contestants: dict[str, Callable[[], object]] = {
            COLD: cold,
            WARM: functools.partial(ours, WARM, warm),
            JAX: functools.partial(ours, JAX, warm, ', engine="jax"'),
            **{name: functools.partial(start, code, job.folder, warm, graph) for name, code in peers.items()},
        }
        seconds = interleave(contestants, config.rounds, warmup=0)
    for name, of_name in seconds.items():
        columns = zip(PARTS, zip(*parts.get(name, ()), strict=True), strict=False)
        yield {
            "contestant": name,
            "seconds": of_name,
            "beside": {} if name in peers else {peer: ratio(seconds, name, peer) for peer in peers},
            "parts": {part: median(list(values)) for part, values in columns},
        }


if __name__ == "__main__":
    harness.run(measure, ColdStart)
