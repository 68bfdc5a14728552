"""Encoding beside sentence-transformers and ONNX Runtime: the same weights, texts and lengths, in turn.

    python -m benchmarks.encode [--rounds 4] [--tokens N] [--no-base]

Texts that every machine has: `short` are the sentences of sts_sample, `long` docstrings of Python's standard library
of up to 512 tokens, `mixed` their first sentences and their rests, up to 128 tokens. all-MiniLM-L6-v2 on each, and a
random encoder of BERT-base's size on a sixth of `mixed`, in two rounds. sentence-transformers sorts by length itself
and pads to the longest of a batch of 32, its default; ONNX Runtime gets length-sorted batches of about 2,048 tokens,
padded to their longest. On a GPU (`pip install 'jaxwhiten[cuda,parity]'` and a PyTorch with CUDA), all in bfloat16:
sentence-transformers there with SDPA attention and batches of 32 and of 256; ONNX Runtime on the CPU would be no peer,
and is left out. Mean pooling, no normalisation. Rates are of whole calls, tokenisation included; `share` is the
rate of forward FLOPs of real tokens over that of a large matmul of that dtype in the same round: clocks rise and fall.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import in_words, interleave, median, ratio, save, torch_device
from jaxwhiten import Encoder
from jaxwhiten.datasets import load_pydocs, load_sts
from jaxwhiten.models import load_model, resolve_folder
from jaxwhiten.text import BulkTokenizer

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TOKEN_BUDGET = 2048  # of ONNX Runtime's batches
MATMULS = 4  # in a row


class Setting(NamedTuple):
    """What differs between devices."""

    device: str  # as PyTorch calls it
    dtype: str  # of matrix products
    tokens: int  # of each kind of text
    matmul: int  # rows of a square matrix, large enough to be multiplied at the device's rate
    tolerance: float  # of vectors, relative to the largest component

    @property
    def matmul_flops(self) -> float:
        """Of what is timed as the device's rate."""
        return MATMULS * 2.0 * self.matmul**3


SETTINGS = {
    "cpu": Setting("cpu", "float32", 32_000, 3072, 1e-4),
    "cuda": Setting("cuda", "bfloat16", 2_000_000, 8192, 5e-2),
}


