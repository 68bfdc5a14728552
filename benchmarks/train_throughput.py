"""Training rows per second beside sentence-transformers' trainer: the same encoder, rows, batch size and lengths.

    python -m benchmarks.train_throughput [--rows 2000] [--batch-size 16] [--steps 30] [--rounds 5] [--model FOLDER]

Cosine regression on STS-B (on sts_sample where STS-B is not at hand), float32, AdamW, dropout on, mean pooling, at most
128 tokens, the same constant rate. Both group rows by length. Ours compiles its step once for each of four padded
lengths before the clock starts, and what its tokenising took, once and before, is charged to every round by the share
of its rows; the peer tokenises as it goes and pads every batch to its longest row. A round is `--steps` steps of each,
in rotated order; every round draws other batches. Both go on training, and the mean loss of every round is recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.harness import SPEED, Ratio, in_words, median, ratio, rotated, save, torch_device
from eval.data import load_sts
from eval.runs import Run
from jaxwhiten.errors import DataNotFoundError
from jaxwhiten.models import load_model
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.training import (
    TrainingOptions,
    create_state,
    data_mesh,
    make_step,
    objective_loss,
    place_batch,
    sentence_batches,
    sentence_loss,
    split_encoder,
    tokenize_columns,
)
from train.examples import sts_pairs

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
RATE = 2e-5
MAX_LENGTH = 128
WARM = 3


class Ours:
    """The step of `train.sbert`, with its batches."""

    def __init__(self, model: str, columns: list[list[str]], scores: np.ndarray, batch_size: int, steps: int):
        network, _, folder = load_model(model)
        start = time.perf_counter()
        table = tokenize_columns(columns, BulkTokenizer(folder, MAX_LENGTH))
        self.tokenize_seconds = (time.perf_counter() - start) / len(columns[0]) * batch_size * steps
        self.folder = folder
        self.lengths = table.lengths
        self.losses: list[float] = []
        self.batches = sentence_batches(
            table,
            scores,
            batch_size=batch_size,
            buckets=4,
            seed=0,
        )
        options = TrainingOptions(steps=1_000_000, batch_size=batch_size, learning_rate=RATE, warmup=0.0)
        self.mesh = data_mesh(options)
        self.steps = steps
        encoder, rebuild = split_encoder(network, "mean")
        loss = sentence_loss(rebuild, objective_loss("cosine"))
        self.step = make_step(loss, options, self.mesh)
        self.state = create_state({"encoder": encoder, "head": {}}, options, self.mesh)
        start = time.perf_counter()
        shapes: set[tuple[Any, ...]] = set()
        while len(shapes) < len(self.batches.shapes):
            batch = next(self.batches)
            shapes.add(tuple(array.shape for array in batch.values()))
            self._advance(batch)
        jax.block_until_ready(self.state.params)
        self.compile_seconds = time.perf_counter() - start

    def _advance(self, batch: dict[str, np.ndarray]) -> None:
        self.state, self.metrics = self.step(self.state, place_batch(batch, self.mesh))

    def run(self) -> float:
        """Seconds of `steps` steps, their share of the tokenising included."""
        losses = []
        for _ in range(WARM):
            self._advance(next(self.batches))
        jax.block_until_ready(self.state.params)
        start = time.perf_counter()
        for _ in range(self.steps):
            self._advance(next(self.batches))
            losses.append(self.metrics["loss"])
        jax.block_until_ready(self.state.params)
        seconds = time.perf_counter() - start
        self.losses.append(float(np.mean(jax.device_get(losses))))
        return seconds + self.tokenize_seconds


class Peer:
    """`SentenceTransformerTrainer` with rows grouped by length, without saving and logging."""

    def __init__(
        self,
        folder: Path,
        columns: list[list[str]],
        scores: np.ndarray,
        lengths: np.ndarray,
        batch_size: int,
        steps: int,
    ):
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules

        encoder = modules.Transformer(str(folder), max_seq_length=MAX_LENGTH)
        self.model = SentenceTransformer(
            modules=[encoder, modules.Pooling(encoder.get_embedding_dimension(), "mean")], device=torch_device()
        )
        rows = {"sentence1": columns[0], "sentence2": columns[1], "label": scores.tolist()}
        self.data = Dataset.from_dict(rows)
        self.batch_size = batch_size
        self.steps = steps
        self.round = 0
        self.order = np.argsort(lengths, kind="stable")
        self.losses: list[float] = []

    def run(self) -> float:
        """Seconds of `steps` steps."""
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        from sentence_transformers.base.sampler import DefaultBatchSampler
        from sentence_transformers.sentence_transformer import losses
        from transformers import TrainerCallback

        times: list[float] = []
        collected: list[Any] = []
        n_batches = len(self.order) // self.batch_size
        batches = self.order[: n_batches * self.batch_size].reshape(n_batches, self.batch_size)
        shuffled = np.random.default_rng(self.round).permutation(batches).tolist()

        class ByLength(DefaultBatchSampler):
            def __iter__(self):
                return iter(shuffled)

            def __len__(self) -> int:
                return len(shuffled)

        class Loss(losses.CosineSimilarityLoss):
            def forward(self, *args, **kwargs):
                loss = super().forward(*args, **kwargs)
                collected.append(loss.detach())
                return loss

        class Clock(TrainerCallback):
            def on_step_end(self, *_args, **_kwargs):
                times.append(time.perf_counter())

        self.round += 1
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
            arguments = SentenceTransformerTrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=self.batch_size,
                max_steps=WARM + self.steps,
                learning_rate=RATE,
                lr_scheduler_type="constant",
                batch_sampler=ByLength,
                weight_decay=0.01,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=torch_device() == "cpu",
                seed=self.round,
            )
            trainer = SentenceTransformerTrainer(
                self.model, arguments, self.data, loss=Loss(self.model), callbacks=[Clock()]
            )
            trainer.train()
        self.losses.append(float(np.mean([float(loss) for loss in collected[WARM:]])))
        return times[-1] - times[WARM - 1]


TABLES = SPEED
HEADLINE = "", ("sentence-transformers",)


def ratios(run: Run) -> Iterator[Ratio]:
    """A step beside sentence-transformers'."""
    setting = run.header.setting
    task = f"a training step of {setting.data}, batch {setting.batch_size}"
    yield task, "sentence-transformers", run.header.ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=MODEL, help="all-MiniLM-L6-v2, where it lies")
    args = parser.parse_args()
    logging.disable(logging.WARNING)

    try:
        data = "STS-B"
        examples = sts_pairs(load_sts("STS-B").splits["train"])
    except DataNotFoundError:
        data = "sts_sample"
        examples = sts_pairs(load_sts("sts_sample").splits["test"])
        print("STS-B is not on this machine: sts_sample takes its place")
    chosen = np.random.default_rng(0).permutation(len(examples))[: args.rows]
    columns = [[column[i] for i in chosen] for column in examples.columns.values()]
    scores = np.asarray(examples.label, np.float32)[chosen]

    trainer = Ours(args.model, columns, scores, args.batch_size, args.steps)
    print(
        f"  ours: {len(trainer.batches.shapes)} compilations, {trainer.compile_seconds:.1f} s, before the clock",
        flush=True,
    )
    peer = Peer(trainer.folder, columns, scores, trainer.lengths, args.batch_size, args.steps)
    contestants: dict[str, Ours | Peer] = {"jaxwhiten": trainer, "sentence-transformers": peer}
    for name, contestant in contestants.items():
        print(f"  {name}: a first round of {contestant.run():.1f} s", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    rows = args.steps * args.batch_size
    print(f"{data} cosine regression, {MODEL}, batch {args.batch_size}, {args.steps} steps, {args.rounds} rounds")
    for number in range(args.rounds):
        for name in rotated(list(contestants), number):
            seconds[name].append(contestants[name].run())
        # After every round, so that one that is stopped keeps those before.
        faster = ratio(seconds, "jaxwhiten", "sentence-transformers")
        entries = [
            {"contestant": name, "seconds": s, "rows_per_second": rows / median(s), "losses": contestants[name].losses}
            for name, s in seconds.items()
        ]
        save(
            "train_throughput",
            entries,
            setting=vars(args) | {"data": data, "model": MODEL, "max_length": MAX_LENGTH},
            padded=trainer.batches.shapes,
            ratio=faster,
            compile_seconds=trainer.compile_seconds,
        )
    for name, values in seconds.items():
        losses_found = ", ".join(f"{loss:.4f}" for loss in contestants[name].losses)
        print(f"  {name:24} {rows / median(values):7.1f} rows/s, mean losses by round: {losses_found}")
    print(f"  {in_words(faster)}")


if __name__ == "__main__":
    main()
