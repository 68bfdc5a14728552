"""Exact top-k by tiles: equal to a full sort, ties to the lower id, any number of documents on any device."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.search import build_index, jax_flat
from jaxwhiten.search.jax_kernels import tiled_top_k, top_k_by_blocks

pytestmark = pytest.mark.devices


def by_sorting(scores, k):
    """The k best of each row by score, then by location."""
    order = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([1, 3, 7, 10]),
    levels=st.sampled_from([1, 2, 5, 1000]),
    masked=st.booleans(),
)
def test_tiles_equal_a_full_sort_with_ties(seed, k, levels, masked):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (5, 16 * 16)).astype(np.float32)
    if masked:
        scores[:, -30:] = -np.inf
    values, places = tiled_top_k(jnp.asarray(scores), k, 16)
    expected_values, expected_places = by_sorting(scores, k)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(places, expected_places)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([1, 3, 7]),
    levels=st.sampled_from([1, 2, 5, 1000]),
    block=st.sampled_from([16, 48, 64, 160]),
    padding=st.sampled_from([0, 5, 16, 21, 160]),
)
def test_blocks_equal_a_full_sort_with_ties(seed, k, levels, block, padding):
    """Small whole numbers, so that every order of summation gives the same; padding would win if it counted."""
    rng = np.random.default_rng(seed)
    documents = rng.integers(-levels, 0, (10 * 16, 3)).astype(np.float32)
    queries = rng.integers(0, 3, (5, 3)).astype(np.float32)
    count = len(documents) - padding
    documents[count:] = 0
    values, places = top_k_by_blocks(jnp.asarray(queries), jnp.asarray(documents), jnp.asarray(count), k, block, 16)
    expected, order = by_sorting(queries @ documents[:count].T, k)
    np.testing.assert_array_equal(np.asarray(values)[:, :count], expected)
    np.testing.assert_array_equal(np.asarray(places)[:, :count], order)
    assert np.all(np.asarray(values)[:, count:] == -np.inf)


@pytest.mark.parametrize("k", [1, 10, 200])
def test_an_index_too_large_to_keep_its_scores_finds_the_same(monkeypatch, k):
    rng = np.random.default_rng(k)
    x = rng.standard_normal((20_003, 8)).astype(np.float32)
    x[5000:5100] = x[:100]  # ties, on other devices and in other blocks
    q = rng.standard_normal((70, 8)).astype(np.float32)
    index = build_index(x, "jax")
    expected = index.search(q, k)
    assert index.store._batch_and_block(len(q), k) == (128, index.store._rows)
    monkeypatch.setattr(jax_flat, "_CPU_SCORE_BYTES", 4 * 128 * 1024)
    monkeypatch.setattr(jax_flat, "_AGAIN", 1 / 4)
    assert index.store._batch_and_block(len(q), k) == (128, index.store._rows if k == 200 else 1024)
    found = index.search(q, k)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_array_equal(found[1], expected[1])
    monkeypatch.setattr(jax_flat, "_SCORE_BYTES", 4 * 2000)
    assert index.store._batch_and_block(len(q), k) == ((1, index.store._rows) if k == 200 else (128, 1024))


@pytest.mark.parametrize("n", [1, 7, 127, 128, 129, 1024, 1025, 5000])
def test_any_number_of_documents_on_eight_devices(n):
    rng = np.random.default_rng(n)
    # All scores negative: a padding row, whose score is 0, would win if it were not masked.
    x = -np.abs(rng.standard_normal((n, 8))).astype(np.float32)
    q = np.abs(rng.standard_normal((9, 8))).astype(np.float32)
    k = min(n, 12)
    scores, ids = build_index(x, "jax", normalize=False).search(q, k)
    expected, places = by_sorting((q @ x.T).astype(np.float32), k)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert (ids == places).mean() > 0.99
    assert ids.max() < n


def test_equal_documents_come_in_the_order_of_their_ids():
    x = np.tile(np.array([[1.0, 2.0]], np.float32), (3000, 1))
    _, ids = build_index(x, "jax").search(x[:3], 50)
    np.testing.assert_array_equal(ids, np.tile(np.arange(50), (3, 1)))


@pytest.mark.parametrize("n_queries", [1, 2, 3, 100, 1025, 2100])
def test_batches_of_queries_are_put_together_in_order(n_queries):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 8)).astype(np.float32)
    q = rng.standard_normal((n_queries, 8)).astype(np.float32)
    index = build_index(x, "jax")
    _, ids = index.search(q, 3)
    one_by_one = np.concatenate([index.search(q[i : i + 1], 3)[1] for i in range(0, n_queries, 97)])
    np.testing.assert_array_equal(ids[::97], one_by_one)
