"""Blocks of sentences through an engine, in bounded memory.

The host tokenizes the next block while the devices work on the current one. Batches are started ahead of the one that
is fetched, and halved if they do not fit into the devices' memory.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.engines import length_ladder
from jaxwhiten.engines.batching import Batch, BatchResult
from jaxwhiten.engines.engine import Engine
from jaxwhiten.errors import Bounds, JaxwhitenError, NonFiniteError, warn
from jaxwhiten.head import Heads, Step
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.text import BulkTokenizer, TextForm, TextList, TokenIds
from jaxwhiten.types import AnyArray

BLOCK = 16_384  # sentences tokenized and sorted together
_FEW = 16  # up to this many sentences are encoded without a progress bar
_FAILURES = (RuntimeError, MemoryError)  # raised by a batch, in any engine


class Output(NamedTuple):
    """One head of a forward pass: the texts that it reads, its steps on the devices, and what the host does after."""

    form: TextForm
    steps: tuple[Step, ...]
    width: int
    dtype: type[np.generic] = np.float32
    by_segment: bool = False  # whether a row may hold several sentences
    truncate: int | None = None
    unit: bool = False

    def empty(self, n: int) -> np.ndarray:
        """An uninitialized array for n vectors."""
        return np.empty((n, self.truncate or self.width), self.dtype)

    def finished(self, result: BatchResult, places: AnyArray, rows: np.ndarray, bad: set[int]) -> np.ndarray:
        """Vectors at these places after truncation and scaling, or codes; `bad` gets the rows that are not finite."""
        finite = result.finite[places, 0]
        if not finite.all():
            bad.update(rows[~finite].tolist())
            return self.empty(len(rows))
        x = result.vectors[places, : self.truncate]
        if self.unit:
            return normalize(x)
        return x


Outputs = Mapping[str, Output]
Keep = Callable[[np.ndarray, dict[str, np.ndarray]], None]  # takes numbers of sentences, and their vectors


def vectors(
    engine: Engine,
    tokens: TokenIds,
    outputs: Outputs,
    max_rows: int | None = None,
    bar: Any = None,
    keep: Keep | None = None,
    texts: Sequence[object] = (),
    first: int = 0,
) -> dict[str, np.ndarray]:
    """The vectors of all sentences, in their order; NonFiniteError, with all their `rows`, if some are not finite.

    `keep` gets copies of those that are finite, batch by batch. The error names the `texts`, of which the first one has
    number `first`.
    """

    def give(rows: np.ndarray, names: Collection[str]) -> None:
        if keep is not None:
            finite = rows[~np.isin(rows, [*bad, *suspects])]
            keep(first + finite, {name: results[name][finite] for name in names})

    if max_rows is not None:
        Bounds(1).check("batch_size", max_rows)
    n = len(tokens.lengths)
    bad = set[int]()
    suspects = set[int]()
    at_once = engine.at_once(tokens, {name: output.steps for name, output in outputs.items()})
    results = {name: outputs[name].finished(x, slice(None), np.arange(n), bad) for name, x in at_once.items()}
    if at_once:
        give(np.arange(n), at_once)
    batched = {name: output for name, output in outputs.items() if name not in results}
    if bar is not None and not batched:
        bar.update(n)
    results |= {name: output.empty(n) for name, output in batched.items()}
    for batch, of_batch in batches(engine, tokens, batched, max_rows) if batched else ():
        for name, x in of_batch.items():
            results[name][batch.rows] = outputs[name].finished(x, batch.vectors, batch.rows, suspects)
        give(batch.rows, of_batch)
        if bar is not None:
            bar.update(len(batch.rows))
    for row in sorted(suspects) if n > 1 else ():  # 0 · NaN is NaN: a sentence may have spoiled others of its batch
        start = tokens.starts[row]
        one = TokenIds(tokens.flat[start : start + tokens.lengths[row]], tokens.lengths[row : row + 1])
        with contextlib.suppress(NonFiniteError):
            for name, (vector,) in vectors(engine, one, batched).items():
                results[name][row] = vector
            suspects.discard(row)
            give(np.array([row]), batched)
    if bad | suspects:
        raise NonFiniteError.of_texts(sorted(bad | suspects), texts, first)
    return results


def batches(
    engine: Engine, tokens: TokenIds, outputs: Outputs, max_rows: int | None = None
) -> Iterator[tuple[Batch, dict[str, BatchResult]]]:
    """Batches that together hold every sentence once, each with the result of the engine's `fetch`."""
    check_process()
    steps = {name: output.steps for name, output in outputs.items()}
    segments = all(output.by_segment for output in outputs.values())
    started: collections.deque[tuple[Batch, Any]] = collections.deque()
    plan = list(engine.layout.plan(tokens.lengths, max_rows, segments=segments))
    for planned in plan:
        for batch in engine.layout.within_budget(planned, tokens.lengths):
            try:
                started.append((batch, engine.start(batch, tokens, steps, alone=len(plan) == 1)))
            except _FAILURES:  # tried again after the earlier batches are done
                started.append((batch, None))
            while started and (len(started) >= engine.in_flight or started[-1][1] is None):
                yield from _finished(engine, *started.popleft(), tokens, steps)
    while started:
        yield from _finished(engine, *started.popleft(), tokens, steps)


