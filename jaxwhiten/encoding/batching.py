"""Which sentences go into which batch: length-sorted, packed, static shapes, a token budget.

Sentences are sorted by length, longest first, and cut into batches of as many tokens as the budget allows. All but
attention is computed on a batch's tokens alone, one sentence after the other; for attention they are padded to the
next length of a fixed ladder. Padding therefore costs little, and there are about as many shapes as rungs; a device
program is compiled once for each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int

from jaxwhiten.text import TokenIds


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch.

    Attributes:
      rows: The sentences' indices, longest first; with several devices they are dealt out in turn.
      height: Sentences there is room for, on all devices together.
      length: What they are padded to for attention.
      tokens: Tokens there is room for elsewhere, on all devices together; height × length leaves all padding in.
    """

    rows: Int[np.ndarray, " rows"]
    height: int
    length: int
    tokens: int

    @property
    def vectors(self) -> Int[np.ndarray, " rows"] | slice:
        """Where among a batch's vectors those of its sentences stand."""
        return slice(len(self.rows))

    def halved(self, lengths: Int[np.ndarray, " n"], multiple: int = 1) -> list[Batch]:
        """The batch as several of half its height, in the same order; one batch where it cannot be split."""
        height = max(-(-self.height // 2) // multiple, 1) * multiple
        parts = [self.rows[start : start + height] for start in range(0, len(self.rows), height)]
        return [_batch(rows, lengths, height, self.length, self.tokens // 2, multiple) for rows in parts]

    def trimmed(self, lengths: Int[np.ndarray, " n"]) -> Batch:
        """The batch without rows for no sentence, padded to its longest."""
        longest = max(int(lengths[self.rows].max()), 1)
        return dataclasses.replace(self, height=len(self.rows), length=longest)

    def arrays(self, tokens: TokenIds, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids and lengths that `Forward.start` takes."""
        lengths = np.ones(self.height, np.int32)  # a padding row attends to its first position: no NaN
        lengths[: len(self.rows)] = tokens.lengths[self.rows]
        return tokens.padded(self.rows, self.height, self.length, pad_id), lengths


def length_ladder(max_length: int) -> Int[np.ndarray, " rungs"]:
    """Padded lengths: eight steps of 8 up to 64, four of 16 up to 128, and so on; the last is `max_length`."""
    rungs: list[int] = []
    step, top = 8, 64
    while not rungs or rungs[-1] < max_length:
        if rungs and rungs[-1] >= top:
            step, top = 2 * step, 2 * top
        rungs.append((rungs[-1] if rungs else 0) + step)
    rungs[-1] = max_length
    return np.asarray(rungs)


def _batch(
    rows: Int[np.ndarray, " rows"],
    lengths: Int[np.ndarray, " n"],
    height: int,
    length: int,
    token_budget: int,
    multiple: int,
) -> Batch:
    """A batch with room for the tokens of the first device, which has the longest of every `multiple` sentences.

    Room comes in eighths of a device's budget, half of it at the least, so that shapes stay few.
    """
    budget = max(token_budget // multiple, 1)
    eighths = max(-(-8 * int(lengths[rows[::multiple]].sum()) // budget), 4)
    return Batch(rows, height, length, min(multiple * -(-budget * eighths // 8), height * length))


def plan_batches(
    lengths: Int[np.ndarray, " n"],
    *,
    max_length: int,
    token_budget: int,
    multiple: int = 1,
    max_rows: int | None = None,
) -> Iterator[Batch]:
    """Cuts sentences into batches that together hold every sentence once, longest first.

    One sentence per device may exceed the token budget. Heights are multiples of `multiple`, the number of devices;
    that of the last batch is a power of two times it, or that of a full batch.
    """
    ladder = length_ladder(max_length)
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        rung = int(np.searchsorted(ladder, lengths[order[start]]))
        shortest = max(int(ladder[rung - 1]) + 1 if rung else 1, int(ladder[rung]) // 2)
        height = token_budget // shortest if max_rows is None else min(token_budget // shortest, max_rows)
        deals = max(height // multiple, 1)
        of_first = np.cumsum(lengths[order[start : start + deals * multiple : multiple]])
        fitting = max(int(np.searchsorted(of_first, token_budget // multiple, side="right")), 1)
        rows = order[start : start + fitting * multiple]
        start += len(rows)
        if start == len(order):
            deals = min(deals, 1 << (-(-len(rows) // multiple) - 1).bit_length())
        yield _batch(rows, lengths, deals * multiple, int(ladder[rung]), token_budget, multiple)
