"""Memory of encoding, fitting and indexing beside peers: how far each process grows, per million vectors.

    python -m benchmarks.memory [--rows 500000] [--sentences 20000] [--first 2000]

Every row is a process of its own that first does the same on a few rows, so that code and compiled programs are not
counted, and then reports by how much the most it held exceeds what it held before. Vectors of 384 columns lie in a
file; ours reads it as a memory map, whose pages count while they are in memory. `stream` encodes without keeping the
vectors, twice: it is flat where the longer stream takes no more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.encode import MODEL
from benchmarks.harness import flat, printed, save
from jaxwhiten.models import resolve_folder

WIDTH = 384
FRAME = """
import sys, threading, time
import numpy as np
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
file, folder, rows, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
texts = lambda n: [f"Number {{i}}: a man plays a guitar on a stage at night." for i in range(n)]
{ready}
def work(n):
    {statement}
work(first)
before, most, going = held(), 0, True
def watch():
    global most
    while going:
        most = max(most, held())
        time.sleep(0.005)
thread = threading.Thread(target=watch)
thread.start()
kept = work(rows)
most, going = max(most, held()), False
thread.join()
print(most - before)
"""
READ = 'x = np.load(file, mmap_mode="r")'
OURS = "from jaxwhiten import Encoder\nencoder = Encoder.from_pretrained(folder)"
PEER = 'from sentence_transformers import SentenceTransformer\nencoder = SentenceTransformer(folder, device="cpu")'
STREAM = "return sum(x.sum() for x in encoder.encode_stream(iter(texts(first) * (n // first)), show_progress=False))"
# What is measured -> name -> what comes first, what is measured, rows in place of all.
PARTS: dict[str, dict[str, tuple[str, str]]] = {
    "fit": {
        "jaxwhiten Whitening": (f"from jaxwhiten import Whitening\n{READ}", "return Whitening().fit(x[:n])"),
        "scikit-learn PCA": (
            f"from sklearn.decomposition import PCA\n{READ}",
            'return PCA(whiten=True, svd_solver="covariance_eigh").fit(x[:n])',
        ),
    },
    "index": {
        "jaxwhiten, 48 bytes": (
            f"from jaxwhiten import build_index\n{READ}",
            'return build_index(x[:n], codes="spectrum", bytes=48)',
        ),
        "jaxwhiten, float32": (f"from jaxwhiten import build_index\n{READ}", "return build_index(x[:n])"),
        "FAISS, float32": (
            f"import faiss\n{READ}",
            "index = faiss.IndexFlatIP(x.shape[1]); index.add(np.ascontiguousarray(x[:n])); return index",
        ),
    },
    "encode": {
        "jaxwhiten": (OURS, "return encoder.encode(texts(n), show_progress=False)"),
        "jaxwhiten, stream": (OURS, STREAM),
        "jaxwhiten, stream twice as long": (OURS, STREAM.replace("(n // first)", "(2 * n // first)")),
        "sentence-transformers": (PEER, "return encoder.encode(texts(n), show_progress_bar=False)"),
    },
}


def growth(ready: str, statement: str, file: Path, folder: Path, rows: int, first: int) -> int:
    """Bytes by which a process grows."""
    code = FRAME.format(ready=ready, statement=statement)
    return int(printed(["-c", code, str(file), str(folder), str(rows), str(first)], HF_HUB_OFFLINE="1"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000, help="vectors to fit and to index")
    parser.add_argument("--sentences", type=int, default=20_000, help="to encode; a multiple of --first")
    parser.add_argument("--first", type=int, default=2000, help="rows of the work that comes before and is not counted")
    parser.add_argument("--model", default=MODEL, help="all-MiniLM-L6-v2, where it lies")
    args = parser.parse_args()
    folder = Path(resolve_folder(args.model))
    figures = dict[str, dict[str, dict[str, float]]]()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "vectors.npy"
        x = np.lib.format.open_memmap(file, "w+", np.float32, (args.rows, WIDTH))
        for start in range(0, args.rows, 50_000):
            x[start : start + 50_000] = np.random.default_rng(start).standard_normal(
                (min(50_000, args.rows - start), WIDTH)
            )
        x.flush()
        for part, contestants in PARTS.items():
            rows = args.sentences if part == "encode" else args.rows
            print(f"{part}, {rows:,} rows: MB, and GB per million")
            figures[part] = {}
            for name, (ready, code) in contestants.items():
                grown = growth(ready, code, file, folder, rows, args.first)
                figures[part][name] = {"grown_mb": grown / 1e6}
                print(f"  {name:36}{grown / 1e6:9.1f}{grown / rows / 1e3:8.2f}", flush=True)
    save("memory", flat(figures, "part", "contestant"), vectors=args.rows, sentences=args.sentences, width=WIDTH)


if __name__ == "__main__":
    main()
