"""One call at a time: a query to its vector, a query to its ids, and eight callers.

    python -m benchmarks.latency [--rounds 4] [--queries 100] [--documents 100000]

all-MiniLM-L6-v2, mean pooling and unit length, float32 unless a name says otherwise; queries are sentences of
sts_sample. In every round each contestant, in rotated order, answers all queries one after the other; p50 and p99 are
over the calls of all rounds, and ratios are of the rounds' medians. With `ONEDNN_MAX_CPU_ISA=AVX2` and
`XLA_FLAGS=--xla_cpu_max_isa=AVX2` ours and OpenVINO do without newer instructions; ONNX Runtime has no such setting.

    lengths    one text of 8, 16 and 64 tokens
    search     text to ids over --documents coded documents of 48 bytes, and the same queries by sentence-transformers
               or ONNX Runtime with FAISS over float32 vectors
    callers    queries per second from one thread and from eight that share one encoder
"""

from __future__ import annotations

import functools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import contestants as peers
from benchmarks import harness
from benchmarks.contestants import FLOATS, INDEXES, JAX, ONNX, OPENVINO, SINGLE, WITHOUT_SPINNING, Job, made
from benchmarks.harness import OURS, PAUSE, figure, median, ratio, rotated, table, times
from configs.settings import Config, setting
from eval.report import Table
from eval.runs import Run
from jaxwhiten import normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import load_sts
from jaxwhiten.search import build_index

CALLERS = 8
BYTES = 48
LENGTHS = (8, 16, 64)  # of single texts
EXACT = 1e-5  # by how much a float32 contestant's vectors may differ from ours
Call = Callable[[str], Any]


@dataclass(slots=True)
class Latency(Config):
    """The settings of benchmarks.latency."""

    rounds: int = setting(4, "of each contestant")
    queries: int = setting(100, "of a round")
    documents: int = setting(100_000, "in the index that is searched")


def calls(what: str, contestants: Mapping[str, Call], queries: list[str], rounds: int) -> Iterator[harness.Row]:
    """A row for each contestant, the fastest first: p50, p99, and how many times the fastest's its medians are."""
    milliseconds: dict[str, list[list[float]]] = {name: [] for name in contestants}
    for number in range(-1, rounds):  # the first is not counted
        for name in rotated(list(contestants), max(number, 0)):
            call = contestants[name]
            of_round = []
            time.sleep(PAUSE)
            for query in queries:
                start = time.perf_counter()
                call(query)
                of_round.append(1000 * (time.perf_counter() - start))
            if number >= 0:
                milliseconds[name].append(of_round)
    p50 = {name: float(np.quantile(of_name, 0.5)) for name, of_name in milliseconds.items()}
    medians = {name: [median(of_round) for of_round in of_name] for name, of_name in milliseconds.items()}
    for name in sorted(p50, key=p50.__getitem__):
        p99 = float(np.quantile(milliseconds[name], 0.99))
        slower = ratio(medians, min(p50, key=p50.__getitem__), name)
        yield {"what": what, "contestant": name, "p50_ms": p50[name], "p99_ms": p99, "times_the_fastest": slower}


def searches(encoders: Mapping[str, Call], documents: int) -> dict[str, Call]:
    """Text to ids: our coded indexes, and FAISS over float32 vectors behind the peers; documents are random vectors."""
    x = normalize(np.random.default_rng(0).standard_normal((documents, 384)).astype(np.float32))
    code = SpectrumCode(bytes=BYTES).fit(x[: peers.SAMPLE])
    floats = INDEXES[FLOATS](x, BYTES)
    indexes = {
        f"{engine}, {backend} of {BYTES} bytes": (engine, build_index(x, backend, codes=code))
        for backend in ("faiss-flat", "jax")
        for engine in (OURS, JAX)
    }
    indexes |= {f"{peer}, {FLOATS}": (peer, floats) for peer in (peers.PEER, ONNX, WITHOUT_SPINNING)}
    return {
        name: lambda text, encoder=encoder, index=index: index.search(encoders[encoder](text)[None], 10)
        for name, (encoder, index) in indexes.items()
        if encoder in encoders
    }


def queries_per_second(encode: Call, queries: list[str], threads: int) -> float:
    """Queries per second by so many threads, each of which asks all queries."""
    callers = [threading.Thread(target=lambda: [encode(query) for query in queries]) for _ in range(threads)]
    start = time.perf_counter()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return threads * len(queries) / (time.perf_counter() - start)


def measure(config: Latency) -> Iterator[harness.Row]:
    """Calls one after the other, then eight callers."""
    queries = list(dict.fromkeys(load_sts("sts_sample").splits["test"].sentence1))[: config.queries]
    with tempfile.TemporaryDirectory() as exports:
        job = Job.of(harness.MINILM, Path(exports))
        batched, skipped = made({name: functools.partial(make, job) for name, make in SINGLE.items()})
        encoders: dict[str, Call] = {
            name: lambda text, encode=encode: encode([text])[0] for name, encode in batched.items()
        }
        yield harness.Facts(skipped=skipped)
        vectors = {name: np.stack([encode(query) for query in queries]) for name, encode in encoders.items()}
        for name, of_name in vectors.items():
            worst = float(np.abs(of_name - vectors[OURS]).max())
            if "bfloat16" not in name and worst > EXACT:
                raise SystemExit(f"{name} gives other vectors, by up to {worst:.1e}: there is nothing to compare")
        yield from calls("text to vector", encoders, queries, config.rounds)
        for length in LENGTHS:
            texts = [" ".join(["rain"] * (length - 2))] * len(queries)
            yield from calls(f"{length} tokens to vector", encoders, texts, config.rounds)
        yield from calls("text to ids", searches(encoders, config.documents), queries, config.rounds)
        for name, encode in encoders.items():
            if name != OPENVINO:  # it serves one thread
                rates = [queries_per_second(encode, queries, threads) for threads in (1, CALLERS)]
                yield {"what": "callers", "contestant": name, "per_second": rates}


def latency_table(run: Run) -> Table:
    """Calls one after the other: a query to its vector, texts of fixed lengths to theirs, and a query to ids."""
    timed = [row for row in run.rows if "p50_ms" in row]
    places = list(dict.fromkeys(row.what for row in timed))
    timed.sort(key=lambda row: (places.index(row.what), row.p50_ms))
    columns = {
        "what": "what",
        "contestant": "contestant",
        "p50, ms": figure("p50_ms"),
        "p99, ms": figure("p99_ms"),
        "times the fastest's": lambda row: times(row.times_the_fastest),
    }
    return table(run, columns, 2, timed)


TABLES = {"latency_table": latency_table}

if __name__ == "__main__":
    harness.run(measure, Latency)
