"""The compiled search of `jaxwhiten.search.jax_flat`: scores of blocks of documents, and the k best of all.

Documents are spread over the devices in order of their numbers, so that the lower number wins a tie everywhere.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from jaxwhiten.arrays import block_rows, pad_rows
from jaxwhiten.codes import Quantizer
from jaxwhiten.types import AnyArray, Array, Float, Float32, Int, UInt8

TILE = 128  # rows per device are a multiple of this
_AXIS = "documents"
_P: Any = jax.sharding.PartitionSpec
_WIDER = 4  # candidates for each result of a search of codes, whose exact cosines are computed
_FEW_QUERIES = 16  # up to this many, a CPU searches codes for one after the other
_EXACT_BYTES = 512 << 20  # of decoded candidates at a time
# Of the scores of a block, its decoded documents, and the places of a query's products; a CPU keeps them in its cache.
_BLOCK_BYTES = 64 << 20
_CPU_BLOCK_BYTES = 8 << 20


class Floats(NamedTuple):
    """Vectors in float32."""

    rows: Float32[AnyArray, "n d"]


class CodedRows(NamedTuple):
    """Codes, and what decodes them: see `jaxwhiten.codes.Quantizer.table`."""

    rows: UInt8[AnyArray, "n bytes"]
    inverse: Float32[AnyArray, " n"]  # 1 / |y| of decoded documents y
    table: Float32[AnyArray, "values width"]  # coordinates of each value of each byte
    firsts: Int[AnyArray, " bytes"]  # the row of the table with which each byte begins


Best = tuple[Float32[Array, "q k"], Int[Array, "q k"]]
"""The highest scores of each query, and their rows."""


def local_mesh() -> jax.sharding.Mesh:
    """The local devices, along which documents are sharded."""
    return jax.sharding.Mesh(np.array(jax.local_devices()), (_AXIS,))


def sharded(mesh: jax.sharding.Mesh, stored: np.ndarray) -> jax.Array:
    """Rows dealt out over the devices, with the same number of rows on each, the last of them padding."""
    rows = -(-len(stored) // (mesh.size * TILE)) * TILE

    def shard(index: Any) -> np.ndarray:
        return pad_rows(stored[index[0]], rows)

    sharding = jax.sharding.NamedSharding(mesh, _P(_AXIS))
    return jax.make_array_from_callback((rows * mesh.size, stored.shape[1]), sharding, shard)


def place_codes(mesh: jax.sharding.Mesh, codes: UInt8[np.ndarray, "n bytes"], quantizer: Quantizer) -> CodedRows:
    """Deals codes out over the devices."""
    table, squares, firsts = quantizer.table
    rows = sharded(mesh, codes)
    firsts = firsts.astype(np.int32)
    inverse = jax.jit(_inverse_lengths, out_shardings=rows.sharding)(rows, squares, firsts)
    return CodedRows(rows, inverse, *jax.device_put((table, firsts), jax.sharding.NamedSharding(mesh, _P())))


@functools.lru_cache(maxsize=64)
def searcher(mesh: jax.sharding.Mesh, k: int) -> Any:
    """The compiled search of `Floats` or `CodedRows` for one k.

    Its arguments are queries, documents and the number of documents, without the padding. Queries of codes are their
    coordinates, and in a last column their products with the mean. It gives scores [q, k] and
    rows [q, k]; k is at most the number of documents.
    """
    on_cpu = mesh.devices.flat[0].platform == "cpu"

    def local(queries: Array, documents: Any, size: Array) -> Best:
        first = lax.axis_index(_AXIS) * len(documents.rows)
        best = functools.partial(_local_best, documents=documents, size=size - first, k=k, on_cpu=on_cpu)
        if on_cpu and isinstance(documents, CodedRows) and len(queries) <= _FEW_QUERIES:
            values, rows = (of_queries[:, 0] for of_queries in lax.map(lambda query: best(query[None]), queries))
        else:
            values, rows = best(queries)
        return values, first + rows

    def search(queries: Array, documents: Any, size: Array) -> Best:
        dealt = type(documents)(*[_P(_AXIS), _P(_AXIS), _P(), _P()][: len(documents)])
        on_devices = jax.shard_map(
            local, mesh=mesh, in_specs=(_P(), dealt, _P()), out_specs=(_P(None, _AXIS),) * 2, check_vma=False
        )
        return _best(*on_devices(queries, documents, size), k)

    return jax.jit(search, out_shardings=jax.sharding.NamedSharding(mesh, _P()))


def _local_best(queries: Float32[Array, "q c"], documents: Any, size: Array, k: int, on_cpu: bool) -> Best:
    """The k best documents of a device, without keeping all scores; those from `size` on are padding."""
    n = len(documents.rows)
    coded = isinstance(documents, CodedRows)
    nbytes = _CPU_BLOCK_BYTES if on_cpu else _BLOCK_BYTES
    width = len(queries)
    if coded:
        width = documents.rows.shape[1] if width == 1 else max(queries.shape)
    block = min(n, max(TILE, block_rows(width, 4, nbytes)))
    count = min(n, k * _WIDER if coded else k)

    def candidates(start: Array) -> Best:
        # The last block begins early enough to be full; what it shares with the block before is masked.
        begin = jnp.minimum(start, n - block)
        part = documents._replace(rows=lax.dynamic_slice_in_dim(documents.rows, begin, block))
        scores = _scores(queries, part, jnp.float32 if on_cpu else jnp.bfloat16)
        if coded:
            scores *= lax.dynamic_slice_in_dim(documents.inverse, begin, block)
        rows = begin + jnp.arange(block)
        scores = jnp.where((rows >= start) & (rows < size), scores, -jnp.inf)
        values, places = tiled_top_k(scores, min(count, block))
        return values, begin + places

    values, rows = lax.map(candidates, jnp.arange(0, n, block))
    values, rows = (jnp.moveaxis(of_blocks, 0, 1).reshape(len(queries), -1) for of_blocks in (values, rows))
    values, rows = _best(values, rows, count)
    if coded:
        return _exact(queries, documents, jnp.where(values > -jnp.inf, rows, n), min(k, n))
    return values, rows


def _best(values: Float32[Array, "q n"], rows: Int[Array, "q n"], k: int) -> Best:
    """The k highest values of rows that ascend where values are equal."""
    values, places = lax.top_k(values, k)
    return values, jnp.take_along_axis(rows, places, axis=1)


def tiled_top_k(scores: Float32[Array, "q n"], k: int) -> Best:
    """The k highest values of each row and their places; ties go to the first. n is a multiple of `TILE`.

    They are among the k tiles with the highest maxima. A sort takes longer than the product of which scores are, at
    least on a CPU, so it is given few values: n / tile + k × tile are fewest for a tile of √(n / k).
    """
    queries, n = scores.shape
    tile = next(tile for tile in (128, 64, 32, 16) if tile <= max(16.0, 1.42 * (n / k) ** 0.5))
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


def _scores(queries: Float32[Array, "q c"], documents: Any, dtype: DTypeLike) -> Float32[Array, "q n"]:
    """Products of queries and documents; those of codes with y, made in `dtype`."""
    if isinstance(documents, Floats):
        return jnp.matmul(queries, documents.rows.T, precision=lax.Precision.HIGHEST)
    queries, offsets = queries[:, :-1], queries[:, -1:]
    if len(queries) == 1:
        # Products with each value of each byte, which codes choose, take less time than decoding all documents.
        count, width = len(documents.firsts), documents.table.shape[1]
        parts = queries.reshape(count, width, 1)
        products = jnp.matmul(documents.table.reshape(count, -1, width), parts, precision=lax.Precision.HIGHEST)
        places = documents.rows + documents.firsts
        return products.ravel().at[places].get(mode="promise_in_bounds").sum(axis=1) + offsets
    z = _decoded(documents.rows, documents, dtype)
    precision = lax.Precision.HIGHEST if dtype == jnp.float32 else None
    return jnp.matmul(queries.astype(dtype), z.T, precision=precision, preferred_element_type=jnp.float32) + offsets


def _exact(queries: Float32[Array, "q c"], documents: CodedRows, rows: Int[Array, "q candidates"], k: int) -> Best:
    """The k best candidates by cosines in float32; ties go to the lower row, and a row past the last is missing."""

    def one(of: tuple[Array, Array]) -> tuple[Array, Array]:
        query, rows = of
        z = _decoded(jnp.take(documents.rows, rows, axis=0, mode="clip"), documents, jnp.float32)
        products = (z * query[:-1]).sum(axis=1) + query[-1]
        cosines = products * jnp.take(documents.inverse, rows, mode="clip")
        values, places = lax.top_k(jnp.where(rows < len(documents.rows), cosines, -jnp.inf), k)
        return values, rows[places]

    at_once = max(1, min(len(queries), _EXACT_BYTES // (4 * rows.shape[1] * queries.shape[1])))
    return lax.map(one, (queries, jnp.sort(rows, axis=1)), batch_size=at_once)


def _decoded(codes: UInt8[Array, "n bytes"], documents: CodedRows, dtype: DTypeLike) -> Float[Array, "n c"]:
    """The coordinates of documents."""
    z = documents.table.astype(dtype).at[codes + documents.firsts].get(mode="promise_in_bounds")
    return z.reshape(len(codes), -1)


def _inverse_lengths(
    codes: UInt8[Array, "n bytes"], squares: Float32[Array, " values"], firsts: Int[Array, " bytes"]
) -> Float32[Array, " n"]:
    """1 / |y|, from what each value of each byte adds to |y|²."""
    square = squares.at[codes + firsts].get(mode="promise_in_bounds").sum(axis=1)
    return lax.rsqrt(jnp.maximum(square, jnp.finfo(jnp.float32).tiny))
