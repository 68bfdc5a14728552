"""The compiled search of `jaxwhiten.search.jax_flat`: scores, and the k best of them by tiles."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxwhiten.arrays import pad_rows
from jaxwhiten.search.prepare import COSINE
from jaxwhiten.shapes import Array, Float32, Int, Shaped

TILE = 128  # rows per device are a multiple of this
AGAIN_TILE = 32
_AXIS = "documents"
_FEW_QUERIES = 8  # up to this many, a CPU looks scores of codes up in tables instead of decoding all documents
_AGAIN_BYTES = 32 << 20


def local_mesh() -> jax.sharding.Mesh:
    """The local devices, along which documents are sharded."""
    return jax.sharding.Mesh(np.array(jax.local_devices()), (_AXIS,))


class Decoder(NamedTuple):
    """What decodes the codes of documents, and gives their lengths."""

    centroids: Float32[Array, "groups values w"]
    center: Float32[Array, " c"]  # coordinates of the mean about the origin
    square: Float32[Array, ""]  # of the length of the mean
    length: Float32[Array, ""] | None = None  # of decoded vectors, for the scores of version 0.1

    def scores(self, products: Float32[Array, "q n"], squares: Float32[Array, " n"]) -> Float32[Array, "q n"]:
        """Cosines from products with decoded vectors, and the squares of their lengths."""
        if self.length is not None:
            return products / self.length + COSINE / 2 * (1 - squares / self.length**2)
        return products * lax.rsqrt(jnp.maximum(squares, jnp.finfo(jnp.float32).tiny))


def decoder_on_all(
    mesh: jax.sharding.Mesh, centroids: np.ndarray, center: tuple[np.ndarray, float], length: float | None
) -> Decoder:
    """A decoder on every device."""
    mean, square = center
    rms = None if length is None else jnp.float32(length)
    parts = Decoder(jnp.float32(centroids), jnp.float32(mean), jnp.float32(square), rms)
    placed: Decoder = jax.device_put(parts, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    return placed


def sharded(mesh: jax.sharding.Mesh, stored: np.ndarray) -> jax.Array:
    """Rows dealt out over the devices, with the same number of rows on each, the last of them padding."""
    rows = -(-len(stored) // (mesh.size * TILE)) * TILE

    def shard(index: Any) -> np.ndarray:
        return pad_rows(stored[index[0]], rows)

    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(_AXIS))
    return jax.make_array_from_callback((rows * mesh.size, stored.shape[1]), sharding, shard)


@functools.lru_cache(maxsize=64)
def searcher(mesh: jax.sharding.Mesh, k: int, block: int, recall_target: float | None) -> Any:
    """The compiled search for one k: score documents, take the best per device, then of all."""
    P: Any = jax.sharding.PartitionSpec

    def local(queries: Array, documents: Array, decoder: Decoder | None, size: Array) -> tuple[Array, Array]:
        rows = documents.shape[0]
        first = lax.axis_index(_AXIS) * rows
        if block < rows:
            values, ids = top_k_by_blocks(queries, documents, size - first, k, block, AGAIN_TILE, decoder)
            return values, first + ids
        scores = scored(queries, documents, decoder)
        scores = jnp.where(first + jnp.arange(rows) < size, scores, -jnp.inf)
        if recall_target is None:
            values, ids = tiled_top_k(scores, min(k, rows), _tile(rows, k))
        else:
            values, ids = lax.approx_max_k(
                scores, min(k, rows), recall_target=recall_target, reduction_input_size_override=rows * mesh.size
            )
        return values, first + ids

    def search(queries: Array, documents: Array, decoder: Decoder | None, size: Array) -> Any:
        sharded = jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P(_AXIS), P(), P()), out_specs=(P(None, _AXIS), P(None, _AXIS))
        )
        values, ids = sharded(queries, documents, decoder, size)
        if mesh.size == 1:
            return values, ids
        # Devices hold documents in order of id, so that the lower id still wins a tie.
        values, place = lax.top_k(values, k)
        return values, jnp.take_along_axis(ids, place, axis=1)

    return jax.jit(search, out_shardings=jax.sharding.NamedSharding(mesh, P()))


def _tile(rows: int, k: int) -> int:
    """The tile size that sorts the fewest values: rows / tile + k × tile is smallest at √(rows / k)."""
    wanted = (rows / k) ** 0.5
    return next(tile for tile in (128, 64, 32, 16) if tile <= max(16.0, 1.42 * wanted))


def tiled_top_k(scores: Float32[Array, "q n"], k: int, tile: int) -> tuple[Float32[Array, "q k"], Int[Array, "q k"]]:
    """The k highest values of each row and their places; ties go to the first. n is a multiple of `tile`."""
    queries, n = scores.shape
    if n // tile <= k:
        values, places = lax.top_k(scores, k)
        return values, places
    tiles = scores.reshape(queries, n // tile, tile)
    _, best = lax.top_k(tiles.max(axis=-1), k)
    # In ascending order, so that candidates are sorted by place.
    best = jnp.sort(best, axis=-1)
    candidates = jnp.take_along_axis(tiles, best[:, :, None], axis=1).reshape(queries, k * tile)
    values, place = lax.top_k(candidates, k)
    return values, jnp.take_along_axis(best, place // tile, axis=1) * tile + place % tile


def scored(
    queries: Float32[Array, "q d"], documents: Shaped[Array, "n c"], decoder: Decoder | None = None
) -> Float32[Array, "q n"]:
    """Inner products; of codes, cosines of queries, whose last column is their product with the mean."""
    if decoder is None:
        return jnp.matmul(queries, documents.T, precision=lax.Precision.HIGHEST)
    centroids = decoder.centroids
    groups = documents
    if centroids.shape[1] == 16:
        groups = jnp.stack([documents & 15, documents >> 4], axis=2).reshape(len(documents), -1)
    asked, products = queries[:, :-1], queries[:, -1:]
    if len(queries) <= _FEW_QUERIES:
        return _looked_up(asked, products, groups, decoder)
    decoded = centroids[jnp.arange(len(centroids)), groups].reshape(len(documents), -1)
    squares = (decoded * (decoded + 2 * decoder.center)).sum(axis=1) + decoder.square
    return decoder.scores(jnp.matmul(asked, decoded.T, precision=lax.Precision.HIGHEST) + products, squares)


def _looked_up(
    asked: Float32[Array, "q d"], products: Float32[Array, "q 1"], groups: Shaped[Array, "n g"], decoder: Decoder
) -> Float32[Array, "q n"]:
    """`scored` for codes and few queries: tables hold the contribution of each group, and these are summed."""
    centroids = decoder.centroids
    parts = asked.reshape(len(asked), len(centroids), -1)
    tables = jnp.einsum("qcw,cvw->qcv", parts, centroids, precision=lax.Precision.HIGHEST).reshape(len(asked), -1)
    center = decoder.center.reshape(len(centroids), 1, -1)
    lengths = (centroids * (centroids + 2 * center)).sum(axis=-1).reshape(-1)
    places = groups + jnp.arange(len(centroids)) * centroids.shape[1]
    # Unrolled: in a compiled loop XLA would write the looked-up values to memory before summing them.
    sums = [table.at[places].get(mode="promise_in_bounds").sum(axis=1) for table in [*tables, lengths]]
    squares = sums.pop() + decoder.square
    return decoder.scores(jnp.stack(sums) + products, squares)


def top_k_by_blocks(
    queries: Float32[Array, "q d"],
    documents: Shaped[Array, "n c"],
    count: Array,
    k: int,
    block: int,
    tile: int,
    decoder: Decoder | None = None,
) -> tuple[Float32[Array, "q k"], Int[Array, "q k"]]:
    """The k documents with the highest scores, without keeping all scores; ties go to the first.

    n and `block`, the documents scored at a time, are multiples of `tile`, and n is more than k tiles. Documents from
    `count` on are padding; missing results have score −inf.
    """
    n, d = documents.shape
    width = queries.shape[1]

    def maxima(start: Array) -> tuple[Array, Array]:
        # The last block begins early enough to be full; tiles shared with the block before are masked.
        begin = jnp.minimum(start, n - block)
        part = lax.dynamic_slice_in_dim(documents, begin, block)
        places = begin + jnp.arange(0, block, tile)
        highest = scored(queries, part, decoder).reshape(len(queries), block // tile, tile).max(axis=-1)
        return jnp.where((places >= start) & (places < count), highest, -jnp.inf), places // tile

    highest, tiles = lax.map(maxima, jnp.arange(0, n, block))
    highest = jnp.moveaxis(highest, 0, 1).reshape(len(queries), -1)
    # k + 1 tiles: padding may have the highest score of the one tile in which padding begins.
    maxima_of_best, best = lax.top_k(highest, k + 1)
    # In ascending order, so that candidates are sorted by place.
    best, maxima_of_best = lax.sort((best, maxima_of_best), num_keys=1)
    best = tiles.reshape(-1)[best]
    rows = documents.reshape(n // tile, tile, d)

    def again(query: Array, best: Array, maxima_of_best: Array) -> tuple[Array, Array]:
        scores = scored(query[None], rows[best].reshape(-1, d), decoder)[0]
        places = (best[:, None] * tile + jnp.arange(tile)).reshape(-1)
        counts = (places < count) & jnp.repeat(maxima_of_best > -jnp.inf, tile)
        values, place = lax.top_k(jnp.where(counts, scores, -jnp.inf), k)
        return values, places[place]

    at_once = max(1, min(len(queries), _AGAIN_BYTES // (4 * width * (k + 1) * tile)))
    return lax.map(lambda of: again(*of), (queries, best, maxima_of_best), batch_size=at_once)
