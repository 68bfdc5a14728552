"""Training rows per second beside sentence-transformers' trainer: the same encoder, rows, batch size and lengths.

    python -m benchmarks.train_throughput [--rows 2000] [--batch-size 16] [--steps 30] [--rounds 5] [--model FOLDER]

Cosine regression on STS-B (on sts_sample where STS-B is not at hand), float32, AdamW, dropout on, mean pooling, at most
128 tokens, the same constant rate. Both group rows by length. Ours compiles its step once for each of four padded
lengths before the clock starts, and what its tokenising took, once and before, is charged to every round by the share
of its rows; the peer tokenises as it goes and pads every batch to its longest row. A round is `--steps` steps of each,
in rotated order; every round draws other batches. Both go on training, and the mean loss of every round is recorded.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import harness
from benchmarks.contestants import PEER
from benchmarks.harness import MINILM, OURS, median, ratio, rotated, torch_device
from configs.settings import Config, setting
from eval.data import load_sts
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

RATE = 2e-5
MAX_LENGTH = 128
WARM = 3


@dataclass(slots=True)
class Throughput(Config):
    """The settings of benchmarks.train_throughput."""

    rows: int = setting(2000, "rows, drawn at random")
    batch_size: int = setting(16, "rows per batch")
    steps: int = setting(30, "steps per round")
    rounds: int = setting(5, "of each contestant")
    model: str = setting(MINILM, "all-MiniLM-L6-v2, where it lies")


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
        self.batches = sentence_batches(table, scores, batch_size=batch_size, buckets=4, seed=0)
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


def measure(config: Throughput) -> Iterator[harness.Row]:
    """Rounds of steps of both, in turn."""
    logging.disable(logging.WARNING)
    try:
        data = "STS-B"
        examples = sts_pairs(load_sts("STS-B").splits["train"])
    except DataNotFoundError:
        data = "sts_sample"
        examples = sts_pairs(load_sts("sts_sample").splits["test"])
    chosen = np.random.default_rng(0).permutation(len(examples))[: config.rows]
    columns = [[column[i] for i in chosen] for column in examples.columns.values()]
    scores = np.asarray(examples.label, np.float32)[chosen]
    ours = Ours(config.model, columns, scores, config.batch_size, config.steps)
    peer = Peer(ours.folder, columns, scores, ours.lengths, config.batch_size, config.steps)
    yield harness.Facts(data=data, compile_seconds=ours.compile_seconds, compilations=len(ours.batches.shapes))
    contestants: dict[str, Ours | Peer] = {OURS: ours, PEER: peer}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-1, config.rounds):  # the first is not counted
        for name in rotated(list(contestants), max(number, 0)):
            duration = contestants[name].run()
            if number >= 0:
                seconds[name].append(duration)
    for name, series in seconds.items():
        rate = config.steps * config.batch_size / median(series)
        figures = {"rows_per_second": rate, "speed_of_ours": ratio(seconds, OURS, name)}
        yield {"contestant": name, "seconds": series, "losses": contestants[name].losses, **figures}


if __name__ == "__main__":
    harness.run(measure, Throughput)
