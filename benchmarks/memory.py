"""Memory of encoding, fitting and indexing beside peers, and of texts of 2,048 and 8,192 tokens, with their time.

    python -m benchmarks.memory [--rows 500000] [--sentences 20000] [--first 2000] [--lengths 2048,8192]

Every row is a process of its own that first does the same on a few rows, so that code and compiled programs are not
counted, and then reports by how much the most it held exceeds what it held before. Vectors of 384 columns lie in a
file; ours reads it as a memory map, whose pages count while they are in memory. `stream` encodes without keeping the
vectors, twice: it is flat where the longer stream takes no more.

Long texts are encoded one by one, by a ModernBERT of 6 layers and width 384 with random weights and windows of 128
tokens, two layers of which see all tokens. There what a first text needs counts as growth, and `ONNX Runtime` runs the
graph that jaxwhiten exports.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import printed
from configs.settings import Config, setting
from jaxwhiten.models import resolve_folder

WIDTH = 384
FRAME = """
import json, sys, threading, time
import numpy as np
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
file, folder, rows, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
texts = lambda n: [f"Number {{i}}: a man plays a guitar on a stage at night." for i in range(n)]
words = np.random.default_rng(0).choice(["music", "river", "stone", "winter", "paper", "window"], 10_000).tolist()
{ready}
def work(n):
    {statement}
if first:
    work(first)
before, most, going = held(), 0, True
def watch():
    global most
    while going:
        most = max(most, held())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
kept = work(rows)
most, going = max(most, held()), False
thread.join()
start = time.perf_counter()
if not first:
    kept = work(rows)
print(json.dumps([most - before, time.perf_counter() - start, np.ravel(kept).tolist() if not first else None]))
"""
READ = 'x = np.load(file, mmap_mode="r")'
OURS = "from jaxwhiten import Encoder\nencoder = Encoder.from_pretrained(folder)"
PEER = 'from sentence_transformers import SentenceTransformer\nencoder = SentenceTransformer(folder, device="cpu")'
STREAM = "return sum(x.sum() for x in encoder.encode_stream(iter(texts(first) * (n // first)), show_progress=False))"
Work = tuple[str, str]  # what comes first, and what is measured
PARTS: dict[str, dict[str, Work]] = {
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
LONG = 'return encoder.encode(" ".join(words[: n - 2]))'
OPTIONS = 'folder, pooling="mean", max_length=8192'
GRAPH = """
import onnxruntime
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
tokenizer.enable_truncation(8192)
session = onnxruntime.InferenceSession(folder + "/../onnx/model.onnx", providers=["CPUExecutionProvider"])
class encoder:
    def encode(text):
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        return session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
"""
LONG_TEXTS: dict[str, Work] = {
    "jaxwhiten": (OURS.replace("folder", OPTIONS), LONG),
    "jaxwhiten, bfloat16": (OURS.replace("folder", f'{OPTIONS}, dtype="bfloat16"'), LONG),
    "jaxwhiten, engine jax": (OURS.replace("folder", f'{OPTIONS}, engine="jax"'), LONG),
    "sentence-transformers": (PEER, LONG),
    "ONNX Runtime": (GRAPH, LONG),
}
EXACT = 1e-3  # relative difference of float32 vectors
SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 6, "num_attention_heads": 12}
SIZES |= {"intermediate_size": 1536, "max_position_embeddings": 8192, "pad_token_id": 0, "vocab_size": 30522}


@dataclass(slots=True)
class Memory(Config):
    """The settings of benchmarks.memory."""

    rows: int = setting(500_000, "vectors to fit and to index")
    sentences: int = setting(20_000, "to encode; a multiple of --first")
    first: int = setting(2000, "rows of the work that comes before and is not counted")
    lengths: str = setting("2048,8192", "of long texts, in tokens; empty for none")
    model: str = setting(harness.MINILM, "all-MiniLM-L6-v2, where it lies")


def grown(work: Work, file: Path, folder: Path, rows: int, first: int) -> tuple[float, float, list[float] | None]:
    """MB by which a process grows; without a first run the seconds and the result of a second one."""
    code = FRAME.format(ready=work[0], statement=work[1])
    size, *rest = printed(["-c", code, str(file), str(folder), str(rows), str(first)], HF_HUB_OFFLINE="1")
    return size / 1e6, *rest


def write_vectors(file: Path, rows: int) -> None:
    """Normal vectors in a file."""
    x = np.lib.format.open_memmap(file, "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, 50_000):
        part = x[start : start + 50_000]
        part[:] = np.random.default_rng(start).standard_normal(part.shape)
    x.flush()


def write_model(folder: Path) -> None:
    """An encoder of long texts with a tokenizer, read by all contestants, and its ONNX graph."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import ModernBertConfig, ModernBertModel

    from jaxwhiten import Encoder
    from jaxwhiten.export import save_onnx

    plain = folder / "plain"
    tokenizer = Path(resolve_folder(harness.MINILM))
    torch.manual_seed(0)
    ModernBertModel(ModernBertConfig(**SIZES)).save_pretrained(plain)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(tokenizer / name, plain / name)
    transformer = models.Transformer(str(plain), max_seq_length=8192)
    transformer.tokenizer.model_max_length = 8192
    SentenceTransformer(modules=[transformer, models.Pooling(WIDTH)]).save(str(folder / "model"))
    encoder = Encoder.from_pretrained(folder / "model", pooling="mean", max_length=8192)
    save_onnx(folder / "onnx", encoder)


def measure(config: Memory) -> Iterator[harness.Row]:
    """The growth of each contestant, in each part."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "vectors.npy"
        write_vectors(file, config.rows)
        for part, contestants in PARTS.items():
            rows = config.sentences if part == "encode" else config.rows
            for name, work in contestants.items():
                size, *_ = grown(work, file, Path(resolve_folder(config.model)), rows, config.first)
                yield {"part": part, "contestant": name, "rows": rows, "grown_mb": size}
        if not config.lengths:
            return
        write_model(Path(scratch))
        for length in map(int, config.lengths.split(",")):
            expected = np.zeros(WIDTH)
            for name, work in LONG_TEXTS.items():
                size, seconds, vector = grown(work, file, Path(scratch) / "model", length, 0)
                expected = expected if expected.any() else np.array(vector)
                worst = float(np.abs(np.array(vector) - expected).max() / np.abs(expected).max())
                if "bfloat16" not in name and worst > EXACT:
                    raise SystemExit(f"{name} gives other vectors, by {worst:.1e}: there is nothing to compare")
                part = f"a text of {length:,} tokens"
                yield {"part": part, "contestant": name, "grown_mb": size, "seconds": seconds, "difference": worst}


if __name__ == "__main__":
    harness.run(measure, Memory)
