"""One thread encodes the texts of concurrent callers together, as many as fit a number of tokens.

An idle thread does not wait for further callers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from prometheus_client import Counter, Histogram

from jaxwhiten.encoding import Encoder
from jaxwhiten.text import TokenIds

_TOKENS = 4096  # of a batch, so that nobody waits long for the next one


class Way(NamedTuple):
    """How texts are encoded; those of one way can share a batch."""

    encoder: Encoder
    prompt: str | None
    pooling: str | None = None

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        form = self.encoder.head.form
        return self.encoder.tokenizer(texts, form if self.prompt is None else form.with_prompt(self.prompt))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self.encoder.encode(texts, prompt=self.prompt, pooling=self.pooling, show_progress=False)


class _Job(NamedTuple):
    way: Way
    texts: Sequence[str]
    tokens: int
    vectors: Future[np.ndarray]


class Batcher:
    """The thread. It compiles the `encoders` first, and notes the texts of each batch and all tokens."""

    def __init__(self, encoders: Sequence[Encoder], texts: Histogram, tokens: Counter):
        self._encoders, self._texts, self._tokens, self.ready = encoders, texts, tokens, threading.Event()
        self._arriving: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self.start = self._thread.start

    def close(self) -> None:
        """Encodes what waits, and ends the thread."""
        self._arriving.put(None)
        self._thread.join()

    def submit(self, way: Way, texts: Sequence[str], tokens: int) -> Future[np.ndarray]:
        """The result of `Way.encode` for a few texts, unless the future is cancelled before they are encoded."""
        vectors: Future[np.ndarray] = Future()
        self._arriving.put(_Job(way, texts, tokens, vectors))
        return vectors

    def _run(self) -> None:
        for encoder in self._encoders:
            encoder.warm_up()
        self.ready.set()
        jobs, closed = list[_Job](), False
        while True:
            while not self._arriving.empty() or not (jobs or closed):
                job = self._arriving.get()
                closed = job is None
                jobs += [job] if job else []
            if not jobs:
                return
            batch, left, room = list[_Job](), list[_Job](), _TOKENS
            for job in jobs:
                fits = not batch or (job.way == batch[0].way and job.tokens <= room)
                (batch if fits else left).append(job)
                room -= job.tokens if fits else 0
            jobs = left
            self._encode([job for job in batch if job.vectors.set_running_or_notify_cancel()])

    def _encode(self, batch: list[_Job]) -> None:
        """Encodes jobs of one way; if that fails, each alone, so that only its own caller sees an error."""
        texts = [text for job in batch for text in job.texts]
        try:
            vectors = batch[0].way.encode(texts) if batch else np.empty(0)
        except Exception as error:
            for job in batch:
                self._encode([job]) if len(batch) > 1 else job.vectors.set_exception(error)
            return
        self._texts.observe(len(texts))
        self._tokens.inc(sum(job.tokens for job in batch))
        for job in batch:
            job.vectors.set_result(vectors[: len(job.texts)])
            vectors = vectors[len(job.texts) :]
