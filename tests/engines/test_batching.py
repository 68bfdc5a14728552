"""Batches hold every sentence once, within the budget, in few shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.engines.batching import Layout, length_ladder


def check(batch, lengths, multiple):
    """A batch has room for its sentences on every device."""
    assert batch.height % multiple == batch.tokens % multiple == 0
    assert len(batch.rows) <= batch.height
    assert lengths[batch.rows].max() <= batch.length
    assert batch.tokens <= batch.height * batch.length
    for device in range(multiple):
        assert lengths[batch.rows[device::multiple]].sum() <= batch.tokens // multiple


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 128), max_size=300),
    budget=st.sampled_from([64, 100, 512, 4096]),
    multiple=st.sampled_from([1, 2, 8]),
    max_rows=st.none() | st.integers(1, 40),
)
def test_every_sentence_once_in_a_batch_that_fits_it(lengths, budget, multiple, max_rows):
    lengths = np.asarray(lengths, np.int64)
    batches = list(Layout(128, budget, multiple).plan(lengths, max_rows))
    rows = np.concatenate([b.rows for b in batches]) if batches else np.empty(0, int)
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(lengths)))
    for batch in batches:
        check(batch, lengths, multiple)
        assert batch.tokens <= budget or len(batch.rows) <= multiple
        assert max_rows is None or batch.height <= max(max_rows, multiple)
        halves = batch.halved(lengths, multiple)
        np.testing.assert_array_equal(np.concatenate([half.rows for half in halves]), batch.rows)
        for half in halves:
            check(half, lengths, multiple)
            assert half.height < batch.height or batch.height == multiple


def test_few_shapes_and_little_padding_for_many_sentences():
    lengths = np.random.default_rng(0).integers(3, 65, 50_000)
    batches = list(Layout(64, 4096).plan(lengths))
    assert len({(b.height, b.length, b.tokens) for b in batches}) <= len(length_ladder(64)) + 2
    assert sum(b.tokens for b in batches) < 1.02 * lengths.sum()
    assert sum(b.height * b.length for b in batches) < 1.3 * lengths.sum()


@pytest.mark.parametrize("max_length", [3, 8, 64, 100, 512])
def test_ladder_rises_to_max_length(max_length):
    ladder = length_ladder(max_length)
    assert ladder[-1] == max_length
    assert (np.diff(ladder) > 0).all()
