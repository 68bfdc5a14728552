"""Encodes the texts of concurrent callers together, as many as fit a number of tokens.

An idle encoder does not wait for further callers.
"""

from __future__ import annotations

import asyncio
import functools
import timeit
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from jaxwhiten.serving.protocol import Refused
from jaxwhiten.text import TokenIds, uncounted
from jaxwhiten.views import View

_TOKENS = 4096  # of a batch, so that nobody waits long for the next one
# texts and tokens of one caller that are encoded before others have their turn
_CHUNK = 32
_SHARE = 2048
_LONG = 5_000  # characters that are tokenized in a thread, while other requests are read
_WARM = 8192  # tokens of the longest program that is compiled before requests come
_SHORT = 32  # tokens of a text that is encoded without another thread, if nothing waits and that takes few seconds:
_QUICK = 0.005


class _Job(NamedTuple):
    view: View  # jobs of one view can share a batch
    texts: list[str]
    tokens: TokenIds
    vectors: asyncio.Future[np.ndarray]


class Batcher:
    """The thread that encodes, and the texts that wait for it, at most `limit`."""

    def __init__(self, limit: int, registry: CollectorRegistry):
        self._limit = limit
        self._queue = 0
        self._jobs = list[_Job]()
        self._quick = False
        self._thread = ThreadPoolExecutor(1, "batches")
        self._readers = ThreadPoolExecutor(2, "tokens")
        self._running: asyncio.Task[None] | None = None
        self._tokens = Counter("jaxwhiten_tokens", "Tokens encoded", registry=registry)
        sizes = [2**n for n in range(11)]
        self._texts = Histogram("jaxwhiten_batch_texts", "Texts encoded together", buckets=sizes, registry=registry)
        queue = Gauge("jaxwhiten_queue_texts", "Texts that wait or are encoded", registry=registry)
        queue.set_function(lambda: self._queue)

    def warm_up(self, views: Iterable[View]) -> None:
        """Compiles the programs of single texts of any length, and one of several batches; times a single text."""
        for view in views:
            view.warm_up(min(view.core.max_length, _WARM))
            with uncounted():
                view(["warm up " * 2**n for n in range(8)] * 16, show_progress=False)
                seconds = min(timeit.repeat(functools.partial(view, ["warm up " * (_SHORT // 2)]), number=1))
            self._quick = seconds < _QUICK

    async def encode(self, view: View, texts: str | list[str]) -> tuple[np.ndarray, int, int]:
        """Vectors, the number of tokens, and that of truncated texts; refused if the queue is full."""
        if isinstance(texts, str):
            texts = [texts]
        if self._queue and self._queue + len(texts) > self._limit:
            raise Refused(429, "The queue is full: retry later.", wait=1 + self._queue // 100)
        vectors = list[np.ndarray]()
        count = 0
        cut = 0
        self._queue += len(texts)
        try:
            for first in range(0, len(texts), _CHUNK):
                some = texts[first : first + _CHUNK]
                if sum(map(len, some)) > _LONG:
                    tokens = await asyncio.get_running_loop().run_in_executor(self._readers, _tokens, view, some)
                else:
                    tokens = view.tokens(some)
                count += len(tokens.flat)
                cut += tokens.cut
                for part in _parts(view, some, tokens):
                    vectors.append(await self._encoded(part))
        finally:
            self._queue -= len(texts)
        return np.concatenate(vectors), count, cut

    async def _encoded(self, job: _Job) -> np.ndarray:
        self._jobs.append(job)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await job.vectors

    async def _run(self) -> None:
        """Encodes until no job waits; those whose callers gave up are dropped."""
        idle = True
        while jobs := [job for job in self._jobs if not job.vectors.done()]:
            batch = list[_Job]()
            self._jobs = list[_Job]()
            room = _TOKENS
            for job in jobs:
                fits = not batch or (job.view is batch[0].view and len(job.tokens.flat) <= room)
                (batch if fits else self._jobs).append(job)
                room -= len(job.tokens.flat) if fits else 0
            await self._encode(batch, alone=self._quick and idle and len(jobs) == 1)
            idle = False

    async def _encode(self, batch: list[_Job], alone: bool = False) -> None:
        """Encodes jobs of one view; if that fails, each alone, so that only its own caller sees an error."""
        texts = [text for job in batch for text in job.texts]
        tokens = TokenIds.joined([job.tokens for job in batch])
        work = functools.partial(batch[0].view.of_tokens, texts, tokens)
        try:
            if alone and len(tokens.flat) <= _SHORT:  # another thread costs a twentieth of its time
                vectors = work()
            else:
                vectors = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            for job in batch:
                if len(batch) > 1:
                    await self._encode([job])
                elif not job.vectors.done():
                    job.vectors.set_exception(error)
            return
        self._texts.observe(len(texts))
        self._tokens.inc(len(tokens.flat))
        for job in batch:
            part = vectors[: len(job.texts)]
            vectors = vectors[len(job.texts) :]
            if not job.vectors.done():
                job.vectors.set_result(part)


def _tokens(view: View, texts: list[str]) -> TokenIds:
    """The tokens of texts, of which those that the model cannot read to the end are cut first."""
    excerpts = list[str]()
    for text in texts:
        if (excerpt := view.core.tokenizer.excerpt(text, view.form)) is None:
            few = f"too few tokens for its {len(text):,} characters"
            raise Refused(413, f"The text {text[:40]!r}… has {few}: remove spaces and long words, or shorten it.")
        excerpts.append(excerpt)
    return view.tokens(excerpts)


def _parts(view: View, texts: list[str], tokens: TokenIds) -> Iterator[_Job]:
    """Jobs of one share each, in order."""
    if len(texts) > 1 and len(tokens.flat) > _SHARE:
        half = len(texts) // 2
        end = tokens.starts[half]
        yield from _parts(view, texts[:half], TokenIds(tokens.flat[:end], tokens.lengths[:half]))
        yield from _parts(view, texts[half:], TokenIds(tokens.flat[end:], tokens.lengths[half:]))
    else:
        yield _Job(view, texts, tokens, asyncio.get_running_loop().create_future())
