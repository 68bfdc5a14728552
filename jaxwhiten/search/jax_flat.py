"""Exact search in JAX, with documents spread over all local devices; also for TPU, where FAISS does not run.

Only the best of each block of documents are kept. Codes stay on the devices as bytes, and are decoded block by block;
the cosines of the best candidates are computed in float32. Ties go to the lower row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks, one_ahead, pad_rows
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.header import VECTORS
from jaxwhiten.search.prepare import Coding
from jaxwhiten.search.store import Arrays, Backend, BackendOptions, Chosen, CodedStore, FloatStore, Ranking, unranked
from jaxwhiten.types import AnyArray, Float32

_BATCH = 1024  # queries


class JaxFloats(FloatStore):
    """Vectors on the devices, searched by matrix product; on unit vectors the inner product is the cosine."""

    def __init__(self, options: BackendOptions, coding: Coding, arrays: Arrays, before: Any = None) -> None:
        from jaxwhiten.search import jax_kernels

        super().__init__(options, coding, arrays)
        self._mesh = jax_kernels.local_mesh()
        self._documents = jax_kernels.Floats(jax_kernels.sharded(self._mesh, arrays[VECTORS]))
        self._arrays = {}  # the devices have them

    @property
    def arrays(self) -> Arrays:
        return {VECTORS: np.asarray(self._documents.rows)[: self.size]}

    def search(self, queries: np.ndarray, k: int, among: Chosen = None) -> Ranking:
        check_process()
        if among is None:
            return _search(self._mesh, self._documents, self.size, self.mapped(queries), k)
        scores, rows = unranked(len(queries), k)
        count = min(k, len(among))
        scores[:, :count], places = self.taken(among).search(queries, count)
        rows[:, :count] = among[places]
        return scores, rows


class JaxCodes(CodedStore):
    """Codes on the devices, searched by the exact cosine; a search among chosen rows is made on the host."""

    def __init__(self, options: BackendOptions, coding: Coding, arrays: Arrays, before: Any = None) -> None:
        from jaxwhiten.search import jax_kernels

        super().__init__(options, coding, arrays)
        self._mesh = jax_kernels.local_mesh()
        self._documents = jax_kernels.place_codes(self._mesh, self.codes, self.quantizer)

    def search(self, queries: np.ndarray, k: int, among: Chosen = None) -> Ranking:
        check_process()
        asked, products = self.quantizer.query_coordinates(self.units(queries))
        if among is not None:
            return self.best_of(asked, products, among, k)
        queries = np.concatenate([asked, products[:, None]], axis=1)
        return _search(self._mesh, self._documents, self.size, queries, k)


def _search(mesh: Any, documents: Any, size: int, queries: Float32[np.ndarray, "q c"], k: int) -> Ranking:
    """The results of a compiled search, batch by batch, each dispatched before the last one is fetched.

    Batches are padded to powers of two, so that few programs are compiled.
    """
    from jaxwhiten.search.jax_kernels import searcher

    run = searcher(mesh, k)
    batch = min(_BATCH, 1 << (len(queries) - 1).bit_length())
    scores, rows = unranked(len(queries), k)

    def dispatch(part: slice) -> tuple[slice, AnyArray]:
        return part, run(pad_rows(queries[part], batch), documents, np.int32(size))

    for part, (values, numbers) in one_ahead(map(dispatch, blocks(len(queries), batch))):
        scores[part] = np.asarray(values)[: part.stop - part.start]
        rows[part] = np.asarray(numbers)[: part.stop - part.start]
    return scores, rows


JAX = Backend("jax", JaxCodes, JaxFloats)