def texts_of(kind: str, tokenizer: BulkTokenizer, tokens: int) -> list[str]:
    """Texts of one kind, of about so many tokens in all."""
    if kind == "short":
        pairs = load_sts("sts_sample").splits["test"]
        texts = [*pairs.sentence1, *pairs.sentence2]
    else:
        docs = load_pydocs()
        texts = list(docs.documents) if kind == "long" else [*docs.queries, *docs.documents]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    lengths = tokenizer(texts).lengths
    if kind == "long":  # the longer half, so that long texts are long
        texts = [text for text, length in zip(texts, lengths, strict=True) if length >= np.median(lengths)]
        lengths = tokenizer(texts).lengths
    texts = texts * -(-tokens // int(lengths.sum()))  # over again, where more are asked for than there are
    return texts[: max(int(np.searchsorted(np.cumsum(np.resize(lengths, len(texts))), tokens)), 1)]


def peer_sentence_transformers(folder: Path, max_length: int, dtype: str, device: str, batch_size: int = 32):
    """sentence-transformers with its own batching."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    attention = {"attn_implementation": "sdpa"}
    transformer = modules.Transformer(str(folder), model_kwargs=attention, max_seq_length=max_length)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device=device).to(getattr(torch, dtype))
    return lambda texts: model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def peer_onnxruntime(folder: Path, tokenizer: BulkTokenizer, scratch: Path):
    """ONNX Runtime on the graph PyTorch exports, with the same tokenizer and length sorting as ours."""
    import onnxruntime
    import torch
    from transformers import AutoModel

    class MeanPooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, ids, mask):
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask[:, :, None].float()
            return (hidden * weights).sum(1) / weights.sum(1)

    ids, path, axes = torch.ones(2, 7, dtype=torch.long), scratch / "model.onnx", {0: "batch", 1: "length"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            MeanPooled(),
            (ids, torch.ones_like(ids)),
            path,
            input_names=["ids", "mask"],
            output_names=["vectors"],
            dynamic_axes={"ids": axes, "mask": axes, "vectors": {0: "batch"}},
            dynamo=False,
        )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def encode(texts: list[str]) -> np.ndarray:
        tokens = tokenizer(texts)
        order, start, parts = np.argsort(-tokens.lengths, kind="stable"), 0, []
        while start < len(order):
            length = int(tokens.lengths[order[start]])
            rows = order[start : start + max(TOKEN_BUDGET // length, 1)]
            start += len(rows)
            mask = (np.arange(length) < tokens.lengths[rows][:, None]).astype(np.int64)
            padded = tokens.padded(rows, len(rows), length, 0).astype(np.int64)
            parts.append((rows, session.run(None, {"ids": padded, "mask": mask})[0]))
        out = np.empty((len(texts), parts[0][1].shape[1]), np.float32)
        for rows, vectors in parts:
            out[rows] = vectors
        return out

    return encode


def write_random_base(folder: Path, tokenizer_folder: Path) -> None:
    """An encoder of BERT-base's size with random weights and the given tokenizer."""
    import shutil

    from transformers import BertConfig, BertModel

    BertModel(BertConfig()).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(tokenizer_folder / name, folder / name)


def large_matmuls(setting: Setting) -> Callable[[object], object]:
    """Matmuls in JAX of `setting.matmul_flops` in all."""
    a = jnp.ones((setting.matmul, setting.matmul), setting.dtype)
    multiply = jax.jit(lambda x: jnp.matmul(x, x, precision="highest" if setting.dtype == "float32" else None))
    return lambda _: [multiply(a).block_until_ready() for _ in range(MATMULS)]


def has_fast_bfloat16() -> bool:
    """Whether PyTorch multiplies bfloat16 matrices at least half as fast as float32 ones on this CPU."""
    import torch

    def seconds(dtype) -> float:
        a = torch.ones(256, 256, dtype=dtype)
        return min(interleave({"matmul": lambda: a @ a}, rounds=3)["matmul"])

    return seconds(torch.bfloat16) < 2 * seconds(torch.float32)


def forward_flops(lengths: np.ndarray, sizes) -> float:
    """FLOPs of the matrix products of a forward pass over real tokens."""
    attention = 4 * sizes.hidden_size * lengths.astype(np.float64) ** 2
    return sizes.num_layers * float((lengths * sizes.layer_flops + attention).sum())


def peers(
    model: Path, tokenizer: BulkTokenizer, max_length: int, scratch: Path, setting: Setting, bfloat16: bool
) -> dict[str, Callable[[list[str]], np.ndarray]]:
    """What ours is compared with on this device."""

    def sentence_transformers(dtype: str, **how):
        return peer_sentence_transformers(model, max_length, dtype, setting.device, **how)

    if setting.device != "cpu":
        return {
            "sentence-transformers": sentence_transformers(setting.dtype),
            "the same, batches of 256": sentence_transformers(setting.dtype, batch_size=256),
        }
    found = {
        "sentence-transformers": sentence_transformers("float32"),
        "onnxruntime": peer_onnxruntime(model, tokenizer, scratch),
    }
    return found | ({"sentence-transformers bfloat16": sentence_transformers("bfloat16")} if bfloat16 else {})


def measure(label: str, model: Path, kind: str, max_length: int, setting: Setting, rounds: int, bfloat16: bool) -> dict:
    """All contestants on one kind of text."""
    sizes = load_model(model)[1]
    tokenizer = BulkTokenizer(model, max_length)
    texts = texts_of(kind, tokenizer, setting.tokens)
    lengths = tokenizer(texts).lengths
    encoder = Encoder.from_pretrained(model, pooling="mean", max_length=max_length, dtype=setting.dtype)
    start = time.perf_counter()
    first = encoder.encode(texts, show_progress=False)
    first_seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as scratch:
        contestants = {
            "jaxwhiten": lambda texts: encoder.encode(texts, show_progress=False),
            **peers(model, tokenizer, max_length, Path(scratch), setting, bfloat16),
        }
        for name in contestants.keys() - {"sentence-transformers bfloat16"}:
            found = np.abs(contestants[name](texts) - first).max() / np.abs(first).max()
            assert found < setting.tolerance, f"{name} gives other vectors: {found}"
        timed = {"matmul": large_matmuls(setting), **contestants}
        seconds = interleave({name: lambda run=run: run(texts) for name, run in timed.items()}, rounds)
    matmul = seconds.pop("matmul")
    work = forward_flops(lengths, sizes) / setting.matmul_flops
    padded = sum(batch.tokens for batch in encoder.plan(lengths))
    total = int(lengths.sum())
    result = {
        "encoder": label,
        "texts": kind,
        "count": len(texts),
        "tokens_a_text": total / len(texts),
        "max_length": max_length,
        "setting": setting._asdict(),
        "padding_share": 1 - total / padded,
        "first_call_seconds": first_seconds,
        "seconds": seconds,
        "sentences_per_second": {name: len(texts) / median(s) for name, s in seconds.items()},
        "tokens_per_second": {name: total / median(s) for name, s in seconds.items()},
        "matmul_flops_per_second": setting.matmul_flops / median(matmul),
        "share_of_matmul_rate": {
            name: work * median([a / b for a, b in zip(matmul, s, strict=True)]) for name, s in seconds.items()
        },
        "ratio": {name: ratio(seconds, "jaxwhiten", name) for name in contestants if name != "jaxwhiten"},
    }
    print(
        f"\n{label}, {kind}: {len(texts)} texts of {total / len(texts):.0f} tokens, "
        f"padding {result['padding_share']:.0%}, {setting.dtype} matmul at "
        f"{result['matmul_flops_per_second'] / 1e9:.0f} GFLOP/s"
    )
    for name in contestants:
        print(
            f"  {name:31}{result['sentences_per_second'][name]:8.0f} texts/s"
            f"{result['tokens_per_second'][name]:9.0f} tokens/s"
            f"  share {result['share_of_matmul_rate'][name]:.2f}  {in_words(result['ratio'].get(name))}",
            flush=True,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, help="of each kind of text; 32,000 on a CPU, 2,000,000 on a GPU")
    parser.add_argument("--no-base", action="store_true", help="leave the encoder of BERT-base's size out")
    args = parser.parse_args()
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", category=DeprecationWarning)

    setting = SETTINGS[torch_device()]
    setting = setting._replace(tokens=args.tokens or setting.tokens)
    folder, bfloat16 = Path(resolve_folder(MODEL)), setting.device == "cpu" and has_fast_bfloat16()
    if setting.device == "cpu" and not bfloat16:
        print("this CPU has no fast bfloat16: sentence-transformers is timed in float32 only")
    how = {"rounds": args.rounds, "bfloat16": bfloat16}
    kinds = (("short", 64), ("mixed", 128), ("long", 512))
    results = [measure("all-MiniLM-L6-v2", folder, *kind, setting, **how) for kind in kinds]
    if not args.no_base:
        with tempfile.TemporaryDirectory() as base:
            write_random_base(Path(base), folder)
            few = setting._replace(tokens=max(setting.tokens // 6, 1))
            results.append(measure("BERT-base's size", Path(base), "mixed", 128, few, **(how | {"rounds": 2})))
    save("encode", {"bfloat16": bfloat16, "results": results})


if __name__ == "__main__":
    main()
