"""How fast texts become token ids: one process per core, the tokenizer's own threads off, batches of 1,024.

    python -m benchmarks.tokenizer [--sentences 40000] [--processes 1,2] [--rounds 3]

Sentences of sts_sample, over again. There is no peer: the question is how many cores a device needs that takes so many
sentences a second. Seconds are those of a core, so that what else runs here counts little. BERT-base at 40 % of a TPU
v5e's peak takes 21,000 sentences of 22 tokens, at 35 % of an H100's 92,000 (docs/explanations/devices.md).
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.harness import median, save
from jaxwhiten.datasets import load_sts
from jaxwhiten.models import resolve_folder
from jaxwhiten.text import BulkTokenizer

MODEL, BATCH = "sentence-transformers/all-MiniLM-L6-v2", 1024
NEEDED = {"v5e": 21_000, "h100": 92_000}  # sentences a second and device


def work(count: int) -> tuple[float, int]:
    """Seconds of a core that so many sentences take, and their tokens."""
    pairs = load_sts("sts_sample").splits["test"]
    texts = [*pairs.sentence1, *pairs.sentence2]
    texts = (texts * -(-count // len(texts)))[:count]
    tokenizer = BulkTokenizer(Path(resolve_folder(MODEL)), 64)
    tokenizer(texts[:BATCH])
    start = time.process_time()
    tokens = sum(int(tokenizer(texts[i : i + BATCH]).lengths.sum()) for i in range(0, count, BATCH))
    return time.process_time() - start, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sentences", type=int, default=40_000, help="of each process")
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    results = []
    for processes in map(int, args.processes.split(",")):
        rates, per_sentence = [], 0.0
        with ProcessPoolExecutor(processes) as pool:
            for _ in range(args.rounds):
                found = list(pool.map(work, [args.sentences] * processes))
                per_sentence = sum(tokens for _, tokens in found) / (processes * args.sentences)
                rates.append(processes * args.sentences / max(seconds for seconds, _ in found))
        each = median(rates) / processes
        row = {
            "processes": processes,
            "sentences_per_second_and_core": each,
            "tokens_per_second_and_core": each * per_sentence,
            "tokens_per_sentence": per_sentence,
            "rounds": rates,
            "cores_per_device": {name: needed / each for name, needed in NEEDED.items()},
        }
        results.append(row)
        print(f"{processes} processes: {each:,.0f} sentences, {each * per_sentence:,.0f} tokens a second and core")
        print("  cores per device: " + ", ".join(f"{name} {n:.1f}" for name, n in row["cores_per_device"].items()))
    save("tokenizer", {"results": results})


if __name__ == "__main__":
    main()
