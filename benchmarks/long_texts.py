"""Texts of 2,048 and 8,192 tokens: how fast one is encoded, and how far the process grows for it.

    python -m benchmarks.long_texts [--lengths 2048,8192] [--texts 4]

The encoder is a ModernBERT of 6 layers and width 384 with random weights and windows of 128 tokens, two layers of
which see all tokens. Every row is a process of its own, which encodes one text to compile, and then the others one by
one; growth is the most memory that it held then, beyond what it held before the first text. `ONNX Runtime` runs the
graph that jaxwhiten exports.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.encode import MODEL
from benchmarks.harness import flat, median, printed, save
from jaxwhiten.models import resolve_folder

SIZES: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
SIZES |= {"intermediate_size": 1536, "max_position_embeddings": 8192, "pad_token_id": 0, "vocab_size": 30522}
FRAME = """
import json, sys, threading, time
import numpy as np
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
folder, length, texts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
words = ["music", "river", "stone", "winter", "paper", "window"]
rng = np.random.default_rng(0)
texts = [" ".join(rng.choice(words, length - 2)) for _ in range(texts + 1)]
{ready}
before, most, going = held(), 0, True
def watch():
    global most
    while going:
        most = max(most, held())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
vectors, seconds = [], []
for text in texts:
    start = time.perf_counter()
    vectors.append(np.asarray(encode(text), float).tolist())
    seconds.append(time.perf_counter() - start)
going = False
thread.join()
print(json.dumps([seconds[1:], most - before, vectors[-1]]))
"""
OURS = """
from jaxwhiten import Encoder
encode = Encoder.from_pretrained(folder, pooling="mean", max_length=8192, {}).encode
"""
PEER = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(folder, device="cpu")
encode = lambda text: model.encode(text, show_progress_bar=False)
"""
ONNX = """
import onnxruntime
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
tokenizer.enable_truncation(8192)
session = onnxruntime.InferenceSession(folder + "/../onnx/model.onnx", providers=["CPUExecutionProvider"])
def encode(text):
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    return session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
"""
CONTESTANTS = {
    "jaxwhiten": OURS.format(""),
    "jaxwhiten, bfloat16": OURS.format('dtype="bfloat16"'),
    "jaxwhiten, engine jax": OURS.format('engine="jax"'),
    "sentence-transformers": PEER,
    "ONNX Runtime": ONNX,
}
EXACT = 1e-3  # relative difference of float32 vectors


def write_model(folder: Path) -> None:
    """The encoder with a tokenizer, read by all contestants, and its ONNX graph."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import ModernBertConfig, ModernBertModel

    from jaxwhiten import Encoder
    from jaxwhiten.export import save_onnx

    plain = folder / "plain"
    tokenizer = Path(resolve_folder(MODEL))
    torch.manual_seed(0)
    ModernBertModel(ModernBertConfig(**SIZES)).save_pretrained(plain)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(tokenizer / name, plain / name)
    transformer = models.Transformer(str(plain), max_seq_length=8192)
    transformer.tokenizer.model_max_length = 8192
    SentenceTransformer(modules=[transformer, models.Pooling(384)]).save(str(folder / "model"))
    encoder = Encoder.from_pretrained(folder / "model", pooling="mean", max_length=8192)
    save_onnx(folder / "onnx", encoder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", default="2048,8192", help="in tokens")
    parser.add_argument("--texts", type=int, default=4)
    args = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_model(Path(scratch))
        for length in args.lengths.split(","):
            rows: dict[str, Any] = {}
            print(f"one text of {length} tokens: seconds, and MB of growth")
            for name, ready in CONTESTANTS.items():
                words = ["-c", FRAME.format(ready=ready), f"{scratch}/model", length, str(args.texts)]
                seconds, grown, vector = printed(words, HF_HUB_OFFLINE="1")
                first = rows.setdefault("vector", np.array(vector))
                worst = float(np.abs(np.array(vector) - first).max() / np.abs(first).max())
                if "bfloat16" not in name and worst > EXACT:
                    raise SystemExit(f"{name} gives other vectors, by {worst:.1e}: there is nothing to compare")
                rows[name] = {"seconds": seconds, "grown_mb": grown / 1e6, "difference": worst}
                print(f"  {name:40}{median(seconds):8.2f}{grown / 1e6:9.0f}{worst:10.1e}", flush=True)
            del rows["vector"]
            figures[length] = rows
    save("long_texts", flat(figures, "tokens", "contestant"), sizes=SIZES, texts=args.texts)


if __name__ == "__main__":
    main()
