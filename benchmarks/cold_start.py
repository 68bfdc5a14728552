"""From process start to the first vectors: ten sentences, with and without the compilation cache, beside peers.

    python -m benchmarks.cold_start [--rounds 3]

Every measurement is a process of its own: import, load all-MiniLM-L6-v2, encode ten sentences, end. `cold` has an empty
cache, `warm` the one an earlier process left. `jaxwhiten search` finds one query in an index of ten texts. Peers are
sentence-transformers on the same folder, and what light libraries such as fastembed do: tokenizers, and ONNX Runtime or
OpenVINO, with its cache, on a graph that was exported before. All have their bytecode. What the parts of our start take
is printed: import, load, first call (it compiles), second call, and how many programs XLA compiles. All choose their
device; where one takes a GPU and another cannot, nothing is reported.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.contestants import Job, exported
from benchmarks.harness import SPEED, Ratio, in_words, interleave, median, ratio, save
from eval.runs import Run
from jaxwhiten import Encoder, build_index
from jaxwhiten.models import resolve_folder
from jaxwhiten.text import BulkTokenizer

OURS = """
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
import onnxruntime
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file({folder!r} + "/tokenizer.json")
tokenizer.enable_padding()
tokenizer.enable_truncation(128)
session = onnxruntime.InferenceSession({graph!r}, providers=["CPUExecutionProvider"])
rows = tokenizer.encode_batch({sentences!r})
ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
assert session.run(None, {{"input_ids": ids, "attention_mask": mask}})[0].shape == (10, 384)
print("cpu")
"""
PLAIN = """
import numpy as np
import openvino
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file({folder!r} + "/tokenizer.json")
tokenizer.enable_padding()
tokenizer.enable_truncation(128)
how = {{"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "CACHE_DIR": {graph!r} + ".compiled"}}
model = openvino.Core().compile_model({graph!r}, "CPU", how)
rows = tokenizer.encode_batch({sentences!r})
ids, mask = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ids", "attention_mask"))
assert model({{"input_ids": ids, "attention_mask": mask}})[0].shape == (10, 384)
print("cpu")
"""
PARTS = ("import", "load", "first call", "second call")
PEER = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({folder!r})
assert model.encode({sentences!r}).shape == (10, 384)
print(model.device.type)
"""
COLD = "jaxwhiten, cold"
WARM = "jaxwhiten, warm"
JAX = "jaxwhiten, engine jax, warm"
SEARCH = "jaxwhiten search"
ENCODE = "jaxwhiten encode"
SENTENCES = [f"{number} birds sit on a wire and wait for the rain to end." for number in range(10)]


def process(code: str, folder: Path, cache: str, graph: Path | None = None, options: str = "") -> list[str]:
    """Runs a program to its end; gives the words of its last line, the device it ran on at the end."""
    text = code.format(folder=str(folder), sentences=SENTENCES, graph=str(graph), options=options)
    return run(["-c", text], cache).splitlines()[-1].split()


def run(words: list[str], cache: str) -> str:
    """What a Python process prints."""
    result = subprocess.run(
        [sys.executable, *words], check=True, env=environment(cache), capture_output=True, text=True
    )
    return result.stdout


def environment(cache: str) -> dict[str, str]:
    """Variables of a process, whose bytecode is kept, as in an installation."""
    settings = {"HF_HUB_OFFLINE": "1", "JAXWHITEN_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": tempfile.gettempdir()}
    return {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | settings


def compilations(folder: Path, cache: str, options: str = "") -> int:
    """How many programs XLA compiles in a start; those read from the compilation cache do not count."""
    text = OURS.format(folder=str(folder), sentences=SENTENCES, options=options)
    env = environment(cache) | {"JAX_LOG_COMPILES": "1"}
    result = subprocess.run([sys.executable, "-c", text], check=True, env=env, capture_output=True, text=True)
    return result.stderr.count("Finished XLA compilation") - result.stderr.count("Persistent compilation cache hit")


_STARTS = {
    COLD: "ten vectors, nothing compiled before",
    WARM: "ten vectors, all compiled before",
    "jaxwhiten search": "the hits of a query",
    "jaxwhiten encode": "a file of ten vectors",
}
TABLES = SPEED
HEADLINE = "all compiled", ("sentence-transformers", "tokenizers and ONNX Runtime", "tokenizers and OpenVINO")


def ratios(run: Run) -> Iterator[Ratio]:
    """What takes how many times as long by each peer."""
    for row in run.rows:
        for peer, faster in row.beside.items():
            yield f"process start to {_STARTS.get(row.contestant, row.contestant)}", peer, faster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(resolve_folder("sentence-transformers/all-MiniLM-L6-v2"))
    with tempfile.TemporaryDirectory() as warm:
        job = Job(folder, 128, BulkTokenizer(folder, 128), Path(warm), Path(warm), "cpu", "float32")
        graph = exported(job)
        parts: dict[str, list[list[float]]] = {name: [] for name in (COLD, WARM, JAX)}
        options = ', engine="jax"'
        commands = commands_of(folder, Path(warm))
        process(OURS, folder, warm)  # what a first process keeps
        process(OURS, folder, warm, options=options)

        def command(name: str) -> None:
            run(["-m", "jaxwhiten.commands.cli", *commands[name]], warm)

        def run_ours(name: str, cache: str, options: str = "") -> None:
            parts[name].append([float(word) for word in process(OURS, folder, cache, options=options)[:-1]])

        def cold() -> None:
            with tempfile.TemporaryDirectory() as empty:
                run_ours(COLD, empty)

        peers = {"sentence-transformers": PEER, "tokenizers and ONNX Runtime": LIGHT, "tokenizers and OpenVINO": PLAIN}
        codes = {"jaxwhiten": OURS, **peers}
        devices = {name: process(code, folder, warm, graph)[-1] for name, code in codes.items()}
        if len(set(devices.values())) > 1:
            raise SystemExit(f"they ran on {devices}: CUDA_VISIBLE_DEVICES= JAX_PLATFORMS=cpu measures the CPU")
        contestants = {
            COLD: cold,
            WARM: lambda: run_ours(WARM, warm),
            JAX: lambda: run_ours(JAX, warm, options),
            **{name: lambda name=name: command(name) for name in commands},
            **{name: lambda code=code: process(code, folder, warm, graph) for name, code in peers.items()},
        }
        for name in commands:
            command(name)
        seconds = interleave(contestants, args.rounds, warmup=0)
        with tempfile.TemporaryDirectory() as empty:
            compiled = {COLD: compilations(folder, empty), WARM: compilations(folder, empty)}
            compiled[JAX] = compilations(folder, warm, options)
    ratios = {name: {peer: ratio(seconds, name, peer) for peer in peers} for name in seconds if name not in peers}
    spent = {
        name: {part: median([row[i] for row in rows]) for i, part in enumerate(PARTS)} for name, rows in parts.items()
    }
    rows = [
        {
            "contestant": name,
            "seconds": seconds[name],
            "beside": ratios.get(name, {}),
            "parts": spent.get(name),
            "compilations": compiled.get(name),
        }
        for name in seconds
    ]
    print(f"process start to ten vectors, {args.rounds} rounds in rotated order")
    for row in rows:
        show(row)
    save("cold_start", rows, device=devices["jaxwhiten"])


def commands_of(folder: Path, scratch: Path) -> dict[str, list[str]]:
    """The words of the commands that are timed, with the files that they read."""
    encoder = Encoder.from_pretrained(folder)
    index = build_index(encoder.encode(SENTENCES), encoding=encoder.encoding(), documents=SENTENCES)
    index.save(scratch / "docs.db")
    texts = scratch / "texts.txt"
    texts.write_text("\n".join(SENTENCES))
    return {
        SEARCH: ["search", str(scratch / "docs.db"), "Birds wait."],
        ENCODE: ["encode", str(texts), "--model", str(folder), "-o", str(scratch / "v.npy"), "--overwrite"],
    }


def show(row: Mapping[str, Any]) -> None:
    """Prints the median of a contestant, its ratios to the peers, and the parts of its time."""
    print(f"  {row['contestant']:28}{median(row['seconds']):6.2f} s")
    for peer, faster in row["beside"].items():
        print(f"    beside {peer}: {in_words(faster)}")
    if row["parts"]:
        print("    " + ", ".join(f"{part} {value:.2f} s" for part, value in row["parts"].items()))
        print(f"    compiled: {row['compilations']}")


if __name__ == "__main__":
    main()
