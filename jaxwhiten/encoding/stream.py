"""Blocks of sentences through an engine, in bounded memory.

The host tokenises the next block while the devices work on the current one. Batches are started ahead of the one that
is fetched, and halved if they do not fit into the devices' memory.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypedDict

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.coded import with_code
from jaxwhiten.engines import length_ladder
from jaxwhiten.engines.batching import Batch, Found
from jaxwhiten.engines.engine import Engine
from jaxwhiten.errors import InputError, JaxwhitenError, NonFiniteError
from jaxwhiten.head import AfterPrompt, Head, Heads, Step
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.text import BulkTokenizer, TextForm, TokenIds

BLOCK = 16_384  # sentences tokenised and sorted together
_FEW = 16  # up to this many sentences are encoded without a progress bar
_FAILURES = (RuntimeError, MemoryError)  # raised by a batch, in any engine


class EncodeOptions(TypedDict, total=False):
    """The options of `Encoder.encode` except pooling."""

    prompt_name: str | None
    prompt: str | None
    normalize_embeddings: bool
    truncate_dim: int | None
    precision: Any  # a name or a fitted code
    batch_size: int | None
    show_progress: bool | None
    show_progress_bar: bool | None
    convert_to_numpy: bool
    convert_to_tensor: bool


class ReadyHead(NamedTuple):
    """A head in use: its steps on the devices, the width of its vectors, and its operations on the host."""

    head: Head
    steps: tuple[Step, ...]
    width: int
    truncate_dim: int | None = None
    unit_length: bool = False

    def cut(self, truncate_dim: int | None, unit_length: bool) -> ReadyHead:
        """This head with vectors truncated and scaled on the host, which needs no other compiled program."""
        if self.head.code is not None and (truncate_dim is not None or unit_length):
            raise InputError("Codes can be neither truncated nor normalized: use precision='float32' for vectors.")
        if truncate_dim is not None and not 1 <= truncate_dim <= self.width:
            raise InputError(f"truncate_dim={truncate_dim}: the vectors have {self.width} dimensions.")
        if truncate_dim is None and not unit_length:
            return self
        return self._replace(truncate_dim=truncate_dim, unit_length=unit_length)

    def empty(self, n: int) -> np.ndarray:
        """An uninitialised array for n vectors."""
        return np.empty((n, self.truncate_dim or self.width), self.head.dtype)

    def finished(self, found: Found, places: Any, rows: np.ndarray, bad: set[int]) -> np.ndarray:
        """Vectors at these places after truncation and scaling, or codes; `bad` gets the rows that are not finite."""
        if not (finite := found.finite[places, 0]).all():
            bad.update(rows[~finite].tolist())
            return self.empty(len(rows))
        x = found.vectors[places, : self.truncate_dim]
        return normalize(x) if self.unit_length else x

    def prompted(self, prompt: str, tokenizer: BulkTokenizer, engine: Engine) -> ReadyHead:
        """This head with another prompt. The compiled function takes the prompt's length as an argument."""
        head, steps = self.head.with_prompt(prompt), self.steps
        if any(isinstance(step, AfterPrompt) for step in steps):
            form = head.form
            length = tokenizer.prompt_length(form.prompt, form.lower_case) if form.prompt else 0
            placed = engine.place(np.int32(length))
            steps = tuple(AfterPrompt(s.pooling, placed) if isinstance(s, AfterPrompt) else s for s in steps)
        return self._replace(head=head, steps=steps)


ReadyHeads = Mapping[str, ReadyHead]


def vectors(
    engine: Engine, tokens: TokenIds, heads: ReadyHeads, max_rows: int | None = None, bar: Any = None
) -> dict[str, np.ndarray]:
    """The vectors of all sentences, in their order; NonFiniteError, with all their `rows`, if some are not finite."""
    n, bad, suspects = len(tokens.lengths), set[int](), set[int]()
    at_once = engine.at_once(tokens, {name: head.steps for name, head in heads.items()})
    out = {name: heads[name].finished(found, slice(None), np.arange(n), bad) for name, found in at_once.items()}
    batched = {name: head for name, head in heads.items() if name not in out}
    if bar is not None and not batched:
        bar.update(n)
    out |= {name: head.empty(n) for name, head in batched.items()}
    for batch, found in batches(engine, tokens, batched, max_rows) if batched else ():
        for name, x in found.items():
            out[name][batch.rows] = heads[name].finished(x, batch.vectors, batch.rows, suspects)
        if bar is not None:
            bar.update(len(batch.rows))
    for row in sorted(suspects) if n > 1 else ():  # 0 · NaN is NaN: a sentence may have spoiled others of its batch
        start = tokens.starts[row]
        one = TokenIds(tokens.flat[start : start + tokens.lengths[row]], tokens.lengths[row : row + 1])
        with contextlib.suppress(NonFiniteError):
            for name, (vector,) in vectors(engine, one, batched).items():
                out[name][row] = vector
            suspects.discard(row)
    if bad | suspects:
        raise NonFiniteError.of_texts(sorted(bad | suspects))
    return out


