"""The compiled search of `jaxwhiten.search.jax_flat`: scores, and the k best of them by tiles."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from jaxwhiten.arrays import pad_rows
from jaxwhiten.types import AnyArray, Array, Float, Float32, Int, UInt8

TILE = 128  # rows per device are a multiple of this
AGAIN_TILE = 32
_AXIS = "documents"
_FEW_QUERIES = 8  # up to this many, a CPU looks scores of codes up in tables instead of decoding all documents
_AGAIN_BYTES = 32 << 20


def local_mesh() -> jax.sharding.Mesh:
    """The local devices, along which documents are sharded."""
    return jax.sharding.Mesh(np.array(jax.local_devices()), (_AXIS,))


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

    def local(queries: Array, documents: Array, size: Array) -> tuple[Array, Array]:
        rows = documents.shape[0]
        first = lax.axis_index(_AXIS) * rows
        if block < rows:
            values, ids = top_k_by_blocks(queries, documents, size - first, k, block, AGAIN_TILE)
            return values, first + ids
        scores = jnp.where(first + jnp.arange(rows) < size, _products(queries, documents), -jnp.inf)
        if recall_target is None:
            values, ids = tiled_top_k(scores, min(k, rows), _tile(rows, k))
        else:
            values, ids = lax.approx_max_k(
                scores, min(k, rows), recall_target=recall_target, reduction_input_size_override=rows * mesh.size
            )
        return values, first + ids

    def search(queries: Array, documents: Array, size: Array) -> Any:
        sharded = jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P(_AXIS), P()), out_specs=(P(None, _AXIS), P(None, _AXIS))
        )
        values, ids = sharded(queries, documents, size)
        if mesh.size == 1:
            return values, ids
        # Devices hold documents in order of id, so that the lower id still wins a tie.
        values, place = lax.top_k(values, k)
        return values, jnp.take_along_axis(ids, place, axis=1)

    return jax.jit(search, out_shardings=jax.sharding.NamedSharding(mesh, P()))


def _tile(rows: int, k: int) -> int:
    """The tile size that sorts the fewest values: rows / tile + k × tile is smallest at √(rows / k)."""
    width = (rows / k) ** 0.5
    return next(tile for tile in (128, 64, 32, 16) if tile <= max(16.0, 1.42 * width))


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


def _products(queries: Float32[Array, "q d"], documents: Float32[Array, "n d"]) -> Float32[Array, "q n"]:
    return jnp.matmul(queries, documents.T, precision=lax.Precision.HIGHEST)


def top_k_by_blocks(
    queries: Float32[Array, "q d"],
    documents: Float32[Array, "n d"],
    count: Array,
    k: int,
    block: int,
    tile: int,
) -> tuple[Float32[Array, "q k"], Int[Array, "q k"]]:
    """The k documents with the highest scores, without keeping all scores; ties go to the first.

    n and `block`, the documents scored at a time, are multiples of `tile`, and n is more than k tiles. Documents from
    `count` on are padding; missing results have score −inf.
    """
    n, d = documents.shape

    def maxima(start: Array) -> tuple[Array, Array]:
        # The last block begins early enough to be full; tiles shared with the block before are masked.
        begin = jnp.minimum(start, n - block)
        part = lax.dynamic_slice_in_dim(documents, begin, block)
        places = begin + jnp.arange(0, block, tile)
        highest = _products(queries, part).reshape(len(queries), block // tile, tile).max(axis=-1)
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
        scores = _products(query[None], rows[best].reshape(-1, d))[0]
        places = (best[:, None] * tile + jnp.arange(tile)).reshape(-1)
        counts = (places < count) & jnp.repeat(maxima_of_best > -jnp.inf, tile)
        values, place = lax.top_k(jnp.where(counts, scores, -jnp.inf), k)
        return values, places[place]

    at_once = max(1, min(len(queries), _AGAIN_BYTES // (4 * d * (k + 1) * tile)))
    return lax.map(lambda of: again(*of), (queries, best, maxima_of_best), batch_size=at_once)


# Codes, searched by the exact cosine of the query and the decoded document.

_CODED_TILE = 8  # documents whose highest score is kept
# that are scored again
_LEAST_TILES = 40
_TILES_PER_RESULT = 2
_BFLOAT16 = 2.0**-8  # what a product of two numbers is off by, as a share, if they are rounded to bfloat16
_FLOAT32 = 1e-5  # what a cosine is off by in float32
_AGAIN_DECODED = 512 << 20
# of a block that is decoded
_BLOCK_SCORES = 1 << 26
_MOST_ROWS = 1 << 17
_TABLE_QUERIES = 4  # up to this many, a GPU looks scores up in tables instead of decoding documents
_STEPS = 32767  # of a table of int16


class Points(NamedTuple):
    """What decodes codes: the points of the columns that vary, and where a code chooses among them.

    A document is y = μ + V ẑ, and ẑ the concatenation of the points that its code chooses. With 16 points, byte b
    has group 2b in its low half and group 2b + 1 in its high half; with 256, one group.
    """

    values: Float32[AnyArray, "columns points"]
    group: Int[AnyArray, " columns"]
    column: Int[AnyArray, " columns"]  # in Vᵀq
    mean: Float32[AnyArray, " columns"]  # Vᵀμ
    mean_square: Float32[AnyArray, ""]  # |μ|²


class CodedDocuments(NamedTuple):
    """Codes on all devices, with what a search needs of them; see `place_codes`."""

    mesh: jax.sharding.Mesh
    codes: UInt8[Array, "n bytes"]  # transposed where `way` is "passes"
    inverse: Float32[Array, " n"]  # 1 / |y|
    points: Points
    size: int  # documents; the rest is padding
    largest: tuple[float, float]  # |ẑ| / |y| and 1 / |y| of any document
    mirrored: bool  # whether point 8 + i is minus point i, as in `jaxwhiten.codes.gaussian`


def points_of(
    centroids: Float32[np.ndarray, "groups points width"],
    mean: Float32[np.ndarray, " c"],
    mean_square: float,
) -> Points:
    """The points that vary, of centroids padded with zeros; `mean` is Vᵀμ with c = groups × width."""
    groups, points, width = centroids.shape
    columns = centroids.transpose(0, 2, 1).reshape(groups * width, points)
    used = np.flatnonzero(columns.any(axis=1)).astype(np.int32)
    values = np.ascontiguousarray(columns[used], np.float32)
    return Points(values, used // width, used, mean[used], np.asarray(mean_square, np.float32))


def place_codes(
    mesh: jax.sharding.Mesh,
    codes: UInt8[np.ndarray, "n bytes"],
    centroids: Float32[np.ndarray, "groups points width"],
    mean: Float32[np.ndarray, " c"],
    mean_square: float,
) -> CodedDocuments:
    """Deals codes out over the devices, and computes the lengths of the decoded documents there.

    Args:
      mesh: `local_mesh()`.
      codes: Of the documents.
      centroids: Of 2 · bytes groups of 16 points, or of as many groups as bytes with 256 points; padded with zeros.
      mean: Vᵀμ with c = groups × width.
      mean_square: |μ|².
    """
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    on_host = points_of(centroids, mean, mean_square)
    mirrored = bool(np.array_equal(on_host.values[:, 8:16], -on_host.values[:, :8]))
    points: Points = jax.device_put(on_host, everywhere)
    rows = sharded(mesh, codes)
    inverse, shares, inverses = _lengths(mesh)(rows, points)
    if _way(mesh, points, 1) == "passes":
        across = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, _AXIS))
        rows = jax.jit(jnp.transpose, out_shardings=across)(rows)
    largest = float(max(shares)), float(max(inverses))
    return CodedDocuments(mesh, rows, inverse, points, len(codes), largest, mirrored)


def search_codes(
    documents: CodedDocuments, queries: Float32[np.ndarray, "q c"], offsets: Float32[np.ndarray, " q"], k: int
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The k documents with the highest cosines, which are not awaited here.

    Args:
      documents: Of `place_codes`.
      queries: Vᵀq for queries q of unit length.
      offsets: q·μ.
      k: At most the number of documents.

    Returns:
      Scores [q, k], rows [q, k], and whether a query's are certain to be the first: no other document can have a higher
      cosine, however the fast scores were rounded. `search_codes_surely` finds those of the others.
    """
    mesh, codes, inverse, points, size, (share, length), mirrored = documents
    way = _way(mesh, points, len(queries))
    dtype = jnp.float32 if _platform(mesh) == "cpu" else jnp.bfloat16
    slack = {"passes": length, "bytes": _FLOAT32}.get(way, _FLOAT32 if dtype == jnp.float32 else _BFLOAT16 * share)
    run = coded_searcher(mesh, k, dtype, way, way == "passes", mirrored)
    return run(queries, offsets, codes, inverse, points, np.int32(size), np.float32(slack))


