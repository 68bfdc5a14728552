"""What grows with the number of documents: building, saving a change, loading to the first hit, and one query.

    python -m benchmarks.growth [--documents 10000,100000,1000000,10000000]

Every step of every contestant is a process of its own. Documents are normal vectors of 384 dimensions with falling
variances, in a memory map, and texts of about 100 characters. Beyond a million, codes of random bytes take the place of
vectors, and FAISS is left out; LanceDB, which trains its quantizer for minutes, is beyond 100,000. A change adds 1,000
documents. `load` is the time from the file to the first hit with its text; `memory` is by how much a process grew:
when it builds, beyond the texts and with the pages of vectors that it has read, and when it has loaded.

Peers keep the same texts: FAISS's fast scan in its own file, with the texts as JSON lines, of which a change writes all
again; and LanceDB with an index of product quantization, whose table has texts and vectors.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import printed
from benchmarks.search_batches import SCALE, WIDTH
from configs.settings import Config, setting
from eval.plotting import COLORS, new_figure
from eval.runs import Run

BYTES = 48
CHANGE = 1000
QUERIES = 300
VECTORS = 1_000_000  # documents up to which there are vectors
BLOCK = 50_000
FRAME = """
import json, os, sys, time
import numpy as np
file, folder, n, nbytes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def held(name="VmRSS"):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3
def text(i):
    return f"Document number {i} says something in about a hundred characters, so that its size is that of a sentence."
def timed(run):
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start
x = np.load(file, mmap_mode="r")
queries = np.array(x[-QUERIES:])
new = [text(n + i) for i in range(CHANGE)]
""".replace("QUERIES", str(QUERIES)).replace("CHANGE", str(CHANGE))
BUILD = """
texts = [text(i) for i in range(n)]
before = held()
_, seconds = timed(lambda: build(texts))
peak = held("VmHWM")
parent, name = os.path.split(folder)
paths = [path for root, _, names in os.walk(parent) for path in (os.path.join(root, file) for file in names)]
size = sum(os.path.getsize(path) for path in paths if os.path.relpath(path, parent).startswith(name))
print(json.dumps({"build_s": seconds, "build_mb": peak - before, "folder_mb": size / 1e6}))
"""
LOAD = """
before = held()
(index, hit), seconds = timed(load)
after = held()
latencies = [timed(lambda: search(index, queries[i : i + 1]))[1] for i in range(1, len(queries))]
p50, p99 = np.percentile(latencies, [50, 99])
print(json.dumps({"load_s": seconds, "load_mb": after - before, "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3}))
"""
ADD = """
index, _ = load()
_, seconds = timed(lambda: add(index, x[:CHANGE], new))
saved, more = timed(lambda: keep(index))
print(json.dumps({"add_s": seconds, "save_s": more}))
""".replace("CHANGE", str(CHANGE))
OURS = """
from jaxwhiten.codes import SpectrumCode, load_code
from jaxwhiten.vectors import with_space
from jaxwhiten.search import build_index, load_index
def build(texts):
    code = load_code(file + ".code.safetensors")
    vectors = x if len(x) >= n else with_space(np.load(file + ".codes.npy", mmap_mode="r"), None, code)
    build_index(vectors[:n], codes=code, documents=texts).save(folder + ".db")
def load():
    index = load_index(folder + ".db")
    return index, search(index, queries[:1])
def search(index, query):
    return index.hits(query, 10)
def add(index, vectors, texts):
    index.add(vectors, documents=texts)
def keep(index):
    pass  # the change is in the file
"""
FAISS = """
import faiss
def write(index, texts):
    faiss.write_index(index, folder + "/index.faiss")
    with open(folder + "/texts.jsonl", "w") as out:
        out.writelines(json.dumps(text) + "\\n" for text in texts)
def build(texts):
    os.makedirs(folder)
    index = faiss.index_factory(x.shape[1], f"PQ{2 * nbytes}x4fs")
    index.train(np.array(x[:20_000]))
    for start in range(0, n, 50_000):
        index.add(np.array(x[start : min(n, start + 50_000)]))
    write(index, texts)
def load():
    index = faiss.read_index(folder + "/index.faiss")
    with open(folder + "/texts.jsonl") as lines:
        texts = [json.loads(line) for line in lines]
    return (index, texts), search((index, texts), queries[:1])
def search(index, query):
    return [index[1][row] for row in index[0].search(query, 10)[1][0]]
def add(index, vectors, texts):
    index[0].add(np.array(vectors))
    index[1].extend(texts)
def keep(index):
    write(*index)
"""
LANCE = """
import lancedb
import pyarrow as pa
def rows(vectors, texts):
    vectors = np.ascontiguousarray(vectors, np.float32)
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1]), "text": texts})
def build(texts):
    blocks = (rows(x[s : min(n, s + 50_000)], texts[s : s + 50_000]).to_batches()[0] for s in range(0, n, 50_000))
    table = lancedb.connect(folder).create_table("texts", blocks, schema=rows(x[:1], texts[:1]).schema)
    table.create_index(metric="cosine", index_type="IVF_PQ", num_partitions=1, num_sub_vectors=nbytes)
