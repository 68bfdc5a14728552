"""Encoding beside its peers: the same weights and texts, in rotated order, speed with quality.

    python -m benchmarks.encode [--rounds 3] [--tokens N] [--model FOLDER] [--texts short mixed long] [--no-base]

Contestants are those of `benchmarks/contestants.py` that are installed; the others are named. Texts that need no
download: `short` are the sentences of sts_sample, `long` docstrings of Python's standard library of up to 512 tokens,
`mixed` their first sentences and their rests, up to 128 tokens; versions of Python differ in these two.
all-MiniLM-L6-v2 on each, and a random encoder of BERT-base's size on a quarter of `mixed`, in two rounds, for most.
sentence-transformers sorts by length itself and pads to the longest of a batch of 32, its default;
ONNX Runtime and OpenVINO get length-sorted batches of about 2,048 tokens, padded to their longest. On a GPU
(`pip install 'jaxwhiten[cuda,parity]'` and a PyTorch with CUDA), all in bfloat16: sentence-transformers there with SDPA
attention and batches of 32 and of 256; engines of the CPU would be no peers, and are left out.

Mean pooling. Rates are of whole calls, tokenisation included, and every contestant has had one call before; a first
call is timed by itself. The minimum cosine is that to our vectors; Spearman × 100 is on STS-B where it is at hand.
`share` is the rate of forward FLOPs of real tokens over that of a large matmul of that dtype in the same round: clocks
rise and fall.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contestants import CONTESTANTS, Encode, Job
from benchmarks.harness import (
    OURS,
    SPEED,
    Ratio,
    conditions,
    figure,
    flat,
    in_words,
    interleave,
    median,
    ratio,
    save,
    speed_of_ours,
    table,
    torch_device,
)
from eval.data import load_sts
from eval.pydocs import load_pydocs
from eval.report import Table
from eval.runs import Record, Run
from jaxwhiten import Encoder, metrics
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.models import load_config, load_model, resolve_folder
from jaxwhiten.text import BulkTokenizer

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MINILM = "all-MiniLM-L6-v2"
MATMULS = 4  # in a row
LENGTHS = {"short": 64, "mixed": 128, "long": 512}  # tokens at most, by kind of text


class Setting(NamedTuple):
    """What differs between devices."""

    device: str  # as PyTorch calls it
    dtype: str  # of matrix products
    tokens: int  # of each kind of text
    matmul: int  # rows of a square matrix, large enough to be multiplied at the device's rate
    tolerance: float  # the least cosine of vectors that count as the same

    @property
    def matmul_flops(self) -> float:
        """Of what is timed as the device's rate."""
        return MATMULS * 2.0 * self.matmul**3


class Effort(NamedTuple):
    """How much is measured."""

    rounds: int
    bfloat16: bool  # whether peers are timed in bfloat16 on a CPU
    scored: bool  # whether Spearman correlations are computed, on the first `pairs`
    pairs: int | None


SETTINGS = {
    "cpu": Setting("cpu", "float32", 16_000, 3072, 0.99999),
    "cuda": Setting("cuda", "bfloat16", 2_000_000, 8192, 0.99),
}


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


