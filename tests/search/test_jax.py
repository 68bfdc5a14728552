"""Search in JAX: equal to brute force, on one device and on eight, in one block and in several, ties by row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxwhiten.arrays import normalize
from jaxwhiten.codes import Int8, SpectrumCode
from jaxwhiten.search import build_index, jax_flat
from jaxwhiten.search import jax_kernels as kernels
from tests.conftest import slow_but

pytestmark = pytest.mark.devices
WIDTH = 24


@functools.cache
def fitted(points):
    """A code of 16 points for half a byte, or of 256 for a byte."""
    code = SpectrumCode(bytes=6) if points == 16 else Int8()
    return code.fit(np.random.default_rng(0).standard_normal((2000, WIDTH)) + 0.3)


class Case:
    """Random rows in a code, of which some have copies, and queries."""

    def __init__(self, n, points=16, copies=0, queries=20, seed=0):
        rng, code = np.random.default_rng(seed), fitted(points)
        self.codes = np.array(code.encode(rng.standard_normal((n, WIDTH)) + 0.3))
        self.codes[n - copies :] = self.codes[:copies]
        self.quantizer = code.quantizer()
        self.queries = normalize(rng.standard_normal((queries, WIDTH)).astype(np.float32))
        self.cosines = np.round(code.scores(self.queries, self.codes), 6)

    @property
    def asked(self):
        coordinates, products = self.quantizer.query_coordinates(self.queries)
        return np.concatenate([coordinates, products[:, None]], axis=1)

    def check(self, scores, rows):
        """The cosines are the highest; gives the share of rows that come in the order of a stable sort."""
        order = np.argsort(-self.cosines, axis=1, kind="stable")[:, : rows.shape[1]]
        expected = np.take_along_axis(self.cosines, order, axis=1)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(self.cosines, np.asarray(rows), axis=1), expected, atol=3e-6)
        assert all(len(set(of_query)) == len(of_query) for of_query in np.asarray(rows).tolist())
        return (np.asarray(rows) == order).mean()


@pytest.fixture(params=[1, None], ids=["one device", "all devices"])
def mesh(request):
    return jax.sharding.Mesh(np.array(jax.local_devices()[: request.param]), ("documents",))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(kernels, "_CPU_BLOCK_BYTES", 1)
    kernels.searcher.cache_clear()
    yield
    kernels.searcher.cache_clear()


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize(
    ("n", "points", "k"),
    slow_but([(5, 16, 5), (700, 16, 700), (9000, 16, 10), (9000, 256, 10)], (5, 16, 5), (9000, 256, 10)),
)
def test_codes_are_found_as_by_brute_force(mesh, n, points, k, queries):
    case = Case(n, points, queries=queries, seed=n + k)
    documents = kernels.place_codes(mesh, case.codes, case.quantizer)
    assert case.check(*kernels.searcher(mesh, k)(case.asked, documents, n)) > 0.99


@pytest.mark.parametrize("queries", slow_but([5, 20], 5))
def test_equal_codes_come_in_the_order_of_their_rows(mesh, small_blocks, queries):
    case = Case(4001, copies=1900, queries=queries)
    documents = kernels.place_codes(mesh, case.codes, case.quantizer)
    scores, ids = kernels.searcher(mesh, 20)(case.asked, documents, 4001)
    assert case.check(scores, ids) > 0.99  # products are rounded differently on different processors
    found, ids = case.codes[np.asarray(ids)], np.asarray(ids)
    equal = (found[:, 1:] == found[:, :-1]).all(axis=2)
    assert equal.any()
    assert (np.diff(ids)[equal] > 0).all()


@pytest.mark.parametrize("queries", slow_but([1, 20], 20))
@pytest.mark.parametrize("points", [16, 256])
def test_candidates_in_bfloat16_include_the_best(points, queries):
    """As on accelerators."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ("documents",))
    case = Case(4001, points, queries=queries)
    documents = kernels.place_codes(mesh, case.codes, case.quantizer)
    best = jax.jit(lambda queries: kernels._local_best(queries, documents, jnp.int32(4001), 10, on_cpu=False))
    assert case.check(*best(case.asked)) > 0.99


def by_sorting(scores, k):
    """The k best of each row by score, then by location."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([1, 3, 7, 10, 200]),
    levels=st.sampled_from([1, 2, 5, 1000]),
    masked=st.booleans(),
)
def test_tiles_equal_a_full_sort_with_ties(seed, k, levels, masked):
    scores = np.random.default_rng(seed).integers(0, levels, (5, 512)).astype(np.float32)
    if masked:
        scores[:, -30:] = -np.inf
    for actual, expected in zip(kernels.tiled_top_k(jnp.asarray(scores), k), by_sorting(scores, k), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("n", "k"), slow_but([(127, 5), (128, 5), (1025, 1), (1025, 12), (5000, 300)], (127, 5), (1025, 12))
)
def test_blocks_equal_a_full_sort_with_ties(mesh, small_blocks, n, k):
    """Small whole numbers, so that every order of summation gives the same; padding would win if it counted."""
    rng = np.random.default_rng(n + k)
    for levels in (1, 2, 5, 1000):
        documents = rng.integers(-levels, 0, (n, 3)).astype(np.float32)
        queries = rng.integers(0, 3, (5, 3)).astype(np.float32)
        actual = kernels.searcher(mesh, k)(queries, kernels.Floats(kernels.sharded(mesh, documents)), n)
        for results, expected in zip(actual, by_sorting(queries @ documents.T, k), strict=True):
            np.testing.assert_array_equal(results, expected)


@pytest.mark.parametrize("bytes", [None, 4])
@pytest.mark.parametrize("n", [1, 2, 5, 9, 33])
def test_batches_of_a_power_of_two_are_put_together_in_order(monkeypatch, n, bytes):
    """One compiled program serves many numbers of queries, and small ones take one call."""
    monkeypatch.setattr(jax_flat, "_BATCH", 16)
    x = np.random.default_rng(1).standard_normal((400, WIDTH)).astype(np.float32)
    index = build_index(x, "jax", bytes=bytes)
    sizes = []
    searcher = kernels.searcher

    def recorded(mesh, k):
        def run(queries, *others):
            sizes.append(len(queries))
            return searcher(mesh, k)(queries, *others)

        return run

    monkeypatch.setattr(kernels, "searcher", recorded)
    rows = index.search(x[:n], 3)[1]
    assert sizes == {1: [1], 2: [2], 5: [8], 9: [16], 33: [16, 16, 16]}[n]
    assert rows[:, 0].tolist() == list(range(n))
