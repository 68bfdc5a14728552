"""Batches of static shape in a reproducible order: length buckets, shuffled and sharded with grain.

Every epoch, each bucket is shuffled and split into batches, and the batches of all buckets are shuffled together. A
batch depends only on the seed and its position, so a resumed run sees the same batches as an uninterrupted one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import numpy as np

from jaxwhiten.errors import InputError, optional
from jaxwhiten.terminal import counted
from jaxwhiten.types import AnyArray, Int, Json

Batch = dict[str, np.ndarray]
Collate = Callable[[Int[np.ndarray, " b"], int, np.random.Generator], Batch]
"""Maps row numbers, padded length and a random generator for this position to arrays with one entry per row."""


def choose_buckets(
    lengths: Int[np.ndarray, " n"], ladder: Int[np.ndarray, " rungs"], buckets: int
) -> Int[np.ndarray, " buckets"]:
    """The rungs of the ladder, at most `buckets` of them, that minimize the number of padded tokens."""
    if buckets < 1 or lengths.max() > ladder[-1]:
        raise InputError(f"Cannot put rows of up to {lengths.max()} tokens in {buckets} buckets up to {ladder[-1]}.")
    rung = np.searchsorted(ladder, lengths)
    counts = np.bincount(rung, minlength=len(ladder))
    last = int(rung.max())

    def padded(edges: AnyArray) -> AnyArray:
        starts = (0, *(edge + 1 for edge in edges))
        return sum(ladder[edge] * counts[start : edge + 1].sum() for start, edge in zip(starts, edges, strict=False))

    sizes = range(min(buckets, last + 1))
    choices = ((*lower, last) for size in sizes for lower in itertools.combinations(range(last), size))
    return ladder[list(min(choices, key=padded))]


def deal_rows(
    lengths: Int[np.ndarray, " n"], buckets: Int[np.ndarray, " buckets"], batch_size: int
) -> list[tuple[int, Int[np.ndarray, " rows"]]]:
    """Padded length and row numbers of each bucket; every bucket but the last holds whole batches.

    The longest rows of a bucket that do not fill a batch move to the next bucket. In the last bucket, fewer than
    `batch_size` rows do not fill a batch; the shuffle of each epoch decides which rows these are.
    """
    if (n := len(lengths)) < batch_size:
        advice = f"set `batch_size` to at most {n}, or " if n > 1 else ""
        raise InputError(f"{counted(n, 'rows')}, fewer than one batch of {batch_size}: {advice}use more rows.")
    order = np.argsort(lengths, kind="stable")
    ends = np.searchsorted(lengths[order], buckets, side="right") // batch_size * batch_size
    ends = np.minimum(ends, (len(order) // batch_size - 1) * batch_size)  # the last bucket keeps a batch
    ends[-1] = len(order)
    parts = zip(buckets, (0, *ends[:-1]), ends, strict=True)
    return [(int(length), order[start:end]) for length, start, end in parts if end - start >= batch_size]


class Batches:
    """An endless iterator over batches with a position that can be saved and restored.

    >>> batches = Batches(
    ...     np.ones(8, int), lambda rows, length, rng: {"rows": rows}, batch_size=4, ladder=np.array([1])
    ... )
    >>> batches.per_epoch, next(batches)["rows"].shape
    (2, (4,))

    Args:
      lengths: Tokens per row; `collate` is called in background threads.
      batch_size: Rows per global batch, over all processes.
      ladder: Candidate padded lengths; at most `buckets` of them are used. One for rows of equal length.
      seed: Seed of the order and of the generators passed to `collate`.
      process: Index and number of processes, by default JAX's. Each process yields its slice of the collated global
        batch, so that randomness within a batch does not depend on the number of processes.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, " n"],
        collate: Collate,
        *,
        batch_size: int,
        ladder: Int[np.ndarray, " rungs"],
        buckets: int = 4,
        seed: int = 0,
        process: tuple[int, int] | None = None,
    ):
        grain = optional("grain", "train", "Training")
        index, count = process or (jax.process_index(), jax.process_count())
        if batch_size % count:
            raise InputError(f"batch_size {batch_size} is not a multiple of the {count} processes.")
        share = batch_size // count
        part = slice(index * share, (index + 1) * share)
        dealt = deal_rows(lengths, choose_buckets(lengths, ladder, buckets), batch_size)
        parts = []
        for number, (length, rows) in enumerate(dealt):
            shuffled = grain.MapDataset.source(rows).seed(seed + number).shuffle()
            whole = shuffled.batch(batch_size, drop_remainder=True)
            parts.append(whole.map(lambda rows, length=length: (rows, length)))
        batches = grain.MapDataset.concatenate(parts).seed(seed).shuffle()
        self.per_epoch = len(batches)
        self.shapes = tuple(length for length, _ in dealt)  # padded lengths in use

        def collate_own(item: tuple[Int[np.ndarray, " b"], int], rng: np.random.Generator) -> Batch:
            return {name: array[part] for name, array in collate(*item, rng).items()}

        collated = batches.repeat().random_map(collate_own)
        self._iterator = iter(collated.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)))

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        return next(self._iterator)

    def position(self) -> Json:
        """The iterator's position as JSON; an iterator set to it continues with the same batches."""
        return self._iterator.get_state()

    def set_position(self, position: Json) -> None:
        self._iterator.set_state(position)
