"""Scans of codes by FAISS, of all documents or of inverted lists.

A scan ranks by rounded distances: it gives more candidates than results, whose cosines are computed from the codes.
Codes of half bytes are scanned fast: distances are looked up in registers and rounded to a byte.

References:
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC".
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import Quantizer
from jaxwhiten.codes.code import import_faiss
from jaxwhiten.runtime import hardware
from jaxwhiten.search.header import LISTS
from jaxwhiten.search.prepare import BLOCK_ROWS
from jaxwhiten.search.store import Arrays, BackendOptions
from jaxwhiten.store import appended
from jaxwhiten.types import Float32, Int, Int64, UInt8


class FlatScan:
    """A scan of all codes by the Euclidean distance in coordinates.

    The codes are in one or more indexes of FAISS, its parts, none of which is ever changed: lists that FAISS merges
    into others lose their bounds, and a search may go on meanwhile.
    """

    selects = False  # whether it can search among some rows

    def __init__(self, quantizer: Quantizer, codes: UInt8[np.ndarray, "n bytes"]) -> None:
        self._quantizer = quantizer
        self._parts = [self._part(codes, 0)]

    def _part(self, codes: UInt8[np.ndarray, "m bytes"], first: int) -> Any:
        """An index of the codes of rows from `first` on."""
        index = self._quantizer.empty_pq()
        index.add_sa_codes(np.ascontiguousarray(codes))
        # In blocks of 32 codes, on Sapphire Rapids faster than 64 for many queries and as fast for one; on Zen slower.
        return import_faiss().IndexPQFastScan(index, 32) if self._quantizer.bits == 4 else index

    def extended(self, codes: UInt8[np.ndarray, "l bytes"], arrays: Arrays) -> FlatScan:
        """The scan of these codes, which begin with its own; `arrays` are kept of the others."""
        scan = copy.copy(self)
        scan._parts = scan._grown(codes)
        return scan

    def _grown(self, codes: np.ndarray) -> list[Any]:
        """Its parts, and one of the codes that follow, together with those of the parts before that are not longer than
        twice as many. So parts become shorter from one to the next, and are few.
        """
        parts = list(self._parts)
        first = sum(part.ntotal for part in parts)
        new = len(codes) - first
        while parts and parts[-1].ntotal <= 2 * new:
            first -= parts.pop().ntotal
        return [*parts, self._part(codes[first:], first)]

    def taken(self, codes: UInt8[np.ndarray, "m bytes"], rows: Int64[np.ndarray, " m"]) -> FlatScan:
        """The scan of these rows, which have these codes."""
        return FlatScan(self._quantizer, codes)

    def search(
        self, points: Float32[np.ndarray, "q c"], k: int, among: Int64[np.ndarray, " m"] | None = None
    ) -> Int64[np.ndarray, "q k"]:
        """The nearest rows; −1 for a missing one."""
        start = 0
        distances = list[np.ndarray]()
        rows = list[np.ndarray]()
        for part in self._parts:
            end = start + part.ntotal
            here = None if among is None else among[slice(*np.searchsorted(among, [start, end]))] - start
            if here is None or len(here):
                far, near = part.search(points, k, params=self._params(part, here))
                near[near >= 0] += start
                distances.append(far)
                rows.append(near)
            start = end
        if len(rows) == 1:
            return rows[0]
        nearest = np.argpartition(np.concatenate(distances, axis=1), k - 1, axis=1)[:, :k]
        return np.take_along_axis(np.concatenate(rows, axis=1), nearest, axis=1)

    def _params(self, part: Any, among: np.ndarray | None) -> Any | None:
        """The parameters of a search of a part among some of its rows, or all."""
        return None


class ListScan(FlatScan):
    """A scan of the inverted lists whose centers are nearest; each document is in the list of its decoded vector.

    `options.nprobe` lists are searched for a query. `numbers` are the lists of codes; None finds them.
    """

    selects = True

    def __init__(
        self,
        quantizer: Quantizer,
        codes: UInt8[np.ndarray, "n bytes"],
        options: BackendOptions,
        centers: Float32[np.ndarray, "lists c"],
        numbers: Int[np.ndarray, " n"] | None = None,
    ) -> None:
        self._quantizer = quantizer
        self._options = options
        self.centers = centers
        self._lists = import_faiss().IndexFlatL2(centers.shape[1])
        self._lists.add(centers)
        self.numbers = self.nearest(codes) if numbers is None else numbers
        super().__init__(quantizer, codes)

    def nearest(self, codes: np.ndarray) -> Int[np.ndarray, " n"]:
        """The list of each code."""
        numbers = np.empty(len(codes), np.int32)
        with hardware.faiss_products():
            for part in blocks(len(codes), BLOCK_ROWS):
                numbers[part] = self._lists.search(self._quantizer.coordinates(codes[part]), 1)[1][:, 0]
        return numbers

    def _part(self, codes: np.ndarray, first: int) -> Any:
        faiss = import_faiss()
        numbers = self.numbers[first : first + len(codes)]
        count, _, width = self._quantizer.centroids.shape
        nlist = len(self.centers)
        index = faiss.IndexIVFPQ(self._lists, count * width, nlist, count, self._quantizer.bits, faiss.METRIC_L2)
        index.by_residual = False
        self._quantizer.fill(index.pq)
        index.is_trained = True
        lists = numbers.astype("<u4")[:, None].view(np.uint8)[:, : index.coarse_code_size()]
        index.add_sa_codes(np.concatenate([lists, codes], axis=1))
        return faiss.IndexIVFPQFastScan(index) if self._quantizer.bits == 4 else index

    def extended(self, codes: np.ndarray, arrays: Arrays) -> ListScan:
        scan = copy.copy(self)
        scan.numbers = appended(self.numbers, arrays[LISTS])
        scan._parts = scan._grown(codes)
        return scan

    def taken(self, codes: np.ndarray, rows: np.ndarray) -> ListScan:
        return ListScan(self._quantizer, codes, self._options, self.centers, self.numbers[rows])

    def _params(self, part: Any, among: np.ndarray | None) -> Any | None:
        faiss = import_faiss()
        if among is None:
            part.nprobe = self._options.nprobe  # takes less time than parameters
            return None
        # all lists, so that the result is exact
        return faiss.SearchParametersIVF(sel=faiss.IDSelectorBatch(among), nprobe=len(self.centers))
