"""Exact search in JAX, the documents sharded over all local devices; also on TPU, where FAISS does not run.

Exact top-k in two stages: the maximum of every tile of scores first, then the best of the k best tiles. Any of the k
best documents lies in one of the k tiles with the highest maxima, so nothing is lost, and the sort, which costs more
than the matrix product on CPU, sees few values. Ties go to the lower id.

References:
  Chern et al. 2022, "TPU-KNN: K nearest neighbor search at peak FLOP/s" (`approximate=True`).
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float32, Int

from jaxwhiten.errors import InputError
from jaxwhiten.io import load_tensors, map_array, save_tensors
from jaxwhiten.search.base import Index
from jaxwhiten.search.prepare import Prepare, blocks, check_lengths

_AXIS = "documents"
_TILE = 128  # rows per device are a multiple of this
_SCORE_BYTES = 128 << 20  # of one block of scores on one device
_MAX_BATCH = 1024
_VECTORS, _TRANSFORM = "vectors.npy", "transform.safetensors"


class JaxIndex(Index):
    """Inner-product search by matrix product; on unit vectors that is cosine.

    Options of the backend `jax`:
      approximate: Use `lax.approx_max_k`, which is fast on TPU; elsewhere XLA runs it as an exact top-k, slower than
        the one by tiles.
      recall_target: The recall `approx_max_k` aims at.
    """

    default_options = MappingProxyType({"jax": {"approximate": False, "recall_target": 0.95}})

    def _build(self, vectors: np.ndarray) -> None:
        self._check_options()
        stored = np.empty((self.size, self.dimension), np.float32)
        for part in blocks(self.size):
            stored[part] = self.prepare(vectors[part])
            check_lengths("document vectors after the whitening", stored[part], part.start)
        self._place(stored)

    def _check_options(self) -> None:
        target = self.options["recall_target"]
        if not isinstance(target, int | float) or not 0 < target <= 1:
            raise InputError(f"Option recall_target of jax must lie in (0, 1], not {target!r}.")
        if not isinstance(self.options["approximate"], bool):
            raise InputError(f"Option approximate of jax must be True or False, not {self.options['approximate']!r}.")

    def _place(self, stored: np.ndarray) -> None:
        """Spreads the stored vectors over the devices, each with the same number of rows."""
        self._mesh = Mesh(np.array(jax.local_devices()), (_AXIS,))
        devices = self._mesh.size
        rows = -(-self.size // (devices * _TILE)) * _TILE

        def shard(index: Any) -> np.ndarray:
            part = stored[index[0]]
            if len(part) == rows:
                return part
            return np.concatenate([part, np.zeros((rows - len(part), self.dimension), np.float32)])

        self._documents = jax.make_array_from_callback(
            (rows * devices, self.dimension), NamedSharding(self._mesh, P(_AXIS)), shard
        )
        self._rows = rows
        self._kernel = None
        if self.prepare.weight is not None:
            self._kernel = jax.device_put((self.prepare.weight, self.prepare.bias), NamedSharding(self._mesh, P()))

    def _search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        limit = max(1, min(_MAX_BATCH, _SCORE_BYTES // (4 * self._rows)))
        batch = min(1 << (limit.bit_length() - 1), 1 << (len(queries) - 1).bit_length())
        kernel = None if prepared else self._kernel
        normalize = self.prepare.normalize and not prepared
        recall_target = float(self.options["recall_target"]) if self.options["approximate"] else None
        run = _searcher(self._mesh, k, normalize, recall_target)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        waiting: list[tuple[slice, Any]] = []

        def collect() -> None:
            part, (values, found) = waiting.pop(0)
            scores[part] = np.asarray(values)[: part.stop - part.start]
            ids[part] = np.asarray(found)[: part.stop - part.start]

        for part in blocks(len(queries), batch):
            block = queries[part]
            if len(block) < batch:
                block = np.concatenate([block, np.zeros((batch - len(block), block.shape[1]), np.float32)])
            waiting.append((part, run(block, self._documents, kernel, self.size)))
            if len(waiting) > 1:  # one block is computed while the one before is copied
                collect()
        while waiting:
            collect()
        return scores, ids

    @property
    def nbytes(self) -> int:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f4", "fortran_order": False, "shape": (self.size, self.dimension)}
        )
        weight = self.prepare.weight
        return header.tell() + 4 * self.dimension * (self.size + (0 if weight is None else weight.shape[0] + 1))

    def _write(self, folder: Path) -> None:
        np.save(folder / _VECTORS, np.asarray(self._documents)[: self.size])
        if self.prepare.weight is not None and self.prepare.bias is not None:
            tensors = {"weight": self.prepare.weight, "bias": self.prepare.bias}
            save_tensors(folder / _TRANSFORM, tensors, kind="index transform", header={})

    def _read(self, files: Mapping[str, Path]) -> None:
        stored = map_array(files[_VECTORS])
        if stored.shape != (self.size, self.dimension) or stored.dtype != np.float32:
            raise ValueError(f"{stored.dtype} vectors of shape {stored.shape}, unlike the header")
        if _TRANSFORM in files:
            tensors, _ = load_tensors(files[_TRANSFORM], kind="index transform")
            self.prepare = Prepare(tensors["weight"], tensors["bias"], self.prepare.normalize)
        if (dimension := self.prepare.dimension(self.input_dimension)) != self.dimension:
            raise ValueError(f"stored vectors of dimension {dimension}, unlike the header")
        self._check_options()
        self._place(stored)


@functools.lru_cache(maxsize=64)
def _searcher(mesh: Mesh, k: int, normalize: bool, recall_target: float | None) -> Any:
    """The compiled search for one k: transform, scores, best of each device, best of all."""

    def local(queries: Array, documents: Array, size: Array) -> tuple[Array, Array]:
        rows = documents.shape[0]
        first = lax.axis_index(_AXIS) * rows
        scores = jnp.matmul(queries, documents.T, precision=lax.Precision.HIGHEST)
        scores = jnp.where(first + jnp.arange(rows) < size, scores, -jnp.inf)
        if recall_target is None:
            values, ids = tiled_top_k(scores, min(k, rows), _tile(rows, k))
        else:
            values, ids = lax.approx_max_k(
                scores, min(k, rows), recall_target=recall_target, reduction_input_size_override=rows * mesh.size
            )
        return values, first + ids

    def search(queries: Array, documents: Array, kernel: tuple[Array, Array] | None, size: Array) -> Any:
        if kernel is not None:
            queries = jnp.matmul(queries, kernel[0], precision=lax.Precision.HIGHEST) + kernel[1]
        if normalize:
            length = jnp.linalg.norm(queries, axis=1, keepdims=True)
            queries = queries / jnp.where(length > 0, length, 1)
        sharded = jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P(_AXIS), P()), out_specs=(P(None, _AXIS), P(None, _AXIS))
        )
        values, ids = sharded(queries, documents, size)
        if mesh.size == 1:
            return values, ids
        # Devices follow each other in order of id, so that the lower id still wins a tie.
        values, place = lax.top_k(values, k)
        return values, jnp.take_along_axis(ids, place, axis=1)

    return jax.jit(search, out_shardings=NamedSharding(mesh, P()))


def _tile(rows: int, k: int) -> int:
    """The tile that sorts least: rows / tile + k × tile values are smallest at √(rows / k)."""
    wanted = (rows / k) ** 0.5
    return next(tile for tile in (128, 64, 32, 16) if tile <= max(16.0, 1.42 * wanted))


def tiled_top_k(scores: Float32[Array, "q n"], k: int, tile: int) -> tuple[Float32[Array, "q k"], Int[Array, "q k"]]:
    """The k highest values of each row and their places; of equal values the first.

    Args:
      scores: The values; n must be a multiple of `tile`.
      k: How many.
      tile: Values in one tile.

    Returns:
      Values, descending, and places.
    """
    queries, n = scores.shape
    if n // tile <= k:
        values, places = lax.top_k(scores, k)
        return values, places
    tiles = scores.reshape(queries, n // tile, tile)
    _, best = lax.top_k(tiles.max(axis=-1), k)
    # In ascending order, so that the order of the candidates is that of their places.
    best = jnp.sort(best, axis=-1)
    candidates = jnp.take_along_axis(tiles, best[:, :, None], axis=1).reshape(queries, k * tile)
    values, place = lax.top_k(candidates, k)
    return values, jnp.take_along_axis(best, place // tile, axis=1) * tile + place % tile
