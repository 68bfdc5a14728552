"""Encoding beside its peers: the same weights and texts, in rotated order, speed with quality.

    python -m benchmarks.encode [--rounds 3] [--tokens N] [--model FOLDER] [--texts short,mixed,long] [--base False]

Contestants are those of `benchmarks/contestants.py` that are installed; the others are named. Texts that need no
download: `short` are the sentences of sts_sample, `long` docstrings of Python's standard library of up to 512 tokens,
`mixed` their first sentences and their rests, up to 128 tokens; versions of Python differ in these two.
all-MiniLM-L6-v2 on each, and a random encoder of BERT-base's size on a quarter of `mixed`, in two rounds, for most.
sentence-transformers sorts by length itself and pads to the longest of a batch of 32, its default;
ONNX Runtime and OpenVINO get length-sorted batches of about 2,048 tokens, padded to their longest. On a GPU
(`pip install 'jaxwhiten[cuda,parity]'` and a PyTorch with CUDA), all in bfloat16: sentence-transformers there with SDPA
attention and batches of 32 and of 256; engines of the CPU would be no peers, and are left out.

Mean pooling. Rates are of whole calls, tokenization included, and every contestant has had one call before; a first
call is timed by itself. The minimum cosine is that to our vectors; Spearman × 100 is on STS-B where it is at hand.
"""

from __future__ import annotations

import functools
import logging
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.contestants import ENCODERS, Encode, Job, made
from benchmarks.harness import OURS, Facts, figure, interleave, median, ratio, speed_of_ours, table, torch_device
from configs.settings import Config, setting
from eval.data import load_sts
from eval.pydocs import load_pydocs
from eval.report import Table
from eval.runs import Record, Run
from jaxwhiten import metrics
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.models import load_config, resolve_folder
from jaxwhiten.text import BulkTokenizer

LENGTHS = {"short": 64, "mixed": 128, "long": 512}  # tokens at most, by kind of text


@dataclass(slots=True)
class Encoding(Config):
    """The settings of benchmarks.encode."""

    rounds: int = setting(3, "of each contestant")
    tokens: int = setting(0, "of each kind of text; 0 for 16,000 on a CPU, 2,000,000 on a GPU")
    model: str = setting(harness.MINILM, "all-MiniLM-L6-v2, where it lies")
    texts: str = setting(",".join(LENGTHS), "kinds")
    base: bool = setting(True, "whether an encoder of BERT-base's size is timed, too")
    pairs: int = setting(0, "scored; 0 for all of STS-B's test split, or of the sample")


class Device(NamedTuple):
    """Of a device: the dtype of ours, tokens of each kind of text, the least cosine of vectors that count as equal."""

    dtype: str
    tokens: int
    tolerance: float


DEVICES = {"cpu": Device("float32", 16_000, 0.99999), "cuda": Device("bfloat16", 2_000_000, 0.99)}


