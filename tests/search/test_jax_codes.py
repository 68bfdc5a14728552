"""Search of codes in JAX: equal to brute force over decoded vectors, on one device and on eight, ties by row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxwhiten.search import build_index
from jaxwhiten.search import jax_kernels as kernels

pytestmark = pytest.mark.devices
WIDTH = 24


class Case:
    """Random codes, their decoded vectors and queries."""

    def __init__(self, n, points=16, size=6, copies=0, queries=5, seed=0, mean=0.3, mirrored=False):
        rng = np.random.default_rng(seed)
        groups = 2 * size if points == 16 else size
        widths = rng.integers(1, WIDTH // groups + 1, groups)
        self.centroids = rng.standard_normal((groups, points, widths.max())).astype(np.float32)
        self.centroids *= np.arange(widths.max())[None, None] < widths[:, None, None]
        if mirrored:
            self.centroids[:, 8:] = -self.centroids[:, :8]
        self.codes = rng.integers(0, 256, (n, size), dtype=np.uint8)
        self.codes[n - copies :] = self.codes[:copies]
        used = (np.arange(widths.max()) < widths[:, None]).ravel()
        turn = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0].astype(np.float32)
        self.axes = np.zeros((WIDTH, used.size), np.float32)
        self.axes[:, used] = turn[:, : used.sum()]
        self.mean = mean * rng.standard_normal(WIDTH).astype(np.float32)
        numbers = self.codes
        if points == 16:
            numbers = np.stack([self.codes & 15, self.codes >> 4], axis=2).reshape(n, -1)
        decoded = self.centroids[np.arange(groups), numbers].reshape(n, -1) @ self.axes.T + self.mean
        self.decoded = decoded.astype(np.float64)
        self.queries = rng.standard_normal((queries, WIDTH)).astype(np.float32)
        self.queries /= np.linalg.norm(self.queries, axis=1, keepdims=True)

    def placed(self, mesh):
        return kernels.place_codes(
            mesh, self.codes, self.centroids, self.mean @ self.axes, float(self.mean @ self.mean)
        )

    @property
    def arguments(self):
        return self.queries @ self.axes, self.queries @ self.mean

    def check(self, scores, rows):
        """Against float64: equal codes by row, others by cosine."""
        cosines = self.queries @ (self.decoded / np.linalg.norm(self.decoded, axis=1, keepdims=True)).T
        cosines = np.round(cosines, 6)
        k = rows.shape[1]
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        expected = np.take_along_axis(cosines, order, axis=1)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(cosines, np.asarray(rows), axis=1), expected, atol=3e-6)
        for found in np.asarray(rows):
            assert len(set(found.tolist())) == k
        return (np.asarray(rows) == order).mean()


@pytest.fixture(params=[1, None], ids=["one device", "all devices"])
def mesh(request):
    return jax.sharding.Mesh(np.array(jax.local_devices()[: request.param]), ("documents",))


@pytest.mark.parametrize(
    ("n", "points", "k"), [(5, 16, 5), (700, 16, 10), (700, 16, 700), (9000, 16, 10), (9000, 256, 10), (300, 256, 300)]
)
def test_codes_are_found_as_by_brute_force(mesh, n, points, k):
    case = Case(n, points, seed=n + k)
    scores, rows, certain = kernels.search_codes(case.placed(mesh), *case.arguments, k)
    assert case.check(scores, rows) > 0.99
    assert np.all(certain)


def test_points_and_their_negatives_are_found_as_by_brute_force(mesh):
    case = Case(6000, mirrored=True)
    documents = case.placed(mesh)
    assert documents.mirrored
    scores, rows, certain = kernels.search_codes(documents, *case.arguments, 10)
    assert case.check(scores, rows) > 0.99
    assert np.all(certain)


def test_equal_documents_come_in_the_order_of_their_rows(mesh):
    case = Case(4000, copies=1900)
    scores, rows, certain = kernels.search_codes(case.placed(mesh), *case.arguments, 20)
    assert case.check(scores, rows) == 1
    assert np.all(certain)


def test_more_equal_documents_than_candidates_are_not_certain_and_then_found(mesh):
    case = Case(9000)
    case.codes[:] = case.codes[0]
    case.decoded[:] = case.decoded[0]
    documents = case.placed(mesh)
    _, _, certain = kernels.search_codes(documents, *case.arguments, 10)
    assert not np.any(certain)
    _, rows, _ = kernels.search_codes_surely(documents, *case.arguments, 10)
    np.testing.assert_array_equal(rows, np.tile(np.arange(10), (len(rows), 1)))


def test_only_the_last_result_may_make_a_search_uncertain(mesh):
    """One document is ahead of all others, which are equal: the second result is one of many."""
    case = Case(9000, queries=1)
    case.codes[1:] = case.codes[1]
    case.decoded[1:] = case.decoded[1]
    case.queries[:] = case.decoded[0] / np.linalg.norm(case.decoded[0])
    documents = case.placed(mesh)
    for k, expected in ((1, True), (2, False)):
        _, rows, certain = kernels.search_codes(documents, *case.arguments, k)
        assert rows[0, 0] == 0
        assert np.all(certain) == expected


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_queries_are_searched_in_one_batch_of_a_power_of_two(monkeypatch, n):
    """One compiled program serves many numbers of queries, and small ones take one call."""
    x = np.random.default_rng(1).standard_normal((50, WIDTH)).astype(np.float32)
    index, sizes = build_index(x, "jax", bytes=4), []
    search = kernels.search_codes

    def recorded(documents, asked, *others):
        sizes.append(len(asked))
        return search(documents, asked, *others)

    monkeypatch.setattr(kernels, "search_codes", recorded)
    index.search(x[:n], 3)
    assert sizes == [{1: 1, 2: 2, 5: 8, 9: 16}[n]]


@pytest.mark.parametrize(("way", "points"), [("gather", 16), ("selects", 16), ("bytes", 16), ("gather", 256)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_every_way_of_every_device_finds_the_same(monkeypatch, way, points, dtype):
    """Those of GPUs and TPUs, in several blocks, the last of which is not full of its own."""
    monkeypatch.setattr(kernels, "_MOST_ROWS", 1280)
    monkeypatch.setattr(kernels, "_way", lambda mesh, of, queries: way)
    kernels.coded_searcher.cache_clear()
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ("documents",))
    case = Case(4001, points)
    documents = case.placed(mesh)
    share = documents.largest[0]
    run = kernels.coded_searcher(mesh, 10, dtype, way, False)
    scores, rows, certain = run(
        *case.arguments, documents.codes, documents.inverse, documents.points, np.int32(4001), np.float32(share / 256)
    )
    assert case.check(scores, rows) > 0.99
    assert np.mean(certain) > 0.5
