"""Which sentences go into which batch: length-sorted, static shapes, a token budget.

Sentences are sorted by length, longest first, and cut into batches. A batch is padded to the next length of a fixed
ladder and holds as many rows as the token budget allows there, so there are at most as many shapes as rungs (plus
one for the last, smaller batch), and a device program is compiled once for each. Where compiling is cheap beside the
work, the ladder is finer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int


@dataclasses.dataclass(frozen=True)
class Batch:
    """One batch: `rows` are the sentences' indices, [height, length] its static shape."""

    rows: Int[np.ndarray, " rows"]
    height: int
    length: int


def length_ladder(max_length: int, step: int = 8) -> Int[np.ndarray, " rungs"]:
    """Padded lengths: eight steps of 8 up to 64, four of 16 up to 128, and so on; the last is `max_length`.

    Args:
      max_length: The last rung.
      step: The first steps; a finer ladder pads less and has more shapes.
    """
    rungs: list[int] = []
    top = 8 * step
    while not rungs or rungs[-1] < max_length:
        if rungs and rungs[-1] >= top:
            step, top = 2 * step, 2 * top
        rungs.append((rungs[-1] if rungs else 0) + step)
    rungs[-1] = max_length
    return np.asarray(rungs)


def choose_ladder(lengths: Int[np.ndarray, " n"], max_length: int, shape_cost: int) -> Int[np.ndarray, " rungs"]:
    """The ladder, of steps 8, 4 or 2, with the fewest padded tokens, where each rung in use counts as `shape_cost`."""

    def cost(ladder: Int[np.ndarray, " rungs"]) -> int:
        rung = np.searchsorted(ladder, lengths)
        return int(ladder[rung].sum()) + shape_cost * len(np.unique(rung))

    return min((length_ladder(max_length, step) for step in (8, 4, 2)), key=cost)


def rows_for(length: int, token_budget: int, multiple: int, max_rows: int | None = None) -> int:
    """Rows of a full batch of this padded length: within the budget, a multiple of the devices, at least one each."""
    rows = max(token_budget // length, 1)
    if max_rows is not None:
        rows = min(rows, max_rows)
    return max(rows // multiple, 1) * multiple


def halved(batch: Batch, multiple: int = 1) -> list[Batch]:
    """The batch as several of half its height, in the same order; one batch where it cannot be split.

    Args:
      batch: A batch.
      multiple: As in `plan_batches`.
    """
    height = max(-(-batch.height // 2) // multiple, 1) * multiple
    starts = range(0, len(batch.rows), height)
    return [Batch(batch.rows[start : start + height], height, batch.length) for start in starts]


def plan_batches(
    lengths: Int[np.ndarray, " n"],
    *,
    max_length: int,
    token_budget: int,
    multiple: int = 1,
    max_rows: int | None = None,
    shape_cost: int | None = None,
) -> Iterator[Batch]:
    """Cuts sentences into batches, longest first.

    Args:
      lengths: Tokens of each sentence, none above `max_length`.
      max_length: The ladder's last rung.
      token_budget: Padded tokens a batch may hold.
      multiple: Every batch's height is a multiple of this (the number of devices).
      max_rows: At most this many rows a batch.
      shape_cost: How many padded tokens one compiled shape is worth; None is more than any padding.

    Yields:
      Batches that together hold every sentence once. Only the last may have fewer sentences than rows; its height
      is a power of two times `multiple`.
    """
    ladder = length_ladder(max_length) if shape_cost is None else choose_ladder(lengths, max_length, shape_cost)
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = int(ladder[np.searchsorted(ladder, lengths[order[start]])])
        height = rows_for(length, token_budget, multiple, max_rows)
        rows = order[start : start + height]
        start += len(rows)
        if len(rows) < height:
            height = min(height, multiple * (1 << max(-(-len(rows) // multiple) - 1, 0).bit_length()))
        yield Batch(rows, height, length)