def texts_of(kind: str, tokenizer: BulkTokenizer, tokens: int) -> list[str]:
    """Texts of one kind, of about so many tokens in all."""
    if kind == "short":
        pairs = load_sts("sts_sample").splits["test"]
        texts = [*pairs.sentence1, *pairs.sentence2]
    else:
        docs = load_pydocs()
        texts = list(docs.documents)
        if kind != "long":
            texts = [*docs.queries, *texts]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
    lengths = tokenizer(texts).lengths
    if kind == "long":  # the longer half, so that long texts are long
        texts = [text for text, length in zip(texts, lengths, strict=True) if length >= np.median(lengths)]
        lengths = tokenizer(texts).lengths
    texts = texts * -(-tokens // int(lengths.sum()))  # over again, where more are asked for than there are
    return texts[: max(int(np.searchsorted(np.cumsum(np.resize(lengths, len(texts))), tokens)), 1)]


def write_random_base(folder: Path, tokenizer_folder: Path) -> None:
    """An encoder of BERT-base's size with random weights and the given tokenizer."""
    from transformers import BertConfig, BertModel

    BertModel(BertConfig()).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(tokenizer_folder / name, folder / name)


@functools.cache
def has_fast_bfloat16() -> bool:
    """Whether PyTorch multiplies bfloat16 matrices at least half as fast as float32 ones on this CPU."""
    import torch

    def seconds(dtype: Any) -> float:
        a = torch.ones(256, 256, dtype=dtype)
        return min(interleave({"matmul": lambda: a @ a}, rounds=3)["matmul"])

    return seconds(torch.bfloat16) < 2 * seconds(torch.float32)


def runs_on(name: str, device: str, large: bool) -> bool:
    """Whether a contestant is a peer on this device and of this encoder."""
    contestant = ENCODERS[name]
    if (large and not contestant.large) or (device != "cpu" and not contestant.gpu):
        return False
    return device != "cpu" or not (name.endswith("of 256") or ("bfloat16" in name and not has_fast_bfloat16()))


def sts_spearman(encode: Encode, count: int) -> tuple[str, float]:
    """Spearman × 100 on the test split of STS-B, or of the sample that ships here; on its first pairs, 0 for all."""
    try:
        name = "STS-B"
        pairs = load_sts("STS-B").splits["test"]
    except DataNotFoundError:
        name = "sts_sample"
        pairs = load_sts("sts_sample").splits["test"]
    sides = (pairs.sentence1[: count or None], pairs.sentence2[: count or None])
    first, second = np.split(np.asarray(encode([*sides[0], *sides[1]]), np.float32), 2)
    return name, 100 * metrics.spearman(metrics.cosine_pairs(first, second), np.asarray(pairs.score)[: len(first)])


def compare(
    label: str, kind: str, job: Job, config: Encoding, tokens: int, rounds: int, scored: bool
) -> Iterator[harness.Row]:
    """All contestants on one kind of text."""
    device = DEVICES[job.device]
    texts = texts_of(kind, job.tokenizer, tokens)
    total = int(job.tokenizer(texts).lengths.sum())
    makers = {
        name: functools.partial(contestant.make, job)
        for name, contestant in ENCODERS.items()
        if runs_on(name, job.device, large=job.folder != Path(resolve_folder(config.model)))
    }
    encoders, skipped = made(makers)
    yield Facts(skipped=skipped)
    figures: dict[str, dict[str, Any]] = {name: {} for name in encoders}
    expected = None
    for name, encode in encoders.items():
        start = time.perf_counter()
        vectors = np.asarray(encode(texts), np.float32)
        figures[name]["first_call_seconds"] = time.perf_counter() - start
        expected = vectors if expected is None else expected
        cosine = float(metrics.cosine_pairs(vectors, expected).min())
        if ENCODERS[name].exact and cosine < device.tolerance:
            raise SystemExit(f"{name} gives other vectors, so there is nothing to compare")
        scores = sts_spearman(encode, config.pairs) if scored else (None, None)
        figures[name] |= {"minimum_cosine": cosine, "scored_on": scores[0], "spearman": scores[1]}
    seconds = interleave(
        {name: functools.partial(encode, texts) for name, encode in encoders.items()}, rounds, warmup=0
    )
    for name, of_name in seconds.items():
        yield {
            "encoder": label,
            "texts": kind,
            "contestant": name,
            "count": len(texts),
            "tokens_a_text": total / len(texts),
            "texts_per_second": len(texts) / median(of_name),
            "tokens_per_second": total / median(of_name),
            "speed_of_ours": ratio(seconds, OURS, name),
            "seconds": of_name,
            **figures[name],
        }


def measure(config: Encoding) -> Iterator[harness.Row]:
    """Every kind of text with all-MiniLM-L6-v2, then `mixed` with a larger encoder."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    device = torch_device()
    tokens = config.tokens or DEVICES[device].tokens
    folder = Path(resolve_folder(config.model))
    longest = load_config(folder).longest_input
    with tempfile.TemporaryDirectory() as exports:
        for kind in config.texts.split(","):
            job = Job(folder, min(LENGTHS[kind], longest), Path(exports), device, DEVICES[device].dtype)
            yield from compare("all-MiniLM-L6-v2", kind, job, config, tokens, config.rounds, scored=kind == "mixed")
    if config.base:
        with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as exports:
            write_random_base(Path(base), folder)
            job = Job(Path(base), 128, Path(exports), device, DEVICES[device].dtype)
            rounds = min(2, config.rounds)
            yield from compare("BERT-base's size", "mixed", job, config, max(tokens // 4, 1), rounds, scored=False)


def described(row: Record) -> str:
    """Encoder and texts of a row."""
    return f"{row.encoder}, {row.texts}, {row.tokens_a_text:.0f} tokens"


def encode_table(run: Run) -> Table:
    """Every contestant: rate, our speed as a multiple of its, minimum cosine to ours, Spearman's correlation."""
    columns = {
        "texts": described,
        "contestant": "contestant",
        "texts/s": figure("texts_per_second", 0),
        "ours is faster by": speed_of_ours,
        "min cosine": figure("minimum_cosine", 4),
        "Spearman": figure("spearman"),
        "first call, s": figure("first_call_seconds", 1),
    }
    return table(run, columns)


TABLES = {"encode_table": encode_table}

if __name__ == "__main__":
    harness.run(measure, Encoding)
