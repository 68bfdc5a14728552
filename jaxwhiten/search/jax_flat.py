"""Exact search in JAX, with documents sharded over all local devices; also for TPU, where FAISS does not run.

The exact top-k has two stages: the maximum of every tile of scores, then the k best among the k tiles with the highest
maxima, which must contain them. The sort, more expensive on CPU than the product, thus sees few values. Ties go to the
lower id. Codes stay on the devices as bytes and are decoded block by block inside the product. If the scores of a batch
exceed the CPU's cache, only the maxima of tiles are kept, and the k best tiles are scored again.

References:
  Chern et al. 2022, "TPU-KNN: K nearest neighbor search at peak FLOP/s" (`approximate=True`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import block_rows, blocks, one_ahead, pad_rows
from jaxwhiten.codes.code import apart
from jaxwhiten.codes.gaussian import nearest_on_cores
from jaxwhiten.errors import InputError
from jaxwhiten.io import map_array
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import Coding, prepared, read_map, write_map
from jaxwhiten.whitening.affine import Affine

_SCORE_BYTES = 128 << 20  # of scores kept at a time on one device
_CPU_BATCH, _CPU_SCORE_BYTES = 512, 16 << 20  # of a block on a CPU, so that scores stay in its cache
_MAX_BATCH = 1024
_AGAIN = 1 / 64  # at most this share of the documents is scored again
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

    def __init__(
        self,
        options: JaxOptions,
        prepare: Affine,
        stored: np.ndarray,
        centroids: np.ndarray | None,
        length: float = 1.0,
    ) -> None:
        """Shards stored vectors, or codes with their centroids, over the devices.

        `length` is the root mean square of the lengths of decoded codes.
        """
        target = options.recall_target
        if not isinstance(target, int | float) or not 0 < target <= 1:
            raise InputError(f"Option recall_target of jax must be above 0 and at most 1, got {target!r}.")
        if not isinstance(options.approximate, bool):
            raise InputError(f"Option approximate of jax must be True or False, got {options.approximate!r}.")
        self.options, self.prepare, self._centroids = options, prepare, centroids
        from jaxwhiten.search import jax_kernels

        self._kernels: Any = jax_kernels
        self._mesh = jax_kernels.local_mesh()
        self._platform = self._mesh.devices.flat[0].platform
        self._decoder = None if centroids is None else jax_kernels.on_all_devices(self._mesh, centroids / length)
        self._place(stored)

    def _place(self, stored: np.ndarray) -> None:
        self._size, self._documents = len(stored), self._kernels.sharded(self._mesh, stored)
        self._rows = len(self._documents) // self._mesh.size

    @classmethod
    def build(cls, vectors: np.ndarray, options: JaxOptions, coding: Coding, mapped: bool) -> JaxFlat:
        prepare, q = coding.prepare, coding.quantiser
        centroids, length = (None, 1.0) if q is None else (q.centroids, q.length)
        own = Affine(np.zeros(prepare.outputs, np.float32)) if mapped else prepare
        return cls(options, prepare, _stored(vectors, own, centroids), centroids, length)

    def add(self, vectors: np.ndarray) -> None:
        self._place(np.concatenate([self._on_host(), _stored(vectors, self.prepare, self._centroids)]))

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self._place(self._on_host()[keep])

    def _on_host(self) -> np.ndarray:
        return np.asarray(self._documents)[: self._size]

    def search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        batch, block = self._batch_and_block(len(queries), k)
        queries = queries if prepared else np.asarray(self.prepare(queries), np.float32)
        recall_target = float(self.options.recall_target) if self.options.approximate else None
        run = self._kernels.searcher(self._mesh, k, block, recall_target)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)

        def dispatch(part: slice) -> tuple[slice, Any, Any]:
            return part, *run(pad_rows(queries[part], batch), self._documents, self._decoder, self._size)

        for part, values, rows in one_ahead(map(dispatch, blocks(len(queries), batch))):
            scores[part] = np.asarray(values)[: part.stop - part.start]
            ids[part] = np.asarray(rows)[: part.stop - part.start]
        return scores, ids

    def _batch_and_block(self, n: int, k: int) -> tuple[int, int]:
        """The number of queries per batch, out of n, and of documents per block; a block may be all documents."""
        on_cpu = self._platform == "cpu"
        most, score_bytes = (_CPU_BATCH, _CPU_SCORE_BYTES) if on_cpu else (_MAX_BATCH, _SCORE_BYTES)
        batch = min(most, _power_of_two(2 * n - 1))
        block = max(self._kernels.TILE, block_rows(batch, 4, score_bytes))
        if block < self._rows and k * self._kernels.AGAIN_TILE <= _AGAIN * self._rows and not self.options.approximate:
            return batch, block
        if self._platform == "tpu" and self.options.approximate:
            # A TPU reduces scores while computing them, and reads the documents once per batch.
            return batch, self._rows
        return min(batch, _power_of_two(max(1, _SCORE_BYTES // (4 * self._rows)))), self._rows

    @property
    def nbytes(self) -> int:
        row = self._documents.dtype.itemsize * self._documents.shape[1]
        parts = () if self.prepare.matrix is None else self.prepare.parts
        centroids = () if self._centroids is None else (self._centroids,)
        return _NPY_HEADER + self._size * row + sum(array.nbytes for array in (*parts, *centroids))

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
        shape = None if centroids is None else (len(centroids), centroids[0, 0].size * columns)
        if shape != (None if codes is None else (columns, header.dimension)):
            raise ValueError(f"centroids of {shape} bytes and columns, unlike the header")
        if (prepare.inputs, prepare.outputs) != (header.input_dimension, header.dimension):
            raise ValueError(f"stored vectors of dimension {prepare.outputs}, unlike the header")
        return cls(options, prepare, stored, centroids, 1.0 if codes is None else float(codes["length"]))


def _stored(vectors: np.ndarray, prepare: Affine, centroids: np.ndarray | None) -> np.ndarray:
    """The stored form of raw vectors: whitened vectors, or their codes."""
    columns, dtype = (prepare.outputs, np.float32) if centroids is None else (len(centroids), np.uint8)
    out, coder = np.empty((len(vectors), columns), dtype), None if centroids is None else apart(centroids)
    for part, x in prepared(vectors, prepare):
        out[part] = x if coder is None else nearest_on_cores(x, coder)
    return out


def _power_of_two(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)
