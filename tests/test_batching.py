"""Batches hold every sentence once, within the budget, in few shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.batching import choose_ladder, length_ladder, plan_batches, rows_for


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 128), max_size=300),
    budget=st.sampled_from([64, 512, 4096]),
    multiple=st.sampled_from([1, 2, 8]),
    max_rows=st.none() | st.integers(1, 40),
    shape_cost=st.none() | st.integers(0, 5000),
)
def test_every_sentence_once_in_a_batch_that_fits_it(lengths, budget, multiple, max_rows, shape_cost):
    lengths = np.asarray(lengths, np.int64)
    sizes = {"max_length": 128, "token_budget": budget, "multiple": multiple, "max_rows": max_rows}
    batches = list(plan_batches(lengths, **sizes, shape_cost=shape_cost))
    rows = np.concatenate([b.rows for b in batches]) if batches else np.empty(0, int)
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(lengths)))
    for batch in batches:
        assert lengths[batch.rows].max() <= batch.length
        assert batch.height % multiple == 0
        assert len(batch.rows) <= batch.height <= rows_for(batch.length, budget, multiple, max_rows)
    assert all(len(b.rows) == b.height for b in batches[:-1])


def test_few_shapes_for_many_sentences():
    lengths = np.random.default_rng(0).integers(3, 65, 50_000)
    shapes = {(b.height, b.length) for b in plan_batches(lengths, max_length=64, token_budget=4096)}
    assert len(shapes) <= len(length_ladder(64)) + 1


def test_ten_sentences_are_one_batch():
    lengths = np.arange(4, 14)
    assert len(list(plan_batches(lengths, max_length=64, token_budget=4096))) == 1


def test_the_ladder_is_finer_where_there_is_more_to_pad():
    lengths = np.random.default_rng(0).integers(5, 40, 20_000)
    steps = [int(choose_ladder(lengths[:n], 64, 2500)[0]) for n in (10, 2_000, 20_000)]
    assert steps[0] == 8
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 8
    assert choose_ladder(lengths, 64, 0)[0] == 2


@pytest.mark.parametrize("step", [8, 4, 2])
@pytest.mark.parametrize("max_length", [3, 8, 64, 100, 512])
def test_ladder_rises_to_max_length(max_length, step):
    ladder = length_ladder(max_length, step)
    assert ladder[-1] == max_length
    assert (np.diff(ladder) > 0).all()
