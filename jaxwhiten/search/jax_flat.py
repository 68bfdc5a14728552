"""Exact search in JAX, with documents sharded over all local devices; also for TPU, where FAISS does not run.

The exact top-k has two stages: the maximum of every tile of scores, then the k best among the k tiles with the highest
maxima, which must contain them. The sort, more expensive on CPU than the product, thus sees few values. Ties go to the
lower id. Codes stay on the devices as bytes and are decoded block by block inside the product. If the scores of a batch
exceed the CPU's cache, only the maxima of tiles are kept, and the k best tiles are scored again.

References:
  Chern et al. 2022, "TPU-KNN: K nearest neighbor search at peak FLOP/s" (`approximate=True`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from jaxwhiten.arrays import block_rows, blocks, normalize_on_device, one_ahead, pad_rows
from jaxwhiten.codes import nearest
from jaxwhiten.errors import InputError
from jaxwhiten.io import map_array
from jaxwhiten.lazy import Array, jax, jnp, lax
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend
from jaxwhiten.search.coding import Coding
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import prepared, read_map, write_map
from jaxwhiten.whitening.affine import Affine, linear

_AXIS = "documents"
_TILE = 128  # rows per device are a multiple of this
_SCORE_BYTES = 128 << 20  # of scores kept at a time on one device
_CPU_BATCH, _CPU_SCORE_BYTES = 512, 16 << 20  # of a block on a CPU, so that scores stay in its cache
_MAX_BATCH = 1024
_FEW_QUERIES = 8  # up to this many, a CPU looks scores of codes up in tables instead of decoding all documents
_AGAIN_TILE, _AGAIN, _AGAIN_BYTES = 32, 1 / 64, 32 << 20  # at most this share of the documents is scored again
_NPY_HEADER = 128  # bytes of a `.npy` file before its values
_VECTORS, _CODES, _TRANSFORM = "vectors.npy", "codes.npy", "transform.safetensors"


@dataclass
class JaxOptions:
    """How the best documents are found."""

    approximate: bool = False  # by `lax.approx_max_k`: fast on TPU, elsewhere slower than the exact top-k by tiles
    recall_target: float = 0.95  # of the approximate search


class JaxFlat(Backend):
    """Inner-product search by matrix product; on unit vectors the inner product is the cosine."""

    name, Options = "jax", JaxOptions
    removes = codes = True

    def __init__(self, options: JaxOptions, prepare: Affine, stored: np.ndarray, centroids: np.ndarray | None) -> None:
        """Shards stored vectors, or codes with their centroids, over the devices."""
        target = options.recall_target
        if not isinstance(target, int | float) or not 0 < target <= 1:
            raise InputError(f"Option recall_target of jax must lie in (0, 1], not {target!r}.")
        if not isinstance(options.approximate, bool):
            raise InputError(f"Option approximate of jax must be True or False, not {options.approximate!r}.")
        self.options, self.prepare, self._centroids = options, prepare, centroids
        self._mesh = jax.sharding.Mesh(np.array(jax.local_devices()), (_AXIS,))
        self._platform = self._mesh.devices.flat[0].platform
        everywhere = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec())
        self._kernel = self._decoder = None
        if centroids is not None:
            dtype = jnp.float32 if self._platform == "cpu" else jnp.bfloat16
            self._decoder = jax.device_put(jnp.asarray(centroids, dtype), everywhere)
        if prepare.matrix is not None:
            self._kernel = jax.device_put(prepare.kernel, everywhere)
        self._place(stored)

    def _place(self, stored: np.ndarray) -> None:
        """Shards rows over the devices, with the same number of rows on each."""
        self._size, devices = len(stored), self._mesh.size
        self._rows = rows = -(-len(stored) // (devices * _TILE)) * _TILE

        def shard(index: Any) -> np.ndarray:
            return pad_rows(stored[index[0]], rows)

        sharding = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(_AXIS))
        self._documents = jax.make_array_from_callback((rows * devices, stored.shape[1]), sharding, shard)

    @classmethod
    def build(
        cls, vectors: np.ndarray, options: JaxOptions, prepare: Affine, coding: Coding | None, mapped: bool
    ) -> JaxFlat:
        centroids = coding.quantiser.centroids if coding is not None and coding.quantiser is not None else None
        own = Affine(np.zeros(prepare.outputs, np.float32)) if mapped else prepare
        return cls(options, prepare, _stored(vectors, own, centroids), centroids)

    def add(self, vectors: np.ndarray) -> None:
        self._place(np.concatenate([self._on_host(), _stored(vectors, self.prepare, self._centroids)]))

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self._place(self._on_host()[keep])

    def _on_host(self) -> np.ndarray:
        return np.asarray(self._documents)[: self._size]

    def search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        batch, block = self._batch_and_block(len(queries), k)
        kernel = None if prepared else self._kernel
        normalize = self.prepare.unit_length and not prepared
        recall_target = float(self.options.recall_target) if self.options.approximate else None
        run = _searcher(self._mesh, k, block, normalize, recall_target)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)

        def dispatch(part: slice) -> tuple[slice, jax.Array, jax.Array]:
            return part, *run(pad_rows(queries[part], batch), self._documents, kernel, self._decoder, self._size)

        for part, values, found in one_ahead(map(dispatch, blocks(len(queries), batch))):
            scores[part] = np.asarray(values)[: part.stop - part.start]
            ids[part] = np.asarray(found)[: part.stop - part.start]
        return scores, ids

    def _batch_and_block(self, n: int, k: int) -> tuple[int, int]:
        """The number of queries per batch, out of n, and of documents per block; a block may be all documents."""
        on_cpu = self._platform == "cpu"
        most, score_bytes = (_CPU_BATCH, _CPU_SCORE_BYTES) if on_cpu else (_MAX_BATCH, _SCORE_BYTES)
        batch = min(most, _power_of_two(2 * n - 1))
        block = max(_TILE, block_rows(batch, 4, score_bytes))
        if block < self._rows and k * _AGAIN_TILE <= _AGAIN * self._rows and not self.options.approximate:
            return batch, block
        if self._platform == "tpu" and self.options.approximate:
            # A TPU reduces scores while computing them, and reads the documents once per batch.
            return batch, self._rows
        return min(batch, _power_of_two(max(1, _SCORE_BYTES // (4 * self._rows)))), self._rows

    @property
    def nbytes(self) -> int:
        row = self._documents.dtype.itemsize * self._documents.shape[1]
        kernel = () if self.prepare.matrix is None else self.prepare.kernel
        centroids = () if self._centroids is None else (self._centroids,)
        return _NPY_HEADER + self._size * row + sum(array.nbytes for array in (*kernel, *centroids))

    def write(self, folder: Path) -> None:
        np.save(folder / (_VECTORS if self._centroids is None else _CODES), self._on_host())
        write_map(folder / _TRANSFORM, self.prepare, {} if self._centroids is None else {"centroids": self._centroids})

    @classmethod
    def read(cls, files: Mapping[str, Path], options: JaxOptions, header: Header) -> JaxFlat:
        codes = header.codes
        columns, dtype = (header.dimension, np.float32) if codes is None else (codes["bytes"], np.uint8)
        stored = map_array(files[_VECTORS if codes is None else _CODES])
        if stored.shape != (header.size, columns) or stored.dtype != dtype:
            raise ValueError(f"{stored.dtype} vectors of shape {stored.shape}, unlike the header")
        prepare, tensors = read_map(files.get(_TRANSFORM), header.input_dimension, header.normalize)
        centroids = tensors.get("centroids")
        found = None if centroids is None else (len(centroids), centroids[0, 0].size * columns)
        if found != (None if codes is None else (columns, header.dimension)):
            raise ValueError(f"centroids of {found} bytes and columns, unlike the header")
        if (prepare.inputs, prepare.outputs) != (header.input_dimension, header.dimension):
            raise ValueError(f"stored vectors of dimension {prepare.outputs}, unlike the header")
        return cls(options, prepare, stored, centroids)


def _stored(vectors: np.ndarray, prepare: Affine, centroids: np.ndarray | None) -> np.ndarray:
    """The stored form of raw vectors: whitened vectors, or their codes."""
    columns, dtype = (prepare.outputs, np.float32) if centroids is None else (len(centroids), np.uint8)
    out = np.empty((len(vectors), columns), dtype)
    for part, x in prepared(vectors, prepare):
        out[part] = x if centroids is None else nearest(x, centroids)
    return out


@functools.lru_cache(maxsize=64)
def _searcher(mesh: jax.sharding.Mesh, k: int, block: int, normalize: bool, recall_target: float | None) -> Any:
    """The compiled search for one k: map queries, score documents, take the best per device, then of all."""
    P: Any = jax.sharding.PartitionSpec

    def local(queries: Array, documents: Array, decoder: Array | None, size: Array) -> tuple[Array, Array]:
        rows = documents.shape[0]
        first = lax.axis_index(_AXIS) * rows
        if block < rows:
            values, ids = top_k_by_blocks(queries, documents, size - first, k, block, _AGAIN_TILE, decoder)
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

    def search(
        queries: Array, documents: Array, kernel: tuple[Array, Array] | None, decoder: Array | None, size: Array
    ) -> Any:
        if kernel is not None:
            queries = linear(queries, *kernel)
        if normalize:
            queries = normalize_on_device(queries)
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


def _power_of_two(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


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
    """Inner products; for codes, scores from distances, see `jaxwhiten.search.coding`."""
    if decoder is None:
        return jnp.matmul(queries, documents.T, precision=lax.Precision.HIGHEST)
    if len(queries) <= _FEW_QUERIES and decoder.dtype == jnp.float32:
        return _looked_up(queries, documents, decoder)
    decoded = decoder[jnp.arange(len(decoder)), documents].reshape(len(documents), -1)
    precision = lax.Precision.HIGHEST if decoded.dtype == jnp.float32 else None
    products = jnp.matmul(
        queries.astype(decoded.dtype), decoded.T, precision=precision, preferred_element_type=jnp.float32
    )
    return products + (1 - (decoded.astype(jnp.float32) ** 2).sum(axis=1)) / 2


def _looked_up(
    queries: Float32[Array, "q d"], documents: Shaped[Array, "n c"], decoder: Float32[Array, "c 256 w"]
) -> Float32[Array, "q n"]:
    """`scored` for codes on a CPU: a table per query holds the contribution of each byte, and these are summed."""
    parts = queries.reshape(len(queries), len(decoder), -1)
    products = jnp.einsum("qcw,cvw->qcv", parts, decoder, precision=lax.Precision.HIGHEST)
    tables = (products - (decoder**2).sum(axis=-1) / 2).reshape(len(queries), -1)
    places = documents + jnp.arange(len(decoder)) * decoder.shape[1]
    # Unrolled: in a compiled loop XLA would write the looked-up values to memory before summing them.
    sums = [table.at[places].get(mode="promise_in_bounds").sum(axis=1) for table in tables]
    return jnp.stack(sums) + 0.5


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
    found, best = lax.top_k(highest, k + 1)
    # In ascending order, so that candidates are sorted by place.
    best, found = lax.sort((best, found), num_keys=1)
    best = tiles.reshape(-1)[best]
    rows = documents.reshape(n // tile, tile, d)

    def again(query: Array, best: Array, found: Array) -> tuple[Array, Array]:
        scores = scored(query[None], rows[best].reshape(-1, d), decoder)[0]
        places = (best[:, None] * tile + jnp.arange(tile)).reshape(-1)
        counts = (places < count) & jnp.repeat(found > -jnp.inf, tile)
        values, place = lax.top_k(jnp.where(counts, scores, -jnp.inf), k)
        return values, places[place]

    at_once = max(1, min(len(queries), _AGAIN_BYTES // (4 * width * (k + 1) * tile)))
    return lax.map(lambda of: again(*of), (queries, best, found), batch_size=at_once)
