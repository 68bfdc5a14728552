"""One call at a time: a query to its vector, a query to its ids, eight callers, and documents of 512 tokens.

    python -m benchmarks.latency [--rounds 4] [--queries 100] [--documents 100000]

all-MiniLM-L6-v2, mean pooling and unit length, float32 unless a name says otherwise; queries are sentences of
sts_sample. In every round each contestant, in rotated order, answers all queries one after the other; p50 and p99 are
over the calls of all rounds, and ratios are of the rounds' medians. `tokenizers, ONNX Runtime` and `tokenizers,
OpenVINO` are the shortest programs that people write around these engines: tokenise, run, divide by the norm.

    lengths    one text of 8, 16 and 64 tokens
    search     text to ids over --documents coded documents of 48 bytes, from Python and by `jaxwhiten search`, and
               the same queries by sentence-transformers or ONNX Runtime with FAISS over float32 vectors
    callers    queries per second from one thread and from eight that share one encoder
    documents  texts of 512 tokens per second
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import CONTESTANTS, Encode, Job, exported, local_fastembed, quiet
from benchmarks.encode import MINILM, MODEL, texts_of
from benchmarks.harness import (
    PAUSE,
    figure,
    flat,
    in_words,
    interleave,
    median,
    ratio,
    rotated,
    save,
    table,
    times,
)
from eval.report import Table
from eval.runs import Run
from jaxwhiten import Encoder, normalize
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.datasets import load_sts
from jaxwhiten.models import resolve_folder
from jaxwhiten.search import build_index
from jaxwhiten.text import BulkTokenizer

LENGTH = 512
CALLERS = 8
BYTES = 48
ONNX = "tokenizers, ONNX Runtime"
OPENVINO = "tokenizers, OpenVINO"
WITHOUT_SPINNING = f"{ONNX} without spinning"  # its idle threads sleep, and leave the cores to FAISS's
JAX = "jaxwhiten, engine jax"
LENGTHS = (8, 16, 64)  # of single texts
EXACT = 1e-5  # by how much a float32 contestant's vectors may differ from ours


def encoders(job: Job) -> dict[str, Callable[[str], np.ndarray]]:
    """From a name to a function from one text to its vector, as a user of that library would write it."""
    encode = our_encoders(job) | {"jaxwhiten, bfloat16": Encoder.from_pretrained(job.folder, dtype="bfloat16").encode}
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(job.folder), device="cpu")
    encode["sentence-transformers"] = lambda text: peer.encode(text, show_progress_bar=False)
    try:
        light = local_fastembed(job, normalization=True)
        encode["fastembed"] = lambda text: next(iter(light.embed(text)))
    except ImportError as error:
        print(f"  skipped fastembed: {error}", file=sys.stderr)
    return encode | {ONNX: by_onnx(job, "1"), WITHOUT_SPINNING: by_onnx(job, "0"), OPENVINO: by_openvino(job)}


def our_encoders(job: Job) -> dict[str, Callable[[str], np.ndarray]]:
    """Ours in float32, by the default engine and by JAX."""
    return {
        "jaxwhiten": Encoder.from_pretrained(job.folder).encode,
        JAX: Encoder.from_pretrained(job.folder, engine="jax").encode,
    }


def by_onnx(job: Job, spinning: str) -> Callable[[str], np.ndarray]:
    """The shortest program around ONNX Runtime, whose threads wait in a loop ("1") or asleep ("0")."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    session = onnxruntime.InferenceSession(exported(job), options, providers=["CPUExecutionProvider"])
    return shortest(job, lambda feed: session.run(None, feed)[0])


def by_openvino(job: Job, **hints: Any) -> Callable[[str], np.ndarray]:
    """The shortest program around OpenVINO in float32."""
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", **hints}
    compiled = core.compile_model(core.read_model(exported(job)), "CPU", hints)
    return shortest(job, lambda feed: compiled(feed)[0])