def search_codes_surely(
    documents: CodedDocuments, queries: Float32[np.ndarray, "q c"], offsets: Float32[np.ndarray, " q"], k: int
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """`search_codes` in float32, with equal scores for equal codes: slow, for queries that are not certain."""
    mesh, codes, inverse, points, size, *_ = documents
    run = coded_searcher(mesh, k, jnp.float32, "bytes", _way(mesh, points, 1) == "passes")
    return run(queries, offsets, codes, inverse, points, np.int32(size), np.float32(0))


def _platform(mesh: jax.sharding.Mesh) -> str:
    return str(mesh.devices.flat[0].platform)


def _way(mesh: jax.sharding.Mesh, points: Points, queries: int) -> str:
    """How products of queries and decoded documents are made on these devices; see `benchmarks.coded_search`."""
    sixteen = points.values.shape[1] == 16
    match _platform(mesh):
        case "cpu":
            if sixteen:
                return "passes"
            if queries <= _FEW_QUERIES:
                return "bytes"
            return "gather"
        case "tpu":
            return "selects" if sixteen else "gather"
    return "bytes" if queries <= _TABLE_QUERIES else "gather"


@functools.lru_cache(maxsize=64)
def coded_searcher(
    mesh: jax.sharding.Mesh, k: int, dtype: DTypeLike, way: str, transposed: bool, mirrored: bool = False
) -> Any:
    """The compiled search of codes for one k, on all devices; `search_codes` has its arguments.

    All documents are scored fast: by decoding blocks of them and a matrix product (`gather`, or `selects` where gathers
    are slow), or by tables of what each byte adds to a query's product (`bytes`; `passes` for the vector units of a
    CPU, in int16). The tiles with the highest scores are scored again in float32.
    """
    P: Any = jax.sharding.PartitionSpec

    def local(
        queries: Array, offsets: Array, codes: Array, inverse: Array, points: Points, size: Array
    ) -> tuple[Array, Array, Array, Array]:
        rows = len(inverse)
        first = lax.axis_index(_AXIS) * rows
        count = max(_LEAST_TILES, _TILES_PER_RESULT * k)
        if count < rows // _CODED_TILE:
            here = codes.T if transposed and way != "passes" else codes
            arguments = queries, offsets, here, inverse, points, size - first
            if way == "passes":
                highest, error = _by_passes(*arguments, mirrored)
            else:
                highest = _by_blocks(*arguments, dtype, way)
                error = jnp.ones(len(queries))
            tiles, others = _best_tiles(highest, count)
        else:
            tiles = jnp.broadcast_to(jnp.arange(rows // _CODED_TILE), (len(queries), rows // _CODED_TILE))
            others = jnp.full(len(queries), -jnp.inf)
            error = jnp.zeros(len(queries))
        again = way if way == "selects" else "gather"
        values, ids = _rescored(queries, offsets, codes, points, size - first, tiles, min(k, rows), transposed, again)
        return values, first + ids, others[:, None], error[:, None]

    def search(
        queries: Array, offsets: Array, codes: Array, inverse: Array, points: Points, size: Array, slack: Array
    ) -> Any:
        queries = jnp.take(queries, points.column, axis=1, mode="clip")
        by_query = P(None, _AXIS)
        dealt = by_query if transposed else P(_AXIS)
        on_devices = jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P(), dealt, P(_AXIS), P(), P()), out_specs=(by_query,) * 4, check_vma=False
        )
        values, ids, others, error = on_devices(queries, offsets, codes, inverse, points, size)
        if mesh.size > 1:
            # Devices hold documents in order of id, so that the lower id still wins a tie.
            values, place = lax.top_k(values, k)
            ids = jnp.take_along_axis(ids, place, axis=1)
        return values, ids, values[:, -1] > (others + slack * error).max(axis=1)

    return jax.jit(search, out_shardings=jax.sharding.NamedSharding(mesh, P()))


def _chosen(codes: UInt8[Array, "n bytes"], points: Points) -> UInt8[Array, "n groups"]:
    """The number of the point that each group chooses."""
    if points.values.shape[1] > 16:
        return codes
    return jnp.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])