def _finished(
    engine: Engine, batch: Batch, handle: Any, tokens: TokenIds, steps: Heads
) -> Iterator[tuple[Batch, dict[str, BatchResult]]]:
    """A batch with its results, or smaller batches if it did not fit into the devices' memory."""
    try:
        if handle is None:
            handle = engine.start(batch, tokens, steps)
        results = engine.fetch(handle)
    except _FAILURES as error:
        for part in _smaller(engine, batch, tokens, error):
            yield from _finished(engine, part, None, tokens, steps)
    else:
        yield batch, results


def _smaller(engine: Engine, batch: Batch, tokens: TokenIds, error: Exception) -> list[Batch]:
    """The halves of a batch that did not fit; from here on, batches are no larger than these halves."""
    if not engine.is_out_of_memory(error):
        raise error
    parts = batch.halved(tokens.lengths, engine.layout.devices)
    size = f"{batch.height} sentences of {batch.length} tokens"
    if parts[0].height == batch.height:
        raise JaxwhitenError(
            f"Out of device memory for {size}, which cannot be split: lower `max_length`, use dtype='bfloat16', or stop"
            " other programs on the device."
        ) from error
    if parts[0].tokens < engine.layout.token_budget:
        engine.layout.token_budget = parts[0].tokens
        warn(
            f"Out of device memory with {size}: retrying with half as many, now and later.",
            RuntimeWarning,
        )
    return parts


class Run:
    """Texts through tokenizer and engine for some heads; heads of one form of text share a forward pass."""

    def __init__(self, tokenizer: BulkTokenizer, engine: Engine, outputs: Outputs):
        self.tokenizer = tokenizer
        self.engine = engine
        self.outputs = outputs
        by_form = collections.defaultdict[TextForm, dict[str, Output]](dict)
        for name, output in outputs.items():
            by_form[output.form][name] = output
        self._by_form = dict(by_form)

    def in_blocks(
        self, texts: Iterator[list[str]], bar: Any, max_rows: int | None = None, keep: Keep | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """The vectors of each block; the next block is tokenized meanwhile."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
        wait = True
        first = 0
        try:
            upcoming = pool.submit(self._next, texts)
            with bar as shown:
                while (block := upcoming.result()) is not None:
                    upcoming = pool.submit(self._next, texts)
                    yield self.of_tokens(*block, first, shown, max_rows, keep)
                    first += len(block[0])
        except KeyboardInterrupt:
            wait = False  # the sentences may come from a pipe that stays silent
            raise
        finally:
            pool.shutdown(wait=wait, cancel_futures=True)

    def warm_up(self, longest: int) -> None:
        """Compiles the programs for one sentence of up to `longest` tokens."""
        for length in length_ladder(min(longest, self.tokenizer.max_length)):
            vectors(self.engine, TokenIds(np.zeros(length, np.int32), np.array([length])), self.outputs)

    def of_list(self, sentences: TextList, bar: Any, max_rows: int | None = None) -> dict[str, np.ndarray]:
        """The vectors of a list of sentences, block by block. A single block is tokenized without another thread."""
        if len(sentences) <= BLOCK:
            with bar as shown:
                return self.of_tokens(sentences, self.tokens(sentences), 0, shown, max_rows)
        results = {name: output.empty(len(sentences)) for name, output in self.outputs.items()}
        parts = list(blocks(len(sentences), BLOCK))
        of_parts = self.in_blocks((sentences[part] for part in parts), bar, max_rows)
        for part, block in zip(parts, of_parts, strict=True):
            for name, x in block.items():
                results[name][part] = x
        return results

    def _next(self, texts: Iterator[list[str]]) -> tuple[list[str], list[TokenIds]] | None:
        """The next block, and its tokens in every form; None after the last block."""
        block = next(texts, None)
        if block is None:
            return None
        return (block, self.tokens(block))

    def tokens(self, texts: list[str]) -> list[TokenIds]:
        """The token ids of texts, in every form."""
        return [self.tokenizer(texts, form) for form in self._by_form]

    def of_tokens(
        self,
        texts: list[str],
        tokens: list[TokenIds],
        first: int = 0,
        bar: Any = None,
        max_rows: int | None = None,
        keep: Keep | None = None,
    ) -> dict[str, np.ndarray]:
        """The vectors of texts with their `tokens`; the first text has number `first`, and texts are for messages."""
        results: dict[str, np.ndarray] = {}
        for group, of_form in zip(self._by_form.values(), tokens, strict=True):
            results |= vectors(self.engine, of_form, group, max_rows, bar, keep, texts, first)
            bar = None  # each text counts once
        return results


def progress(sentences: object = (), show: bool | None = None) -> Any:
    """The context of a progress bar over sentences, None if none is wanted.

    With `show=None` it is shown on a terminal after a second, unless there are only a few.
    """
    total = len(sentences) if isinstance(sentences, Sized) else None
    if show is False or (show is None and total is not None and total <= _FEW):
        return contextlib.nullcontext()
    from jaxwhiten.terminal.bars import Progress  # tqdm's import takes longer than a few sentences

    return Progress(show, total=total, desc="encode", unit="text", leave=False, delay=1 if show is None else 0)