def batches(
    engine: Engine, tokens: TokenIds, heads: ReadyHeads, max_rows: int | None = None
) -> Iterator[tuple[Batch, dict[str, Found]]]:
    """Batches that together hold every sentence once, each with the result of the engine's `fetch`."""
    check_process()
    steps = {name: head.steps for name, head in heads.items()}
    segments = all(head.head.by_segment for head in heads.values())
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
) -> Iterator[tuple[Batch, dict[str, Found]]]:
    """A batch with its results, or smaller batches if it did not fit into the devices' memory."""
    try:
        handle = engine.start(batch, tokens, steps) if handle is None else handle
        found = engine.fetch(handle)
    except _FAILURES as error:
        for part in _smaller(engine, batch, tokens, error):
            yield from _finished(engine, part, None, tokens, steps)
    else:
        yield batch, found


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
        warnings.warn(
            f"Out of device memory with {size}: retrying with half as many, now and later.",
            RuntimeWarning,
            stacklevel=2,
        )
    return parts


@dataclasses.dataclass
class Run:
    """Texts through tokenizer and engine for some heads; heads of one form of text share a forward pass."""

    tokenizer: BulkTokenizer
    engine: Engine
    heads: ReadyHeads
    bar: Any
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None and self.max_rows < 1:
            raise InputError(f"batch_size={self.max_rows}: expected at least 1.")
        self._by_form = collections.defaultdict[TextForm, dict[str, ReadyHead]](dict)
        for name, head in self.heads.items():
            self._by_form[head.head.form][name] = head

    def in_blocks(self, texts: Iterator[list[str]]) -> Iterator[dict[str, Any]]:
        """The vectors of each block; the next block is tokenised meanwhile."""
        pool, wait = ThreadPoolExecutor(1, thread_name_prefix="tokenize"), True
        try:
            upcoming, first = pool.submit(self._next, texts), 0
            with self.bar:
                while (read := upcoming.result()) is not None:
                    upcoming = pool.submit(self._next, texts)
                    yield self.of_tokens(*read, first)
                    first += len(read[0])
        except KeyboardInterrupt:
            wait = False  # the sentences may come from a pipe that stays silent
            raise
        finally:
            pool.shutdown(wait=wait, cancel_futures=True)

    def warm_up(self, longest: int) -> None:
        """Compiles the programs for one sentence of up to `longest` tokens."""
        for length in length_ladder(min(longest, self.tokenizer.max_length)):
            vectors(self.engine, TokenIds(np.zeros(length, np.int32), np.array([length])), self.heads)

    def of_list(self, sentences: list[str]) -> dict[str, np.ndarray]:
        """The vectors of a list of sentences, block by block. A single block is tokenised without another thread."""
        if len(sentences) <= BLOCK:
            with self.bar:
                return self.of_tokens(sentences, self.tokens(sentences))
        out = {name: head.empty(len(sentences)) for name, head in self.heads.items()}
        parts = list(blocks(len(sentences), BLOCK))
        for part, block in zip(parts, self.in_blocks(sentences[part] for part in parts), strict=True):
            for name, x in block.items():
                out[name][part] = x
        return {name: with_code(x, self.heads[name].head.code) for name, x in out.items()}

    def _next(self, texts: Iterator[list[str]]) -> tuple[list[str], list[TokenIds]] | None:
        """The next block, and its tokens in every form; None after the last block."""
        block = next(texts, None)
        return None if block is None else (block, self.tokens(block))

    @property
    def forms(self) -> list[TextForm]:
        """The forms of text that the heads read."""
        return list(self._by_form)

    def tokens(self, texts: list[str]) -> list[TokenIds]:
        """The token ids of texts, in every form."""
        return [self.tokenizer(texts, form) for form in self._by_form]

    def of_tokens(self, texts: list[str], tokens: list[TokenIds], first: int = 0) -> dict[str, Any]:
        """The vectors of texts with their `tokens`; the first text has number `first`, and texts are for messages."""
        out: dict[str, Any] = {}
        try:
            for number, (group, of_form) in enumerate(zip(self._by_form.values(), tokens, strict=True)):
                out |= vectors(self.engine, of_form, group, self.max_rows, self.bar if number == 0 else None)
        except NonFiniteError as error:
            raise NonFiniteError.of_texts(error.rows, texts, first) from None
        return {name: with_code(out[name], head.head.code) for name, head in self.heads.items()}


class _NoBar(contextlib.nullcontext[Any]):
    def __enter__(self) -> _NoBar:
        return self

    def update(self, n: int) -> None: ...


def progress(sentences: Any = (), show: bool | None = None) -> Any:
    """A progress bar over sentences; None shows it on a terminal after a second, unless there are only a few."""
    total = len(sentences) if isinstance(sentences, Sized) else None
    if show is False or (show is None and total is not None and total <= _FEW):
        return _NoBar()
    from jaxwhiten.bars import Progress  # tqdm's import takes longer than a few sentences

    return Progress(show, total=total, desc="encode", unit="text", leave=False, delay=1 if show is None else 0)
