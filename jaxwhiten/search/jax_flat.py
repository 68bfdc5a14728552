"""Exact search in JAX, with documents sharded over all local devices; also for TPU, where FAISS does not run.

The exact top-k has two stages: the maximum of every tile of scores, then the k best among the k tiles with the highest
maxima, which must contain them. The sort, more expensive on CPU than the product, thus sees few values. Ties go to the
lower id. Codes stay on the devices as bytes; the cosines of the best tiles are computed in float32. If the scores of a
batch exceed the CPU's cache, only the maxima of tiles are kept, and the k best tiles are scored again.

References:
  Chern et al. 2022, "TPU-KNN: K nearest neighbor search at peak FLOP/s" (`approximate=True`).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import block_rows, blocks, one_ahead, pad_rows
from jaxwhiten.codes import Quantiser
from jaxwhiten.codes.code import apart
from jaxwhiten.codes.gaussian import nearest_on_cores
from jaxwhiten.io import take
from jaxwhiten.parameters import bounded
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend, BackendOptions, Store
from jaxwhiten.search.codes import NPY_HEADER, TRANSFORM, CodedStore, coded, is_first_version, read_codes
from jaxwhiten.search.header import CODES, VECTORS, Files, Header
from jaxwhiten.search.prepare import Coding, Rows, prepared, read_map, write_map
from jaxwhiten.shapes import Int64
from jaxwhiten.typing import AnyArray
from jaxwhiten.whitening.affine import Affine

_SCORE_BYTES = 128 << 20  # of scores kept at a time on one device
# of a block on a CPU, so that scores stay in its cache
_CPU_BATCH = 512
_CPU_SCORE_BYTES = 16 << 20
_MAX_BATCH = 1024
_AGAIN = 1 / 64  # at most this share of the documents is scored again


@dataclass
class JaxOptions:
    """How the best documents are found."""

    # By `lax.approx_max_k`: fast on TPU, elsewhere slower than the exact top-k by tiles.
    approximate: bool = bounded(False, False, True)
    recall_target: float = bounded(0.95, 0.0, 1.0, above=True)  # of the approximate search


class JaxFlat(Backend):
    """Inner-product search by matrix product; on unit vectors the inner product is the cosine."""

    name = "jax"
    Options = JaxOptions
    removes = codes = True

    def __init__(
        self,
        options: JaxOptions,
        prepare: Affine,
        stored: np.ndarray,
        centroids: np.ndarray | None,
        length: float = 1.0,
    ) -> None:
        """Shards stored vectors, or codes of version 0.1 with their centroids, over the devices.

        `length` is the root mean square of the lengths of decoded codes.
        """
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
    def build(cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: np.ndarray | None) -> Store:
        quantiser = coding.quantiser
        if quantiser is None:
            return cls(options, coding.prepare, _stored(vectors, coding.prepare, None), None)
        codes = coded(vectors, coding.prepare, quantiser) if stored is None else np.array(stored)
        return JaxCodes(options, coding.prepare, quantiser, codes)

    def add(self, vectors: np.ndarray) -> None:
        self._place(np.concatenate([self._on_host(), _stored(vectors, self.prepare, self._centroids)]))

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self._place(self._on_host()[keep])

    def _on_host(self) -> np.ndarray:
        return np.asarray(self._documents)[: self._size]

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        if among is not None:
            subset = copy.copy(self)
            subset._place(self._on_host()[among])
            scores = np.full((len(queries), k), -np.inf, np.float32)
            rows = np.full((len(queries), k), -1, np.int64)
            count = min(k, len(among))
            scores[:, :count], places = subset.search(queries, count, prepared)
            rows[:, :count] = among[places]
            return scores, rows
        batch, block = self._batch_and_block(len(queries), k)
        if not prepared:
            queries = np.asarray(self.prepare(queries), np.float32)
        recall_target = float(self.options.recall_target) if self.options.approximate else None
        run = self._kernels.searcher(self._mesh, k, block, recall_target)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)

        def dispatch(part: slice) -> tuple[slice, AnyArray, AnyArray]:
            return part, *run(pad_rows(queries[part], batch), self._documents, self._decoder, self._size)

        for part, values, rows in one_ahead(map(dispatch, blocks(len(queries), batch))):
            scores[part] = np.asarray(values)[: part.stop - part.start]
            ids[part] = np.asarray(rows)[: part.stop - part.start]
        return scores, ids

    def _batch_and_block(self, n: int, k: int) -> tuple[int, int]:
        """The number of queries per batch, out of n, and of documents per block; a block may be all documents."""
        on_cpu = self._platform == "cpu"
        if on_cpu:
            most = _CPU_BATCH
            score_bytes = _CPU_SCORE_BYTES
        else:
            most = _MAX_BATCH
            score_bytes = _SCORE_BYTES
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
        return NPY_HEADER + self._size * row + sum(array.nbytes for array in (*parts, *centroids))

    def extends(self, names: Collection[str]) -> bool:
        return self._row_file in names

    def rows(self, first: int = 0) -> Mapping[str, np.ndarray]:
        return {self._row_file: np.asarray(self._documents[first : self._size])}

    @property
    def _row_file(self) -> str:
        return VECTORS if self._centroids is None else CODES

    def write(self, folder: Path) -> None:
        write_map(folder / TRANSFORM, self.prepare, {} if self._centroids is None else {"centroids": self._centroids})

    @classmethod
    def read(cls, files: Files, options: JaxOptions, header: Header) -> Store:
        if header.codes is not None:
            prepare, quantiser, codes = read_codes(files, header)
            if is_first_version(header):
                return cls(options, prepare, codes, quantiser.centroids, quantiser.length)
            return JaxCodes(options, prepare, quantiser, codes)
        vectors = {"vectors": files.array(VECTORS)}
        [stored] = take(vectors, "float32", finite=False, vectors=(header.size, header.dimension))
        prepare, _ = read_map(files.get(TRANSFORM), header.input_dimension, header.normalize, header.dimension)
        return cls(options, prepare, stored, None)


class JaxCodes(CodedStore):
    """Codes on the devices, searched by the exact cosine; a search among chosen rows is made on the host."""

    def __init__(self, options: JaxOptions, prepare: Affine, quantiser: Quantiser, codes: np.ndarray) -> None:
        from jaxwhiten.search import jax_kernels

        super().__init__(options, prepare, quantiser, codes)
        self._kernels: Any = jax_kernels
        self._mesh = jax_kernels.local_mesh()
        self._place()

    def _place(self) -> None:
        center = self.quantiser.center
        self._documents = self._kernels.place_codes(self._mesh, self.codes, self.quantiser.centroids, *center)

    def add(self, vectors: np.ndarray) -> None:
        super().add(vectors)
        self._place()

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        super().remove(gone, keep)
        self._place()

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        prepared_queries, products = self.quantiser.asked(self._units(queries, prepared))
        if among is not None:
            return self._best_of(prepared_queries, products, among, k)
        scores = np.empty((len(prepared_queries), k), np.float32)
        rows = np.empty((len(prepared_queries), k), np.int64)
        certain = np.empty(len(prepared_queries), bool)
        for part, results in self._batches(self._kernels.search_codes, prepared_queries, products, k):
            scores[part], rows[part], certain[part] = results
        if not certain.all():
            unsure = np.flatnonzero(~certain)
            for part, results in self._batches(
                self._kernels.search_codes_surely, prepared_queries[unsure], products[unsure], k
            ):
                scores[unsure[part]], rows[unsure[part]] = results[:2]
        return scores, rows

    def _batches(self, search: Any, asked: np.ndarray, products: np.ndarray, k: int) -> Any:
        """The results of a search, batch by batch, each dispatched before the last one is fetched."""
        batch = min(_MAX_BATCH, _power_of_two(2 * len(asked) - 1))

        def dispatch(part: slice) -> tuple[slice, AnyArray]:
            return part, search(self._documents, pad_rows(asked[part], batch), pad_rows(products[part], batch), k)

        for part, batches in one_ahead(map(dispatch, blocks(len(asked), batch))):
            yield part, [np.asarray(array)[: part.stop - part.start] for array in batches]


def _stored(vectors: Rows, prepare: Affine, centroids: np.ndarray | None) -> np.ndarray:
    """The stored form of raw vectors: whitened vectors, or their codes."""
    columns, dtype = (prepare.outputs, np.float32) if centroids is None else (len(centroids), np.uint8)
    out = np.empty((len(vectors), columns), dtype)
    coder = None if centroids is None else apart(centroids)
    for part, x in prepared(vectors, prepare):
        if coder is None:
            out[part] = x
        else:
            out[part] = nearest_on_cores(x, coder)
    return out


def _power_of_two(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)
