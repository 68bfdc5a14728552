"""Assigns sentences to batches: static shapes, a token budget, and one of two layouts.

Packed batches are for CPUs. Sentences are sorted by length, longest first, and cut into batches of as many tokens as
the budget allows. Everything except attention is computed on the tokens alone; for attention, sentences are padded to
the next length of a fixed ladder. Padding therefore costs little. There are about as many shapes as rungs, and one
device program is compiled for each.

Rows with several sentences are for accelerators, which are fast enough to wait for memory: the bytes that a layer reads
decide the time. Rows of 128 tokens hold short sentences one after the other, separated by segment numbers. No
token-wise layer sees padding, attention does not move tokens, and one program serves every length.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxwhiten.text import TokenIds
from jaxwhiten.types import AnyArray, Int

ROW = 128  # the size for matrix units of TPUs and for attention kernels
SLOTS = 16  # maximum number of sentences in a row, each with room for its vector
# Tokens per batch on each device. On a CPU small batches stay in the cache; accelerators want large ones.
_TOKENS_PER_DEVICE = {"cpu": 1024, "gpu": 65_536, "tpu": 65_536}


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch."""

    rows: Int[np.ndarray, " rows"]  # indices of the sentences, longest first, dealt out to several devices in turn
    height: int  # room for sentences, on all devices together
    length: int  # to which sentences are padded for attention
    tokens: int  # room for tokens outside attention, on all devices together; height × length keeps all padding

    @property
    def vectors(self) -> Int[np.ndarray, " rows"] | slice:
        """The positions of the sentences' vectors among all vectors of the batch."""
        return slice(len(self.rows))

    def halved(self, lengths: Int[np.ndarray, " n"], multiple: int = 1) -> list[Batch]:
        """The batch as several of half its height, in the same order; one batch if it cannot be split."""
        height = max(-(-self.height // 2) // multiple, 1) * multiple
        parts = [self.rows[start : start + height] for start in range(0, len(self.rows), height)]
        return [_packed(rows, lengths, height, self.length, self.tokens // 2, multiple) for rows in parts]

    def trimmed(self, lengths: Int[np.ndarray, " n"]) -> Batch:
        """The batch without empty rows, padded to its longest sentence."""
        longest = max(int(lengths[self.rows].max()), 1)
        return dataclasses.replace(self, height=len(self.rows), length=longest)

    def arrays(self, tokens: TokenIds, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Token ids [height, length], and the lengths of the sentences of each row."""
        lengths = np.ones(self.height, np.int32)  # a padding row attends to its first position: no NaN
        lengths[: len(self.rows)] = tokens.lengths[self.rows]
        return tokens.padded(self.rows, self.height, self.length, pad_id), lengths


@dataclasses.dataclass(frozen=True)
class RowBatch(Batch):
    """A batch of rows with several sentences; `row` and `slot` give each sentence's row and its number in the row."""

    row: Int[np.ndarray, " rows"]
    slot: Int[np.ndarray, " rows"]

    @property
    def vectors(self) -> Int[np.ndarray, " rows"]:
        return self.row * SLOTS + self.slot

    def halved(self, lengths: Int[np.ndarray, " n"], multiple: int = 1) -> list[Batch]:
        height = max(-(-self.height // 2) // multiple, 1) * multiple
        return [self.part(start, height, height) for start in range(0, int(self.row.max()) + 1, height)]

    def part(self, start: int, count: int, height: int) -> RowBatch:
        """The batch of `count` rows from `start` on, with room for `height` rows; `row` must be ascending."""
        of = slice(*np.searchsorted(self.row, (start, start + count)))
        return RowBatch(self.rows[of], height, self.length, height * self.length, self.row[of] - start, self.slot[of])

    def arrays(self, tokens: TokenIds, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.zeros((self.height, SLOTS), np.int32)
        lengths[self.row, self.slot] = tokens.lengths[self.rows]
        padded = tokens.padded(self.rows, len(self.rows), self.length, -1)
        ids = np.full((self.height, self.length), pad_id, np.int32)
        ids[np.arange(self.length) < lengths.sum(axis=1, keepdims=True)] = padded[padded >= 0]  # in the order of rows
        return ids, lengths


class BatchResult(NamedTuple):
    """Vectors or codes [..., d], and whether each vector was finite before a code rounded it, bool [..., 1]."""

    vectors: AnyArray
    finite: AnyArray


@dataclasses.dataclass
class Layout:
    """How sentences are cut into batches."""

    max_length: int  # of a sentence in tokens
    token_budget: int  # tokens per batch on all devices together; it shrinks after a batch did not fit
    devices: int = 1  # among which the rows of a batch are dealt out
    share_rows: bool = False  # whether sentences of up to `ROW` tokens share rows
    long_rows: bool = False  # whether longer ones do, too, of length `max_length` rounded up to a multiple of `ROW`

    @classmethod
    def on(cls, platform: str, devices: int, max_length: int, long_rows: bool = False) -> Layout:
        budget = _TOKENS_PER_DEVICE.get(platform, 2048) * devices
        return cls(max_length, budget, devices, platform != "cpu", long_rows)

    def plan(
        self, lengths: Int[np.ndarray, " n"], max_rows: int | None = None, *, segments: bool = True
    ) -> Iterator[Batch]:
        """Cuts sentences into batches of at most `max_rows`; each sentence is in exactly one batch.

        One sentence per device may exceed the token budget. Heights are multiples of the number of devices. The height
        of the last batch is a power of two times that number, or a full height. Without `segments`, rows are not
        shared.
        """
        if not (segments and self.share_rows):
            yield from self._packed(lengths, np.arange(len(lengths)), max_rows)
            return
        short = np.flatnonzero(lengths <= ROW)
        long = np.flatnonzero(lengths > ROW)
        if self.long_rows:
            yield from self._shared(lengths, long, -(-self.max_length // ROW) * ROW, max_rows)
        else:
            yield from self._packed(lengths, long, max_rows)
        yield from self._shared(lengths, short, ROW, max_rows)

    def _packed(self, lengths: np.ndarray, chosen: np.ndarray, max_rows: int | None) -> Iterator[Batch]:
        """Packed batches of the chosen sentences, longest first."""
        ladder = length_ladder(self.max_length)
        order = chosen[np.argsort(-lengths[chosen], kind="stable")]
        start = 0
        while start < len(order):
            rung = int(np.searchsorted(ladder, lengths[order[start]]))
            shortest = max(int(ladder[rung - 1]) + 1 if rung else 1, int(ladder[rung]) // 2)
            height = self.token_budget // shortest
            deals = max((height if max_rows is None else min(height, max_rows)) // self.devices, 1)
            of_first = np.cumsum(lengths[order[start : start + deals * self.devices : self.devices]])
            fitting = max(int(np.searchsorted(of_first, self.token_budget // self.devices, side="right")), 1)
            rows = order[start : start + fitting * self.devices]
            start += len(rows)
            if start == len(order):
                deals = min(deals, 1 << (-(-len(rows) // self.devices) - 1).bit_length())
            yield _packed(rows, lengths, deals * self.devices, int(ladder[rung]), self.token_budget, self.devices)

    def _shared(self, lengths: np.ndarray, chosen: np.ndarray, length: int, max_rows: int | None) -> Iterator[Batch]:
        """Batches of rows of one length that the chosen sentences share."""
        if not len(chosen):
            return
        if max_rows is None:
            most = self.token_budget // length
        else:
            most = min(self.token_budget // length, max_rows // SLOTS)
        height = max(most // self.devices, 1) * self.devices
        order, row, slot = fill_rows(lengths[chosen], length)
        count = int(row[-1]) + 1
        every = RowBatch(chosen[order], count, length, count * length, row, slot)
        for start in range(0, count, height):
            missing = -(-(count - start) // self.devices)
            yield every.part(start, height, min(height, self.devices << (missing - 1).bit_length()))

    def within_budget(self, batch: Batch, lengths: Int[np.ndarray, " n"]) -> Iterator[Batch]:
        """The batch, or parts of it if the budget has shrunk since the batch was planned."""
        if batch.tokens <= self.token_budget or batch.height <= self.devices:
            yield batch
            return
        for part in batch.halved(lengths, self.devices):
            yield from self.within_budget(part, lengths)


@functools.lru_cache(maxsize=16)
def length_ladder(max_length: int) -> Int[np.ndarray, " rungs"]:
    """Padded lengths: eight steps of 8 up to 64, four of 16 up to 128, and so on; the last is `max_length`.

    >>> length_ladder(64)
    array([ 8, 16, 24, 32, 40, 48, 56, 64])
    """
    rungs = [0]
    while rungs[-1] < max_length:
        rungs.append(rungs[-1] + max(8, (1 << rungs[-1].bit_length()) // 8))
    ladder = np.asarray([*rungs[1:-1], max_length])
    ladder.setflags(write=False)  # all callers share it
    return ladder


def _packed(rows: np.ndarray, lengths: np.ndarray, height: int, length: int, token_budget: int, devices: int) -> Batch:
    """A batch with room for the tokens of the first device, which has the longest of every `devices` sentences.

    Room is a multiple of an eighth of a device's budget, and at least half of it, so that there are few shapes.
    """
    budget = max(token_budget // devices, 1)
    eighths = max(-(-8 * int(lengths[rows[::devices]].sum()) // budget), 4)
    return Batch(rows, height, length, min(devices * -(-budget * eighths // 8), height * length))


def fill_rows(
    lengths: Int[np.ndarray, " n"], room: int = ROW
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Puts sentences into rows, the longest that fits first; equal rows are made together as long as sentences last.

    No sentence may have more tokens than `room`. A row holds at most `SLOTS` sentences.

    Returns:
      Indices of the sentences in the order of their rows; the row of each; its number in the row.
    """
    counts = np.bincount(lengths, minlength=room + 1)
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(counts)  # end of each length in `order`
    taken: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows = 0
    while counts.any():
        pattern = []
        left = room
        free = SLOTS
        for length in np.flatnonzero(counts)[::-1].tolist():
            many = min(int(counts[length]), left // length, free)
            if many:
                pattern.append((length, many, SLOTS - free))
                left -= many * length
                free -= many
            if not left or not free:
                break
        alike = min(int(counts[length]) // many for length, many, _ in pattern)
        for length, many, start in pattern:
            chosen = order[ends[length] - alike * many : ends[length]]
            number = np.arange(alike * many)
            taken.append((chosen, rows + number // many, start + number % many))
            ends[length] -= alike * many
            counts[length] -= alike * many
        rows += alike
    sentences, row, slot = (np.concatenate(parts) for parts in zip(*taken, strict=True))
    by_row = np.argsort(row, kind="stable")
    return sentences[by_row], row[by_row], slot[by_row]