def load():
    table = lancedb.connect(folder).open_table("texts")
    return table, search(table, queries[:1])
def search(table, query):
    return table.search(query[0]).limit(10).select(["text", "_distance"]).to_list()
def add(table, vectors, texts):
    table.add(rows(vectors, texts))
def keep(table):
    pass
"""
PROGRAMS = {"jaxwhiten": OURS, "FAISS": FAISS, "LanceDB": LANCE}
PEERS = {"FAISS": ("faiss", VECTORS), "LanceDB": ("lancedb", 100_000)}  # the package, and documents at most


@dataclass(slots=True)
class Growth(Config):
    """The settings of benchmarks.growth."""

    documents: str = setting("10000,100000,1000000,10000000", "numbers of documents")
    peers: str = setting(",".join(PEERS), "those to measure, if they are installed")


def step(contestant: str, action: str, file: Path, folder: Path, documents: int) -> dict[str, float]:
    """What one process reports."""
    program = FRAME + PROGRAMS[contestant] + {"build": BUILD, "load": LOAD, "add": ADD}[action]
    words = ["-W", "ignore", "-c", program, str(file), str(folder), str(documents), str(BYTES)]
    report: dict[str, float] = printed(words, JAX_PLATFORMS="cpu")
    return report


def vectors(file: Path, documents: int) -> None:
    """Writes document vectors, a code fitted on some of them, and codes beyond them."""
    from jaxwhiten.codes import SpectrumCode

    rng = np.random.default_rng(0)
    rows = min(documents, VECTORS) + QUERIES
    x = np.lib.format.open_memmap(file, "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        x[start : start + size] = rng.standard_normal((size, WIDTH), np.float32) * SCALE
    x.flush()
    SpectrumCode(bytes=BYTES).fit(x[:100_000]).save(f"{file}.code.safetensors")
    if documents > VECTORS:
        codes = np.lib.format.open_memmap(f"{file}.codes.npy", "w+", np.uint8, (documents, BYTES))
        for start in range(0, documents, 20 * BLOCK):
            size = min(20 * BLOCK, documents - start)
            codes[start : start + size] = rng.integers(0, 256, (size, BYTES), np.uint8)
        codes.flush()


def draw(run: Run, path: Path) -> Path:
    """Seconds to the first hit, to save a change, and of one query, against the number of documents."""
    panels = {"load_s": ("from the file to the first hit", 1), "save_s": ("a change of 1,000 saved", 1)}
    panels["p50_ms"] = ("one query, median", 1e-3)
    with new_figure(path, 8.6, 3.0) as drawing:
        axes = drawing.subplots(1, len(panels), sharey=True)
        for axis, (key, (title, unit)) in zip(axes, panels.items(), strict=True):
            for name, color in zip(("jaxwhiten", "FAISS"), COLORS, strict=False):
                rows = [row for row in run.rows if row["index"] == name]
                documents = [row.documents for row in rows]
                values = [row[key] * unit for row in rows]
                axis.loglog(documents, values, marker="o", ms=5, lw=1.6, color=color, label=name)
            axis.set(xlabel="documents", title=title)
        axes[0].set(ylabel="seconds")
        drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return path


def measure(config: Growth) -> Iterator[harness.Row]:
    """Every step of every contestant that is installed and asked for."""
    yield harness.Facts(width=WIDTH, bytes=BYTES, change=CHANGE)
    limits = {name: limit for name, (package, limit) in PEERS.items() if importlib.util.find_spec(package)}
    for documents in map(int, config.documents.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "vectors.npy"
            vectors(file, documents)
            for name in ("jaxwhiten", *filter(None, config.peers.split(","))):
                if documents > limits.get(name, 0 if name in PEERS else documents):
                    continue
                row: dict[str, Any] = {"documents": documents, "index": name}
                for action in ("build", "load", "add"):
                    row |= step(name, action, file, Path(scratch) / name, documents)
                yield row


if __name__ == "__main__":
    harness.run(measure, Growth)
