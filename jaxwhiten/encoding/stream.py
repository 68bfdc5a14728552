"""Blocks of sentences through the compiled forward, in bounded memory.

The host tokenises the next block while the devices work on this one. Batches are dispatched ahead of the one that is
fetched, and halved where the devices have no room for them.
"""

from __future__ import annotations

import collections
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from jaxwhiten.arrays import normalize
from jaxwhiten.encoding import layout
from jaxwhiten.encoding.batching import Batch
from jaxwhiten.encoding.forward import Forward
from jaxwhiten.errors import InputError, JaxwhitenError, spelled
from jaxwhiten.head import Head, Step
from jaxwhiten.text import BulkTokenizer, TextForm, TokenIds, checked_text
from jaxwhiten.whitening import Moments
from jaxwhiten.whitening.on_devices import DeviceMoments

BLOCK = 16_384  # sentences tokenised and sorted together
# Tokens per batch on each device. On a CPU small batches stay in the cache; accelerators want large ones.
_TOKENS_PER_DEVICE = {"cpu": 1024, "gpu": 65_536, "tpu": 65_536}

_FAILURES = (RuntimeError, MemoryError)  # of a batch, in any engine

_Fetch = Callable[[], Any]


class ReadyHead(NamedTuple):
    """A head in use: its steps on the devices, and the width of its vectors."""

    head: Head
    steps: tuple[Step, ...]
    width: int


ReadyHeads = Mapping[str, ReadyHead]
Done = Callable[[int], object]  # told how many sentences each fetched batch had


