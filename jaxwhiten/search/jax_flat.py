"""Exact search in JAX, with documents sharded over all local devices; also for TPU, where FAISS does not run.

The exact top-k has two stages: the maximum of every tile of scores, then the k best among the k tiles with the highest
maxima, which must contain them. The sort, more expensive on CPU than the product, thus sees few values. Ties go to the
lower id. Codes stay on the devices as bytes; the cosines of the best tiles are computed in float32. If the scores of a
batch exceed the CPU's cache, only the maxima of tiles are kept, and the k best tiles are scored again.

References:
  Chern et al. 2022, "TPU-KNN: K nearest neighbor search at peak FLOP/s" (`approximate=True`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxwhiten.arrays import block_rows, blocks, one_ahead, pad_rows
from jaxwhiten.codes import Quantiser
from jaxwhiten.options import bounded
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend
from jaxwhiten.search.codes import CodedStore
from jaxwhiten.search.header import VECTORS
from jaxwhiten.search.store import Arrays, FloatStore, Store
from jaxwhiten.types import AnyArray, Int64
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


class JaxFloats(FloatStore):
    """Vectors on the devices, searched by matrix product; on unit vectors the inner product is the cosine."""

    def __init__(self, options: JaxOptions, prepare: Affine, vectors: np.ndarray) -> None:
        from jaxwhiten.search import jax_kernels

        Store.__init__(self, options, prepare, len(vectors))

        self._kernels: Any = jax_kernels
        self._mesh = jax_kernels.local_mesh()
        self._platform = self._mesh.devices.flat[0].platform
        self._documents = jax_kernels.sharded(self._mesh, vectors)
        self._rows = len(self._documents) // self._mesh.size

    @property
    def vectors(self) -> np.ndarray:  # type: ignore[override]
        return np.asarray(self._documents)[: self.size]

    def extended(self, arrays: Arrays) -> JaxFloats:
        vectors = np.concatenate([self.vectors, arrays[VECTORS]])
        return type(self)(self.options, self.prepare, vectors)

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        if among is not None:
            scores = np.full((len(queries), k), -np.inf, np.float32)
            rows = np.full((len(queries), k), -1, np.int64)
            count = min(k, len(among))
            scores[:, :count], places = self.taken(among).search(queries, count, prepared)
            rows[:, :count] = among[places]
            return scores, rows
        batch, block = self._batch_and_block(len(queries), k)
        queries = self.mapped(queries, prepared)
        recall_target = float(self.options.recall_target) if self.options.approximate else None
        run = self._kernels.searcher(self._mesh, k, block, recall_target)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)

        def dispatch(part: slice) -> tuple[slice, AnyArray, AnyArray]:
            return part, *run(pad_rows(queries[part], batch), self._documents, self.size)

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


class JaxCodes(CodedStore):
    """Codes on the devices, searched by the exact cosine; a search among chosen rows is made on the host."""

    def __init__(self, options: JaxOptions, prepare: Affine, quantiser: Quantiser, codes: np.ndarray) -> None:
        from jaxwhiten.search import jax_kernels

        super().__init__(options, prepare, quantiser, codes)
        self._kernels: Any = jax_kernels
        mesh = jax_kernels.local_mesh()
        self._documents = jax_kernels.place_codes(mesh, codes, quantiser.centroids, *quantiser.center)

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        check_process()
        prepared_queries, products = self.quantiser.asked(self.units(queries, prepared))
        if among is not None:
            return self.best_of(prepared_queries, products, among, k)
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


def _power_of_two(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


class Jax(Backend):
    """Exact search on JAX's devices."""

    name = "jax"
    Options = JaxOptions
    floats = JaxFloats
    codes = JaxCodes
