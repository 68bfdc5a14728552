"""The compiled search of `jaxwhiten.search.jax_flat`: scores, and the k best of them by tiles."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxwhiten.arrays import pad_rows
from jaxwhiten.search.prepare import COSINE
from jaxwhiten.shapes import Array, Float, Float32, Int, Shaped

TILE = 128  # rows per device are a multiple of this
AGAIN_TILE = 32
_AXIS = "documents"
_FEW_QUERIES = 8  # up to this many, a CPU looks scores of codes up in tables instead of decoding all documents
_AGAIN_BYTES = 32 << 20


def local_mesh() -> jax.sharding.Mesh:
    """The local devices, along which documents are sharded."""
    return jax.sharding.Mesh(np.array(jax.local_devices()), (_AXIS,))


def on_all_devices(mesh: jax.sharding.Mesh, centroids: np.ndarray) -> jax.Array:
    """Centroids on every device, in bfloat16 on accelerators."""
    dtype = jnp.float32 if mesh.devices.flat[0].platform == "cpu" else jnp.bfloat16
    return jax.device_put(jnp.asarray(centroids, dtype), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


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

    def local(queries: Array, documents: Array, decoder: Array | None, size: Array) -> tuple[Array, Array]:
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

    def search(queries: Array, documents: Array, decoder: Array | None, size: Array) -> Any:
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
    queries: Float32[Array, "q d"], documents: Shaped[Array, "n c"], decoder: Float[Array, "c 256 w"] | None = None
) -> Float32[Array, "q n"]:
    """Inner products; for codes, scores from distances, see `jaxwhiten.search.prepare`."""
    if decoder is None:
        return jnp.matmul(queries, documents.T, precision=lax.Precision.HIGHEST)
    if len(queries) <= _FEW_QUERIES and decoder.dtype == jnp.float32:
        return _looked_up(queries, documents, decoder)
    decoded = decoder[jnp.arange(len(decoder)), documents].reshape(len(documents), -1)
    precision = lax.Precision.HIGHEST if decoded.dtype == jnp.float32 else None
    products = jnp.matmul(
        queries.astype(decoded.dtype), decoded.T, precision=precision, preferred_element_type=jnp.float32
    )
    return products + COSINE / 2 * (1 - (decoded.astype(jnp.float32) ** 2).sum(axis=1))


def _looked_up(
    queries: Float32[Array, "q d"], documents: Shaped[Array, "n c"], decoder: Float32[Array, "c 256 w"]
) -> Float32[Array, "q n"]:
    """`scored` for codes on a CPU: a table per query holds the contribution of each byte, and these are summed."""
    parts = queries.reshape(len(queries), len(decoder), -1)
    products = jnp.einsum("qcw,cvw->qcv", parts, decoder, precision=lax.Precision.HIGHEST)
    tables = (products - COSINE / 2 * (decoder**2).sum(axis=-1)).reshape(len(queries), -1)
    places = documents + jnp.arange(len(decoder)) * decoder.shape[1]
    # Unrolled: in a compiled loop XLA would write the looked-up values to memory before summing them.
    sums = [table.at[places].get(mode="promise_in_bounds").sum(axis=1) for table in tables]
    return jnp.stack(sums) + COSINE / 2


def top_k_by_blocks(
    queries: Float32[Array, "q d"],
    documents: Shaped[Array, "n c"],
    count: Array,
    k: int,
    block: int,
    tile: int,
    decoder: Float[Array, "c 256 w"] | None = None,
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
