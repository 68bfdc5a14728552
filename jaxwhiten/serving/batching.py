"""Encodes the texts of concurrent callers together, as many as fit a number of tokens.

An idle encoder does not wait for further callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from jaxwhiten.encoding import Encoder
from jaxwhiten.serving.protocol import Refused
from jaxwhiten.text import TokenIds

_TOKENS = 4096  # of a batch, so that nobody waits long for the next one
_CHUNK = 32  # texts of one caller that are encoded before others have their turn
_LONG = 20_000  # characters that are tokenized in a thread, while other requests are read


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
    vectors: asyncio.Future[np.ndarray]


class Batcher:
    """The thread that encodes, and the texts that wait for it, at most `limit`."""

    def __init__(self, limit: int, registry: CollectorRegistry):
        self._limit, self._queue, self._jobs = limit, 0, list[_Job]()
        self._thread = ThreadPoolExecutor(1, "batches")
        self._running: asyncio.Task[None] | None = None
        self._tokens = Counter("jaxwhiten_tokens", "Tokens encoded", registry=registry)
        sizes = [2**n for n in range(11)]
        self._texts = Histogram("jaxwhiten_batch_texts", "Texts encoded together", buckets=sizes, registry=registry)
        queue = Gauge("jaxwhiten_queue_texts", "Texts that wait or are encoded", registry=registry)
        queue.set_function(lambda: self._queue)

    def warm_up(self, ways: Sequence[Way]) -> None:
        """Compiles the programs of single texts of any length, and one of several batches."""
        for way in ways:
            way.encoder.warm_up(way.encoder.max_length)
            way.encode(["warm up " * 2**n for n in range(8)] * 16)

    async def encode(self, way: Way, texts: str | Sequence[str]) -> tuple[np.ndarray, int, int]:
        """Vectors, the number of tokens, and that of truncated texts; refused if the queue is full."""
        texts = [texts] if isinstance(texts, str) else texts
        if self._queue and self._queue + len(texts) > self._limit:
            raise Refused(429, "The queue is full: retry later.", wait=1 + self._queue // 100)
        self._queue += len(texts)
        try:
            chunks = [await self._chunk(way, texts[i : i + _CHUNK]) for i in range(0, len(texts), _CHUNK)]
        finally:
            self._queue -= len(texts)
        vectors, tokens, cut = zip(*chunks, strict=True)
        return np.concatenate(vectors), sum(tokens), sum(cut)

    async def _chunk(self, way: Way, texts: Sequence[str]) -> tuple[np.ndarray, int, int]:
        long = sum(map(len, texts)) > _LONG
        found = await asyncio.to_thread(way.tokenize, texts) if long else way.tokenize(texts)
        job = _Job(way, texts, len(found.flat), asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await job.vectors, job.tokens, found.cut

    async def _run(self) -> None:
        """Encodes until no job waits; those whose callers gave up are dropped."""
        while jobs := [job for job in self._jobs if not job.vectors.done()]:
            batch, self._jobs, room = list[_Job](), list[_Job](), _TOKENS
            for job in jobs:
                fits = not batch or (job.way == batch[0].way and job.tokens <= room)
                (batch if fits else self._jobs).append(job)
                room -= job.tokens if fits else 0
            await self._encode(batch)

    async def _encode(self, batch: list[_Job]) -> None:
        """Encodes jobs of one way; if that fails, each alone, so that only its own caller sees an error."""
        texts = [text for job in batch for text in job.texts]
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(self._thread, batch[0].way.encode, texts)
        except Exception as error:
            for job in batch:
                if len(batch) > 1:
                    await self._encode([job])
                elif not job.vectors.done():
                    job.vectors.set_exception(error)
            return
        self._texts.observe(len(texts))
        self._tokens.inc(sum(job.tokens for job in batch))
        for job in batch:
            own, vectors = vectors[: len(job.texts)], vectors[len(job.texts) :]
            if not job.vectors.done():
                job.vectors.set_result(own)