def _decoded(codes: UInt8[Array, "n bytes"], points: Points, dtype: DTypeLike, way: str) -> Float[Array, "n columns"]:
    """The columns of ẑ that vary."""
    values = points.values.astype(dtype)
    numbers = _chosen(codes, points)
    if way != "selects":
        numbers = jnp.take(numbers, points.group, axis=1, mode="clip")
        return values.at[jnp.arange(len(values)), numbers].get(mode="promise_in_bounds")
    # A product with ones and zeros, exact for small whole numbers, gives every column the number of its group.
    spread = (jnp.arange(numbers.shape[1])[:, None] == points.group).astype(jnp.bfloat16)
    numbers = jnp.matmul(numbers.astype(jnp.bfloat16), spread, preferred_element_type=jnp.float32).astype(jnp.int32)
    return _selected(numbers, [values[:, point] for point in range(16)], 0)


def _selected(numbers: Array, table: list[Array], shift: int) -> Array:
    """table[(numbers >> shift) & 15] by selects, whose table has a power of two of entries."""
    level = table
    for bit in range(len(table).bit_length() - 1):
        is_set = (numbers & numbers.dtype.type(1 << (bit + shift))) != 0
        level = [jnp.where(is_set, one, zero) for zero, one in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def _inverse_lengths(z: Float32[Array, "n columns"], points: Points) -> Float32[Array, " n"]:
    """1 / |y|, from |y|² = |μ|² + 2 (Vᵀμ)·ẑ + |ẑ|²."""
    square = points.mean_square + ((z + 2 * points.mean) * z).sum(axis=1)
    return lax.rsqrt(jnp.maximum(square, jnp.finfo(jnp.float32).tiny))


@functools.lru_cache(maxsize=8)
def _lengths(mesh: jax.sharding.Mesh) -> Any:
    """The compiled 1 / |y| of all documents, and the largest |ẑ| / |y| and 1 / |y| of each device."""
    P: Any = jax.sharding.PartitionSpec
    way = "selects" if _platform(mesh) == "tpu" else "gather"

    def local(codes: Array, points: Points) -> tuple[Array, Array, Array]:
        def one(part: Array) -> tuple[Array, Array]:
            z = _decoded(part, points, jnp.float32, way if points.values.shape[1] == 16 else "gather")
            inverse = _inverse_lengths(z, points)
            return inverse, jnp.sqrt((z * z).sum(axis=1)) * inverse

        block = next(rows for rows in (16384, 2048, TILE) if len(codes) % rows == 0)
        inverse, share = lax.map(one, codes.reshape(-1, block, codes.shape[1]))
        return inverse.reshape(-1), share.max()[None], inverse.max()[None]

    return jax.jit(
        jax.shard_map(local, mesh=mesh, in_specs=(P(_AXIS), P()), out_specs=(P(_AXIS),) * 3, check_vma=False)
    )


def _tables(queries: Float32[Array, "q columns"], points: Points, groups: int) -> Float32[Array, "q groups points"]:
    """What each point of each group adds to a query's product."""
    parts = queries[:, :, None] * points.values
    return jax.vmap(lambda part: jax.ops.segment_sum(part, points.group, groups))(parts)


def _by_blocks(
    queries: Float32[Array, "q columns"],
    offsets: Float32[Array, " q"],
    codes: UInt8[Array, "n bytes"],
    inverse: Float32[Array, " n"],
    points: Points,
    size: Array,
    dtype: DTypeLike,
    way: str,
) -> Float32[Array, "q tiles"]:
    """The highest score of every tile; documents from `size` on are padding."""
    n = len(codes)
    few = len(queries)
    blocks = -(-n // min(_MOST_ROWS, max(TILE, _BLOCK_SCORES // few)))
    block = n if blocks == 1 else -(-n // (blocks * TILE)) * TILE
    sixteen = points.values.shape[1] == 16
    width = codes.shape[1]
    if way == "bytes":
        tables = _tables(queries, points, 2 * width if sixteen else width)
        if sixteen:  # one table for both halves of a byte
            halves = tables.reshape(few, width, 2, 16)
            tables = (halves[:, :, 1, :, None] + halves[:, :, 0, None, :]).reshape(few, width, 256)

    def products(part: Array) -> Array:
        if way == "bytes":
            places = part.astype(jnp.int32) + 256 * jnp.arange(width)
            flat = tables.reshape(few, -1)
            if few <= _FEW_QUERIES:
                return jnp.stack([table.at[places].get(mode="promise_in_bounds").sum(axis=1) for table in flat])
            return lax.map(lambda table: table.at[places].get(mode="promise_in_bounds").sum(axis=1), flat)
        z = _decoded(part, points, dtype, way)
        precision = lax.Precision.HIGHEST if dtype == jnp.float32 else None
        return jnp.matmul(queries.astype(dtype), z.T, precision=precision, preferred_element_type=jnp.float32)

    def maxima(start: Array) -> Array:
        # The last block begins early enough to be full.
        begin = jnp.minimum(start, n - block)
        lengths = lax.dynamic_slice_in_dim(inverse, begin, block)
        scores = (products(lax.dynamic_slice_in_dim(codes, begin, block)) + offsets[:, None]) * lengths
        scores = jnp.where(begin + jnp.arange(block) < size, scores, -jnp.inf)
        return scores.reshape(few, block // _CODED_TILE, _CODED_TILE).max(axis=-1)

    if block == n:
        return maxima(jnp.int32(0))
    highest = jnp.moveaxis(lax.map(maxima, jnp.arange(0, n, block, dtype=jnp.int32)), 0, 1)
    # What the last block has in common with the one before appears once.
    most = block // _CODED_TILE
    again = most - (n - (n - 1) // block * block) // _CODED_TILE
    return jnp.concatenate([highest[:, :-1].reshape(few, -1), highest[:, -1, again:]], axis=1)


def _by_passes(
    queries: Float32[Array, "q columns"],
    offsets: Float32[Array, " q"],
    codes: UInt8[Array, "bytes n"],
    inverse: Float32[Array, " n"],
    points: Points,
    size: Array,
    mirrored: bool,
) -> tuple[Float32[Array, "q tiles"], Float32[Array, " q"]]:
    """`_by_blocks` in a pass over all documents for each byte, and what a query's products are off by at most."""
    width, n = codes.shape

    def one(of: tuple[Array, Array]) -> tuple[Array, Array]:
        query, offset = of
        table = _tables(query[None], points, 2 * width)[0]
        step = jnp.abs(table).max(axis=1).sum() / (_STEPS - 2 * width) + jnp.finfo(jnp.float32).tiny
        steps = jnp.round(table / step).astype(jnp.int16).reshape(width, 2, 16)

        def add(total: Array, byte: tuple[Array, Array]) -> tuple[Array, None]:
            numbers, halves = byte
            for half, shift in zip(halves, (0, 4), strict=True):
                part = _selected(numbers, list(half[:8] if mirrored else half), shift)
                is_set = (numbers & numbers.dtype.type(8 << shift)) != 0
                total += jnp.where(is_set, -part, part) if mirrored else part
            return total, None

        total, _ = lax.scan(add, jnp.zeros(n, jnp.int16), (codes, steps))
        scores = jnp.where(jnp.arange(n) < size, (total * step + offset) * inverse, -jnp.inf)
        return scores.reshape(-1, _CODED_TILE).max(axis=1), width * step * 1.01

    return lax.map(one, (queries, offsets))


def _best_tiles(highest: Float32[Array, "q tiles"], count: int) -> tuple[Int[Array, "q count"], Float32[Array, " q"]]:
    """The tiles with the highest scores, in ascending order, and the highest score of the others; ties to the first."""
    tiles = highest.shape[1]
    wide = _tile(tiles, count + 1)
    padded = jnp.pad(highest, ((0, 0), (0, -tiles % wide)), constant_values=-jnp.inf)
    values, best = tiled_top_k(padded, count + 1, wide)
    # One without a document is past the last.
    best = jnp.where(values[:, :count] > -jnp.inf, best[:, :count], tiles)
    return jnp.sort(best, axis=-1), values[:, count]


def _rescored(
    queries: Float32[Array, "q columns"],
    offsets: Float32[Array, " q"],
    codes: UInt8[Array, "n bytes"],
    points: Points,
    size: Array,
    tiles: Int[Array, "q count"],
    k: int,
    transposed: bool,
    way: str,
) -> tuple[Float32[Array, "q k"], Int[Array, "q k"]]:
    """The k best documents of some tiles, which ascend, by cosines in float32; ties go to the first."""
    many = tiles.shape[1] * _CODED_TILE

    def one(of: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        query, offset, tiles = of
        places = (tiles[:, None] * _CODED_TILE + jnp.arange(_CODED_TILE)).reshape(-1)
        rows = jnp.take(codes, places, axis=int(transposed), mode="clip")
        rows = rows.T if transposed else rows
        z = _decoded(rows, points, jnp.float32, way)
        scores = ((z * query).sum(axis=1) + offset) * _inverse_lengths(z, points)
        values, best = lax.top_k(jnp.where(places < size, scores, -jnp.inf), k)
        return values, places[best]

    at_once = max(1, min(len(queries), _AGAIN_DECODED // (4 * many * queries.shape[1])))
    return lax.map(one, (queries, offsets, tiles), batch_size=at_once)
