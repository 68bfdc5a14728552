"""Several sentences in a row, for accelerators: rows of one length, all of a batch's tokens in few of them.

Where a device is fast enough to wait for its memory, what counts is the bytes that a layer reads. Rows of 128 hold
short sentences one after the other, told apart by segment: no token-wise layer sees padding, attention needs no tokens
moved, and one program serves every length. On a CPU packed batches (`batching`) are faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from jaxwhiten.encoding.batching import Batch, plan_batches
from jaxwhiten.text import TokenIds

ROW = 128  # what the matrix units of TPUs and the kernels of attention take
SLOTS = 16  # sentences in a row at most: vectors there is room for


@dataclasses.dataclass(frozen=True)
class RowBatch(Batch):
    """A batch of rows that hold several sentences.

    Attributes:
      row: Which row each sentence stands in, in the order of `rows`.
      slot: Which of that row's sentences it is.
    """

    row: Int[np.ndarray, " rows"]
    slot: Int[np.ndarray, " rows"]

    @property
    def vectors(self) -> Int[np.ndarray, " rows"]:
        return self.row * SLOTS + self.slot

    def halved(self, lengths: Int[np.ndarray, " n"], multiple: int = 1) -> list[Batch]:
        height = max(-(-self.height // 2) // multiple, 1) * multiple
        return [
            _cut(self.rows, self.row, self.slot, slice(start, start + height), height, self.length)
            for start in range(0, int(self.row.max()) + 1, height)
        ]

    def arrays(self, tokens: TokenIds, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        each = tokens.lengths[self.rows]
        lengths = np.zeros((self.height, SLOTS), np.int32)
        lengths[self.row, self.slot] = each
        first = self.row * self.length + (np.cumsum(lengths, axis=1) - lengths)[self.row, self.slot]
        within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        ids = np.full(self.height * self.length, pad_id, np.int32)
        ids[np.repeat(first, each) + within] = tokens.flat[np.repeat(tokens.starts[self.rows], each) + within]
        return ids.reshape(self.height, self.length), lengths


def plan(
    lengths: Int[np.ndarray, " n"],
    *,
    share_rows: bool,
    long_rows: bool = False,
    max_length: int,
    token_budget: int,
    multiple: int = 1,
    max_rows: int | None = None,
) -> Iterator[Batch]:
    """Cuts sentences into batches that together hold every sentence once.

    Args:
      lengths: Tokens of each sentence.
      share_rows: Whether sentences of up to `ROW` tokens stand several in a row; others are planned by `plan_batches`,
        whose further arguments are these.
      long_rows: Whether longer ones do so, too, in rows of `max_length`, rounded up to a multiple of `ROW`.
    """

    def packed(lengths: Int[np.ndarray, " m"]) -> Iterator[Batch]:
        return plan_batches(
            lengths, max_length=max_length, token_budget=token_budget, multiple=multiple, max_rows=max_rows
        )

    if not share_rows:
        yield from packed(lengths)
        return
    short, long = np.flatnonzero(lengths <= ROW), np.flatnonzero(lengths > ROW)
    if not long_rows:
        for batch in packed(lengths[long]):
            yield dataclasses.replace(batch, rows=long[batch.rows])
    for chosen, length in ((long, -(-max_length // ROW) * ROW), (short, ROW)):
        if len(chosen) and (long_rows or length == ROW):
            most = token_budget // length if max_rows is None else min(token_budget // length, max_rows // SLOTS)
            order, row, slot = fill_rows(lengths[chosen], length)
            yield from _batches(chosen[order], row, slot, max(most // multiple, 1) * multiple, length, multiple)


def _batches(
    rows: np.ndarray, row: np.ndarray, slot: np.ndarray, height: int, length: int, multiple: int
) -> Iterator[RowBatch]:
    """Full batches; the height of the last is a power of two times the devices, or that of a full batch."""
    count = int(row.max()) + 1
    for start in range(0, count, height):
        missing = -(-(count - start) // multiple)
        least = min(height, multiple << (missing - 1).bit_length())
        yield _cut(rows, row, slot, slice(start, start + height), least, length)


def _cut(rows: np.ndarray, row: np.ndarray, slot: np.ndarray, part: slice, height: int, length: int) -> RowBatch:
    """The batch of some rows, of which `row` has the numbers in ascending order."""
    of = slice(*np.searchsorted(row, (part.start, part.stop)))
    return RowBatch(rows[of], height, length, height * length, row[of] - part.start, slot[of])


def fill_rows(
    lengths: Int[np.ndarray, " n"], room: int = ROW, slots: int = SLOTS
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Puts sentences into rows, the longest that fits first, as many rows alike at a time as there are sentences for.

    Args:
      lengths: Tokens of each sentence, none above `room`.
      room: Tokens of a row.
      slots: Sentences of a row at most.

    Returns:
      The sentences' indices in the order of their rows; the row of each; which of its row's sentences it is.
    """
    counts = np.bincount(lengths, minlength=room + 1)
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(counts)  # of each length in `order`
    taken: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows = 0
    while counts.any():
        pattern, left, free = [], room, slots
        for length in np.flatnonzero(counts)[::-1].tolist():
            many = min(int(counts[length]), left // length, free)
            if many:
                pattern.append((length, many, slots - free))
                left, free = left - many * length, free - many
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