def shortest(job: Job, run: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[str], np.ndarray]:
    """The shortest program around an engine."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(job.folder / "tokenizer.json"))
    tokenizer.enable_truncation(job.max_length)
    tokenizer.no_padding()

    def encode(text: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        vector = run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        return vector / np.linalg.norm(vector)

    return encode


def calls(
    contestants: dict[str, Callable[[str], Any]], queries: list[str], rounds: int
) -> tuple[dict[str, dict[str, Any]], dict[str, list[float]]]:
    """Milliseconds per call: p50, p99 and, round by round, the median."""
    times: dict[str, list[list[float]]] = {name: [] for name in contestants}
    for run in contestants.values():
        for query in queries:
            run(query)
    for number in range(rounds):
        for name in rotated(list(contestants), number):
            run = contestants[name]
            of_round = []
            time.sleep(PAUSE)
            for query in queries:
                start = time.perf_counter()
                run(query)
                of_round.append(1000 * (time.perf_counter() - start))
            times[name].append(of_round)
    medians = {name: [median(of_round) for of_round in rows] for name, rows in times.items()}
    table = {
        name: {"p50_ms": float(np.quantile(rows, 0.5)), "p99_ms": float(np.quantile(rows, 0.99))}
        for name, rows in times.items()
    }
    return table, medians


def report(title: str, table: dict[str, dict[str, Any]], medians: dict[str, list[float]]) -> dict[str, Any]:
    """Prints p50 and p99, fastest first, each with how many times longer it takes than the fastest."""
    fastest = min(table, key=lambda name: table[name]["p50_ms"])
    print(f"\n{title}\n  {'':40}{'p50 ms':>8}{'p99 ms':>8}  times the fastest's")
    for name in sorted(table, key=lambda name: table[name]["p50_ms"]):
        row = table[name]
        row["times_the_fastest"] = ratio(medians, fastest, name)
        print(f"  {name:40}{row['p50_ms']:8.2f}{row['p99_ms']:8.2f}  {times(row['times_the_fastest'])}")
    return table


def search(job: Job, encode: dict[str, Callable[[str], np.ndarray]], documents: int) -> dict[str, Callable[[str], Any]]:
    """Text to ids: our coded index, and FAISS over float32 vectors behind the peers; documents are random vectors."""
    import faiss

    x = vectors_of(documents)
    flat = faiss.IndexFlatIP(384)
    code = SpectrumCode(bytes=BYTES).fit(x[:20_000])
    flat.add(x)
    searches: dict[str, Callable[[str], Any]] = {}
    for backend in ("faiss-flat", "jax"):
        coded = build_index(x, backend, codes=code)
        for engine in ("jaxwhiten", JAX):
            name = f"{engine}, {backend} of {BYTES} bytes"
            searches[name] = lambda text, engine=engine, coded=coded: coded.search(encode[engine](text)[None], 10)
    for peer in ("sentence-transformers", ONNX, WITHOUT_SPINNING):
        searches[f"{peer}, FAISS float32"] = lambda text, peer=peer: flat.search(encode[peer](text)[None], 10)
    return searches


def vectors_of(documents: int) -> np.ndarray:
    """Random vectors of unit length."""
    return normalize(np.random.default_rng(0).standard_normal((documents, 384)).astype(np.float32))


@contextlib.contextmanager
def by_command(job: Job, documents: int) -> Iterator[Callable[[str], Any]]:
    """Text to texts by `jaxwhiten search`, which reads queries from a pipe, over coded documents with texts."""
    encoding = Encoder.from_pretrained(job.folder).encoding()
    texts = [f"document {number}" for number in range(documents)]
    index = build_index(vectors_of(documents), bytes=BYTES, codes="spectrum", encoding=encoding, documents=texts)
    index.save(job.scratch / "docs.db")
    words = [sys.executable, "-m", "jaxwhiten.commands.cli", "search", str(job.scratch / "docs.db"), "--json"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pipe_in = process.stdin
        pipe_out = process.stdout

        def search(text: str) -> str:
            pipe_in.write(text + "\n")
            return pipe_out.readline()

        yield search
        pipe_in.close()


def callers(encode: Callable[[str], np.ndarray], queries: list[str], threads: int) -> float:
    """Queries per second by so many threads, each of which asks all queries."""

    def call() -> None:
        for query in queries:
            encode(query)

    started = [threading.Thread(target=call) for _ in range(threads)]
    start = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return threads * len(queries) / (time.perf_counter() - start)


def long_documents(folder: Path, exports: Path, tokens: int, rounds: int) -> dict[str, Any]:
    """Texts of `LENGTH` tokens per second."""
    tokenizer = BulkTokenizer(folder, LENGTH)
    long = texts_of("long", tokenizer, 4 * tokens)
    words = " ".join(long).split()
    texts = [" ".join(words[start : start + LENGTH]) for start in range(0, len(words) - LENGTH, LENGTH)][
        : tokens // LENGTH
    ]
    names = [
        name
        for name, contestant in CONTESTANTS.items()
        if contestant.large and (contestant.exact or ("bfloat16" in name and not contestant.gpu))
    ]
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(folder, LENGTH, tokenizer, Path(scratch), exports, "cpu", "float32")
        run: dict[str, Encode] = {name: CONTESTANTS[name].make(job) for name in names}
        seconds = interleave({name: lambda name=name: run[name](texts) for name in run}, rounds)
    print(f"\n{len(texts)} documents of {LENGTH} tokens, per second")
    figures = {
        name: {"per_second": len(texts) / median(times), "speed_of_ours": ratio(seconds, "jaxwhiten", name)}
        for name, times in seconds.items()
    }
    for name, row in figures.items():
        print(f"  {name:40}{row['per_second']:8.1f}  {in_words(row['speed_of_ours'])}")
    return figures


TO_VECTOR = "text to vector"
TO_IDS = "text to ids"
SHARED = "callers"
DOCUMENTS = "documents"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--documents", type=int, default=100_000, help="in the index that is searched")
    parser.add_argument("--tokens", type=int, default=16_384, help="of the long documents")
    args = parser.parse_args()
    folder = Path(resolve_folder(MODEL))
    pairs = load_sts("sts_sample").splits["test"]
    queries = list(dict.fromkeys(pairs.sentence1))[: args.queries]
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(folder, 128, BulkTokenizer(folder, 128), Path(scratch), Path(scratch), "cpu", "float32")
        with quiet():
            by_encoder = encoders(job)
        reference = np.stack([by_encoder["jaxwhiten"](query) for query in queries])
        for name, encode in by_encoder.items():
            worst = float(np.abs(np.stack([encode(query) for query in queries]) - reference).max())
            if "bfloat16" not in name and worst > EXACT:
                raise SystemExit(f"{name} gives other vectors, by up to {worst:.1e}: there is nothing to compare")
        lengths = job.tokenizer(queries).lengths
        title = f"{MINILM}, one of {len(queries)} queries of {lengths.min()} to {lengths.max()} tokens"
        short = report(title, *calls(by_encoder, queries, args.rounds))
        by_length = {}
        for length in LENGTHS:
            texts = [" ".join(["rain"] * (length - 2))] * len(queries)
            by_length[f"{length} tokens to vector"] = report(
                f"one text of {length} tokens", *calls(by_encoder, texts, args.rounds)
            )
        with by_command(job, args.documents) as by_pipe:
            searches = search(job, by_encoder, args.documents) | {"jaxwhiten search, by a pipe": by_pipe}
            to_ids = calls(searches, queries, args.rounds)
        searched = report(f"text to ids, {args.documents:,} documents", *to_ids)
        print(f"\nqueries per second by 1 thread and by {CALLERS}")
        shared = {}
        for name, encode in (
            (name, function) for name, function in by_encoder.items() if name != OPENVINO
        ):  # it serves one thread
            shared[name] = [callers(encode, queries, threads) for threads in (1, CALLERS)]
            print(f"  {name:40}{shared[name][0]:8.0f}{shared[name][1]:8.0f}")
        documents = long_documents(folder, job.exports, args.tokens, args.rounds)
    by_threads = {name: {"per_second": rates} for name, rates in shared.items()}
    parts = {TO_VECTOR: short, **by_length, TO_IDS: searched, SHARED: by_threads, DOCUMENTS: documents}
    save("latency", flat(parts, "what", "contestant"))


if __name__ == "__main__":
    main()
