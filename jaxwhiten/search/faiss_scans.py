"""Scans of codes by FAISS, of all documents or of inverted lists.

Codes of half bytes are scanned fast: distances are looked up in registers and rounded to a byte.

References:
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import Quantiser
from jaxwhiten.runtime import hardware
from jaxwhiten.search.header import LISTS
from jaxwhiten.search.prepare import BLOCK_ROWS
from jaxwhiten.shapes import Float32, Int, UInt8
from jaxwhiten.typing import FaissObject

_LONG = 64  # bytes of a code


class FlatScan:
    """A scan of all codes; those of half bytes are scanned fast, with distances rounded to a byte."""

    selects = False

    def __init__(self, faiss: ModuleType, quantiser: Quantiser, codes: UInt8[np.ndarray, "n bytes"]) -> None:
        self._faiss = faiss
        self._quantiser = quantiser
        self._index = self._of(codes)

    def _of(self, codes: np.ndarray) -> FaissObject:
        index = self._quantiser.empty_pq()
        index.add_sa_codes(np.ascontiguousarray(codes))
        if self._quantiser.bits == 4:
            return _fast(self._faiss, index)
        return index

    def search(self, points: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = self._index.search(points, k)
        return distances, rows

    def add(self, codes: np.ndarray) -> None:
        if self._quantiser.bits == 4:
            self._index.add(self._quantiser.coordinates(codes))
        else:
            self._index.add_sa_codes(codes)

    def remove(self, gone: np.ndarray, keep: np.ndarray, codes: np.ndarray) -> None:
        self._index = self._of(codes)

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return {}

    def tensors(self) -> dict[str, np.ndarray]:
        return {}


class ListScan:
    """A scan of the inverted lists whose centers are nearest; each document is in the list of its decoded vector."""

    selects = True

    def __init__(
        self,
        faiss: ModuleType,
        quantiser: Quantiser,
        codes: UInt8[np.ndarray, "n bytes"],
        centers: Float32[np.ndarray, "lists c"],
        numbers: Int[np.ndarray, " n"] | None,
        nprobe: int,
    ) -> None:
        """`numbers` are the lists of codes; None finds them."""
        self._faiss = faiss
        self._quantiser = quantiser
        self._nprobe = nprobe
        self._centers = faiss.IndexFlatL2(centers.shape[1])
        self._centers.add(centers)
        if numbers is None:
            self._numbers = self._nearest(codes)
        else:
            self._numbers = numbers
        self._index = self._of(codes, self._numbers)

    def _nearest(self, codes: np.ndarray) -> Int[np.ndarray, " n"]:
        """The list of each code."""
        numbers = np.empty(len(codes), np.int32)
        with matrix_products(self._faiss):
            for part in blocks(len(codes), BLOCK_ROWS):
                numbers[part] = self._centers.search(self._quantiser.coordinates(codes[part]), 1)[1][:, 0]
        return numbers

    def _of(self, codes: np.ndarray, numbers: np.ndarray) -> FaissObject:
        faiss = self._faiss
        nlist = self._centers.ntotal
        count, _, width = self._quantiser.centroids.shape
        index = faiss.IndexIVFPQ(self._centers, count * width, nlist, count, self._quantiser.bits, faiss.METRIC_L2)
        index.by_residual = False
        self._quantiser.fill(index.pq)
        index.is_trained = True
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=nlist))
        for number, rows in enumerate(np.split(order, ends[:-1])):
            if len(rows):
                listed = np.ascontiguousarray(codes[rows])
                index.invlists.add_entries(number, len(rows), faiss.swig_ptr(rows), faiss.swig_ptr(listed))
        index.ntotal = len(codes)
        if self._quantiser.bits == 4:
            index = faiss.IndexIVFPQFastScan(index)
        index.nprobe = self._nprobe
        return index

    @property
    def nprobe(self) -> int:
        """The number of lists that a query searches."""
        return int(self._index.nprobe)

    @nprobe.setter
    def nprobe(self, count: int) -> None:
        self._index.nprobe = self._nprobe = count

    def search(self, points: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        params = None
        if among is not None:  # all lists, so that the result is exact
            params = self._faiss.SearchParametersIVF(sel=self._faiss.IDSelectorBatch(among), nprobe=self._index.nlist)
        distances, rows = self._index.search(points, k, params=params)
        return distances, rows

    def add(self, codes: np.ndarray) -> None:
        numbers = self._nearest(codes)
        self._index.merge_from(self._of(codes, numbers), self._index.ntotal)
        self._numbers = np.concatenate([self._numbers, numbers])

    def remove(self, gone: np.ndarray, keep: np.ndarray, codes: np.ndarray) -> None:
        self._index.remove_ids(gone)
        renumber(self._faiss, self._index, keep)
        self._numbers = self._numbers[keep]

    @property
    def rows(self) -> dict[str, np.ndarray]:
        return {LISTS: self._numbers}

    def tensors(self) -> dict[str, np.ndarray]:
        size = self._centers.ntotal
        centers = self._faiss.rev_swig_ptr(self._centers.get_xb(), size * self._centers.d)
        return {"centers": centers.reshape(size, -1)}


def renumber(faiss: ModuleType, index: FaissObject, keep: np.ndarray) -> None:
    """Numbers the rows in inverted lists anew after a removal, which leaves them as they were before it."""
    lists = faiss.extract_index_ivf(index).invlists
    for number in range(lists.nlist):
        if size := lists.list_size(number):
            rows = faiss.rev_swig_ptr(lists.get_ids(number), size)
            rows[:] = np.searchsorted(keep, rows)


def _fast(faiss: ModuleType, index: FaissObject) -> FaissObject:
    """The fast scan of an `IndexPQ`, of so many codes and queries at a time as was measured to be fastest.

    FAISS 1.15 takes 32 codes and up to 4 queries. With AVX-512, one query takes .87 of the time in blocks of 64 codes,
    and many .77, on Zen 4, which has no AVX-VNNI. On Zen 5, which has it, one takes .65 where a code has 64 bytes or
    more, but 1.25 where it has fewer, and many 1.2 to 1.4. With AVX2, many take .8 by twos. FAISS merges and removes
    blocks of 32 only.
    """
    level = faiss.SIMDConfig.get_level_name() if hasattr(faiss, "SIMDConfig") else ""
    short = index.pq.code_size < _LONG and "avx_vnni" in hardware.cpu_features()
    blocks_of_64 = level.startswith("AVX512") and not short
    fast = faiss.IndexPQFastScan(index, 64 if blocks_of_64 else 32)
    if level == "AVX2":
        fast.qbs = 0x2222
    return fast


@contextlib.contextmanager
def matrix_products(faiss: ModuleType) -> Iterator[None]:
    """Computes distances by matrix products; below 128,000 values FAISS 1.15 avoids them, at ten times the time."""
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = min(20, before)
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before