class BatchRunner:
    """Runs blocks of sentences, whatever their lengths, in batches of a token budget.

    Args:
      forward: The compiled encoder of an engine.
      max_length: Longest input in tokens.
      pad_id: Id of the padding token.

    Attributes:
      token_budget: Tokens per batch on all devices together; smaller once a batch did not fit.
      share_rows: Whether several short sentences stand in a row, see `layout`.
      reduces: Whether vectors of which only moments are wanted are reduced where they are.
    """

    def __init__(self, forward: Forward, max_length: int, pad_id: int):
        self._forward, self._max_length, self._pad_id = forward, max_length, pad_id
        self.token_budget = _TOKENS_PER_DEVICE.get(forward.platform, 2048) * forward.devices
        self.share_rows = self.reduces = forward.platform != "cpu"

    def plan(
        self, lengths: Int[np.ndarray, " n"], max_rows: int | None = None, heads: Iterable[ReadyHead] = ()
    ) -> Iterator[Batch]:
        """Cuts sentences of these lengths into batches that serve these heads, see `layout.plan`."""
        return layout.plan(
            lengths,
            share_rows=self.share_rows and all(ready.head.by_segment for ready in heads),
            long_rows=self._forward.kernel is not None,
            max_length=self._max_length,
            token_budget=self.token_budget,
            multiple=self._forward.devices,
            max_rows=max_rows,
        )

    def run(
        self, tokens: TokenIds, heads: ReadyHeads, max_rows: int | None = None, done: Done | None = None
    ) -> dict[str, np.ndarray]:
        """The vectors of all sentences, in their order."""
        n = len(tokens.lengths)
        out = {name: np.empty((n, width), head.dtype) for name, (head, _, width) in heads.items()}

        def keep(batch: Batch, found: dict[str, np.ndarray]) -> None:
            for name, vectors in found.items():
                out[name][batch.rows] = vectors[batch.vectors]

        self._each(tokens, heads, keep, None, max_rows, done)
        return out

    def moments(
        self, tokens: TokenIds, heads: ReadyHeads, max_rows: int | None = None, done: Done | None = None
    ) -> dict[str, Moments]:
        """The moments of all sentences' vectors, which stay on the devices."""
        sums = {name: DeviceMoments(self._forward.mesh) for name in heads}

        def add(batch: Batch, found: dict[str, jax.Array]) -> None:
            for name, vectors in found.items():
                counts = np.zeros(vectors.size // vectors.shape[-1], bool)
                counts[batch.vectors] = True
                sums[name].add(vectors, counts.reshape(vectors.shape[:-1]))

        self._each(tokens, heads, add, jax.block_until_ready, max_rows, done)
        found = {name: of_head.moments() for name, of_head in sums.items()}
        kept = {name: moments for name, moments in found.items() if moments is not None}
        if rest := {name: heads[name] for name in heads if name not in kept}:  # not finite, or beyond float32
            kept |= {name: Moments().update(x) for name, x in self.run(tokens, rest, max_rows).items()}
        return kept

    def _each(
        self,
        tokens: TokenIds,
        heads: ReadyHeads,
        take: Callable[[Batch, Any], None],
        finish: Callable[[Any], Any] | None,
        max_rows: int | None,
        done: Done | None,
    ) -> None:
        """Gives every batch and what `Forward.start` finds of it to `take`, in order."""
        steps = {name: head.steps for name, head in heads.items()}
        pending: collections.deque[tuple[Batch, _Fetch | None]] = collections.deque()

        def start(batch: Batch) -> _Fetch:
            if not self._forward.fixed_shapes:
                batch = batch.trimmed(tokens.lengths)
            return self._forward.start(*batch.arrays(tokens, self._pad_id), batch.tokens, steps, finish)

        def read(batch: Batch, fetch: _Fetch | None) -> None:
            try:
                found = (fetch or start(batch))()
            except _FAILURES as error:
                for part in self._smaller(batch, tokens.lengths, error):
                    read(part, None)
            else:
                take(batch, found)

        def read_oldest() -> None:
            batch, fetch = pending.popleft()
            read(batch, fetch)
            if done is not None:
                done(len(batch.rows))

        for batch in self.plan(tokens.lengths, max_rows, heads.values()):
            for part in self._within_budget(batch, tokens.lengths):
                try:
                    pending.append((part, start(part)))
                except _FAILURES:  # read() tries again, when the batches before have gone
                    pending.append((part, None))
                while len(pending) >= self._forward.in_flight or (pending and pending[-1][1] is None):
                    read_oldest()
        while pending:
            read_oldest()

    def _within_budget(self, batch: Batch, lengths: Int[np.ndarray, " n"]) -> Iterator[Batch]:
        """The batch, or parts of it where the budget has shrunk since it was planned."""
        if batch.tokens <= self.token_budget or batch.height <= self._forward.devices:
            yield batch
            return
        for part in batch.halved(lengths, self._forward.devices):
            yield from self._within_budget(part, lengths)

    def _smaller(self, batch: Batch, lengths: Int[np.ndarray, " n"], error: Exception) -> list[Batch]:
        """The halves of a batch that the devices had no room for; batches from here on are no larger than they."""
        if not self._forward.is_out_of_memory(error):
            raise error
        parts = batch.halved(lengths, self._forward.devices)
        size = f"{batch.height} sentences of {batch.length} tokens"
        if parts[0].height == batch.height:
            raise JaxwhitenError(
                f"The device has no memory for {size}, which cannot be split: lower {spelled('max_length')}, take"
                f" {spelled('dtype', 'bfloat16')}, or end what else is on the device."
            ) from error
        if parts[0].tokens < self.token_budget:
            self.token_budget = parts[0].tokens
            warnings.warn(
                f"The device ran out of memory with {size}: tried again with half as many, and from here on.",
                RuntimeWarning,
                stacklevel=2,
            )
        return parts


def run_blocks(
    blocks: Iterable[list[str]],
    tokenizer: BulkTokenizer,
    run: Callable[..., dict[str, Any]],
    heads: ReadyHeads,
    max_rows: int | None,
    bar: tqdm,
) -> Iterator[dict[str, Any]]:
    """What `run`, of a `BatchRunner`, gives for each block. Heads of the same form of text share a forward pass."""
    if max_rows is not None and max_rows < 1:
        raise InputError(f"{spelled('batch_size')} is {max_rows}; it must be at least 1.")
    by_form = collections.defaultdict[TextForm, dict[str, ReadyHead]](dict)
    for name, head in heads.items():
        by_form[head.head.form][name] = head
    blocks = iter(blocks)
    pool, wait = ThreadPoolExecutor(1, thread_name_prefix="tokenize"), True

    def tokenize_next() -> list[TokenIds] | None:
        block = next(blocks, None)
        return None if block is None else [tokenizer(block, form) for form in by_form]

    try:
        upcoming = pool.submit(tokenize_next)
        while (tokens := upcoming.result()) is not None:
            upcoming = pool.submit(tokenize_next)
            out: dict[str, Any] = {}
            for number, (group, of_form) in enumerate(zip(by_form.values(), tokens, strict=True)):
                out |= run(of_form, group, max_rows, bar.update if number == 0 else None)
            yield {name: out[name] for name in heads}
    except KeyboardInterrupt:
        wait = False  # the sentences may come from a pipe that stays silent
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def kept(head: ReadyHead, truncate_dim: int | None, unit_length: bool) -> int:
    """Columns that are kept of what a head gives."""
    width = head.width
    if head.head.code is not None and (truncate_dim is not None or unit_length):
        raise InputError("Codes can be neither cut nor scaled: precision='float32' gives this encoder's vectors.")
    if truncate_dim is not None and not 1 <= truncate_dim <= width:
        raise InputError(f"truncate_dim is {truncate_dim}; the vectors have {width} dimensions.")
    return width if truncate_dim is None else truncate_dim


def finished(vectors: np.ndarray, truncate_dim: int | None, unit_length: bool) -> np.ndarray:
    """Cut and scaled on the host, so that neither compiles another program."""
    vectors = vectors[:, :truncate_dim]
    return normalize(vectors) if unit_length else vectors


def checked_blocks(sentences: Iterable[object], size: int) -> Iterator[list[str]]:
    """Sentences in blocks, read lazily; raises `InputError` at the first that is not a string."""
    if isinstance(sentences, str | Mapping | set | frozenset):
        checked_text(sentences)  # refuses them
    iterator = iter(sentences)
    for number in itertools.count():
        block = list(itertools.islice(iterator, size))
        if not block:
            return
        yield checked_text(block, number * size)


def progress(total: int | None, show: bool | None) -> tqdm:
    """A bar over sentences; None shows one on a terminal when it takes over a second."""
    disable = None if show is None else not show
    return tqdm(total=total, desc="encode", unit="sent", disable=disable, delay=1 if show is None else 0, leave=False)