def contestants(job: Job, setting: Setting, large: bool, bfloat16: bool) -> tuple[dict[str, Encode], dict[str, str]]:
    """Those that run here, and why others do not."""
    encoders: dict[str, Encode] = {}
    skipped: dict[str, str] = {}
    for name, contestant in CONTESTANTS.items():
        if (setting.device != "cpu" and not contestant.gpu) or (large and not contestant.large):
            continue
        if setting.device == "cpu" and (name.endswith("of 256") or ("bfloat16" in name and not bfloat16)):
            continue
        try:
            encoders[name] = contestant.make(job)
        except ImportError as error:
            skipped[name] = f"not installed: {error}"
        except Exception as error:  # a peer that cannot be had must not cost the others their figures
            skipped[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        if name in skipped:
            print(f"  skipped {name}: {skipped[name]}", flush=True)
    if OURS not in encoders:
        raise SystemExit(f"{OURS} does not run here, {skipped.get(OURS)}")
    return encoders, skipped


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Row by row; None where the vectors have other dimensions."""
    if a.shape == b.shape:
        return metrics.cosine_pairs(np.asarray(a, np.float32), np.asarray(b))
    return None


def sts_spearman(encode: Encode, count: int | None = None) -> tuple[str, float]:
    """Spearman × 100 on the test split of STS-B, or of the sample that ships here, or on its first pairs."""
    try:
        name = "STS-B"
        pairs = load_sts("STS-B").splits["test"]
    except DataNotFoundError:
        name = "sts_sample"
        pairs = load_sts("sts_sample").splits["test"]
    firsts = pairs.sentence1[:count]
    seconds = pairs.sentence2[:count]
    scores = np.asarray(pairs.score)[:count]
    vectors = np.asarray(encode([*firsts, *seconds]), np.float32)
    half = len(firsts)
    return name, 100 * metrics.spearman(metrics.cosine_pairs(vectors[:half], vectors[half:]), scores)


def measure(
    label: str, model: Path, exports: Path, kind: str, max_length: int, setting: Setting, effort: Effort
) -> dict:
    """All contestants on one kind of text."""
    sizes = load_model(model)[1]
    tokenizer = BulkTokenizer(model, max_length)
    texts = texts_of(kind, tokenizer, setting.tokens)
    lengths = tokenizer(texts).lengths
    encoder = Encoder.from_pretrained(model, pooling="mean", max_length=max_length, dtype=setting.dtype)
    padded = sum(batch.tokens for batch in encoder.executor.layout.plan(lengths))
    total = int(lengths.sum())
    print(f"\n{label}, {kind}: {len(texts)} texts of {total / len(texts):.0f} tokens, padding {1 - total / padded:.0%}")
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(model, max_length, tokenizer, Path(scratch), exports, setting.device, setting.dtype)
        encoders, skipped = contestants(job, setting, label != MINILM, effort.bfloat16)
        first_seconds = {}
        vectors = {}
        scores = {}
        scored_on = None
        for name, encode in encoders.items():
            start = time.perf_counter()
            vectors[name] = np.asarray(encode(texts), np.float32)
            first_seconds[name] = time.perf_counter() - start
            if effort.scored:
                scored_on, scores[name] = sts_spearman(encode, effort.pairs)
        by_name = {name: cosines(x, vectors[OURS]) for name, x in vectors.items()}
        for name, cosine in by_name.items():
            if CONTESTANTS[name].exact and (cosine is None or cosine.min() < setting.tolerance):
                raise SystemExit(f"{name} gives other vectors, so there is nothing to compare")
        timed = {"matmul": large_matmuls(setting), **encoders}
        seconds = interleave({name: lambda run=run: run(texts) for name, run in timed.items()}, effort.rounds, warmup=0)
    matmul = seconds.pop("matmul")
    flops = forward_flops(lengths, sizes) / setting.matmul_flops
    rows = {
        name: {
            "seconds": s,
            "first_call_seconds": first_seconds[name],
            "texts_per_second": len(texts) / median(s),
            "tokens_per_second": total / median(s),
            "share_of_matmul_rate": flops * median([a / b for a, b in zip(matmul, s, strict=True)]),
            "speed_of_ours": ratio(seconds, OURS, name),
            "minimum_cosine": None if by_name[name] is None else float(by_name[name].min()),
            "spearman": scores.get(name),
        }
        for name, s in seconds.items()
    }
    for name, row in rows.items():
        show(name, row, scored_on)
    return {
        "encoder": label,
        "texts": kind,
        "count": len(texts),
        "tokens_a_text": total / len(texts),
        "max_length": max_length,
        "setting": setting._asdict(),
        "padding_share": 1 - total / padded,
        "matmul_flops_per_second": setting.matmul_flops / median(matmul),
        "scored_on": scored_on,
        "contestants": rows,
        "skipped": skipped,
    }


def show(name: str, row: Mapping[str, Any], scored_on: str | None) -> None:
    """Prints the figures of a contestant."""
    line = f"  {name:40}{row['texts_per_second']:8.0f} texts/s  share {row['share_of_matmul_rate']:.2f}  min cosine "
    if row["minimum_cosine"] is None:
        line += "–"
    else:
        line += f"{row['minimum_cosine']:.4f}"
    if row["spearman"] is not None:
        line += f"  {scored_on} {row['spearman']:.2f}"
    if name != OURS:
        line += f"  {in_words(row['speed_of_ours'])}"
    print(line, flush=True)


# Peers by the precision of what they are compared with.
PEERS = {
    "float32": ("sentence-transformers", "sentence-transformers, backend onnx", "ONNX Runtime", "OpenVINO float32"),
    "bfloat16": (
        "sentence-transformers bfloat16",
        "sentence-transformers, backend openvino",  # by its vectors
        "OpenVINO bfloat16",
    ),
}
HEADLINE = "mixed texts, all-MiniLM", sum(PEERS.values(), ())


def ratios(run: Run) -> Iterator[Ratio]:
    """How many times as fast as peers of the same precision ours is."""
    cells: dict[tuple[Any, ...], dict[str, Record]] = {}
    for row in run.rows:
        cells.setdefault((row.texts, row.encoder, row.tokens_a_text), {})[row.contestant] = row
    for (texts, encoder, tokens), rows in cells.items():
        task = f"encode {texts} texts, {encoder}, {tokens:.0f} tokens"
        for name, row in rows.items():
            if name != OURS and name not in PEERS["bfloat16"]:
                yield task, name, row.speed_of_ours
        for peer in PEERS["bfloat16"]:
            if (fastest := rows.get(f"{OURS}, bfloat16")) and peer in rows:
                yield f"{task}, dtype bfloat16", peer, _between(fastest, rows[peer])


def _between(row: Record, peer: Record) -> dict[str, float]:
    """The ratio of two that were timed beside the same third, its range at the widest."""
    a = peer.speed_of_ours
    b = row.speed_of_ours
    return {"median": a.median / b.median, "low": a.low / b.high, "high": a.high / b.low}


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
    missing = "; ".join(f"{name} ({why})" for name, why in run.header.skipped.items())
    return table(run, columns, notes=[*[f"Skipped: {missing}."] * bool(missing), conditions(run)])


TABLES = SPEED | {"encode_table": encode_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, help="of each kind of text; 16,000 on a CPU, 2,000,000 on a GPU")
    parser.add_argument("--model", default=MODEL, help="all-MiniLM-L6-v2, where it lies")
    parser.add_argument("--texts", nargs="*", choices=LENGTHS, default=list(LENGTHS), help="kinds; default: all three")
    parser.add_argument("--no-base", action="store_true", help="leave the encoder of BERT-base's size out")
    parser.add_argument("--pairs", type=int, help="scored; by default all of STS-B's test split, or of the sample")
    args = parser.parse_args()
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore", category=DeprecationWarning)

    setting = SETTINGS[torch_device()]
    setting = setting._replace(tokens=args.tokens or setting.tokens)
    folder = Path(resolve_folder(args.model))
    bfloat16 = setting.device == "cpu" and has_fast_bfloat16()
    if setting.device == "cpu" and not bfloat16:
        print("this CPU has no fast bfloat16: sentence-transformers is timed in float32 only")
    effort = Effort(args.rounds, bfloat16, True, args.pairs)
    rows: list[dict] = []
    skipped: dict[str, str] = {}

    def keep(result: dict) -> None:
        """After every kind, so that one that is stopped costs none of the others."""
        skipped.update(result.pop("skipped"))
        rows.extend({**result, **row} for row in flat(result.pop("contestants"), "contestant"))
        save("encode", rows, bfloat16=bfloat16, skipped=skipped)

    with tempfile.TemporaryDirectory() as exports:
        for kind in args.texts:
            length = min(LENGTHS[kind], load_config(folder).longest_input)
            scored = effort._replace(scored=kind == "mixed")
            keep(measure(MINILM, folder, Path(exports), kind, length, setting, scored))
    if not args.no_base:
        with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as exports:
            write_random_base(Path(base), folder)
            fewer = setting._replace(tokens=max(setting.tokens // 4, 1))
            effort = effort._replace(rounds=min(2, args.rounds), scored=False)
            keep(measure("BERT-base's size", Path(base), Path(exports), "mixed", 128, fewer, effort))


if __name__ == "__main__":
    main()
