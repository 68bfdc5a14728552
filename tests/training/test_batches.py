"""Batches: bucket choice against brute force, every row once an epoch, positions, sharding by process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.engines.batching import length_ladder
from jaxwhiten.errors import InputError
from jaxwhiten.training.batches import Batches, choose_buckets, deal_rows

LADDER = length_ladder(64)


def collate(rows, length, rng):
    return {"rows": rows, "length": np.full(len(rows), length), "noise": rng.integers(1 << 30, size=len(rows))}


def make(lengths, **changes):
    return Batches(lengths, collate, **{"batch_size": 8, "ladder": LADDER, "buckets": 3, "seed": 1, **changes})


def draw(n, seed=0):
    return np.random.default_rng(seed).integers(3, 60, n)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=80), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_buckets_hold_every_row_and_more_buckets_never_pad_more(lengths, count):
    lengths = np.array(lengths)

    def padded(buckets):
        return buckets[np.searchsorted(buckets, lengths)].sum()

    chosen = choose_buckets(lengths, LADDER, count)
    assert len(chosen) <= count
    assert set(chosen) <= set(LADDER)
    assert chosen[-1] == LADDER[np.searchsorted(LADDER, lengths.max())]
    assert padded(chosen) <= padded(choose_buckets(lengths, LADDER, 1))
    if count >= len(LADDER):
        assert padded(chosen) == LADDER[np.searchsorted(LADDER, lengths)].sum()


@given(st.lists(st.integers(1, 64), min_size=4, max_size=120), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_dealt_rows_fit_and_only_the_last_bucket_has_a_remainder(lengths, batch_size, count):
    lengths = np.array(lengths)
    dealt = deal_rows(lengths, choose_buckets(lengths, LADDER, count), batch_size)
    everything = np.concatenate([rows for _, rows in dealt])
    assert sorted(everything) == list(range(len(lengths)))
    for length, rows in dealt:
        assert lengths[rows].max() <= length
    assert all(len(rows) % batch_size == 0 for _, rows in dealt[:-1])


def test_an_epoch_has_every_row_once_but_for_part_of_a_batch():
    lengths = draw(203)
    batches = make(lengths)
    assert batches.per_epoch == 203 // 8
    epochs = []
    for _ in range(2):
        seen = [next(batches) for _ in range(batches.per_epoch)]
        assert all((lengths[batch["rows"]] <= batch["length"]).all() for batch in seen)
        rows = np.concatenate([batch["rows"] for batch in seen])
        assert len(rows) == len(set(rows.tolist())) == 200
        epochs.append(rows)
    assert not np.array_equal(*epochs), "every epoch has its own order"
    assert len(batches.shapes) <= 3


def test_position_restores_order_and_noise():
    batches = make(draw(100))
    for _ in range(17):
        next(batches)
    position = batches.position()
    assert not np.array_equal(next(make(draw(100)))["rows"], next(make(draw(100), seed=2))["rows"])
    expected = [next(batches) for _ in range(9)]
    other = make(draw(100))
    other.set_position(position)
    for batch in expected:
        again = next(other)
        for name, value in batch.items():
            np.testing.assert_array_equal(again[name], value)


def test_processes_share_every_batch():
    whole = make(draw(100))
    parts = [make(draw(100), process=(index, 2)) for index in range(2)]
    for _ in range(30):
        batch, halves = next(whole), [next(part) for part in parts]
        for name in ("rows", "noise"):  # what is random in a batch does not depend on the number of processes
            np.testing.assert_array_equal(np.concatenate([half[name] for half in halves]), batch[name])
        assert {int(half["length"][0]) for half in halves} == {int(batch["length"][0])}


@pytest.mark.parametrize(
    ("rows", "how", "words"),
    [
        (5, {}, "at most 5, or use more rows"),
        (1, {}, "of 8: use more rows"),
        (50, {"process": (0, 3)}, "3 processes"),
        (50, {"buckets": 0}, "0 buckets"),
    ],
)
def test_mistakes_are_named(rows, how, words):
    with pytest.raises(InputError, match=words):
        make(draw(rows), **how)
