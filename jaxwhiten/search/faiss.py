"""Search of all documents by FAISS, in vectors or in codes.

A scan of codes ranks by rounded distances: it gives more candidates than results, whose cosines are computed from the
codes. Codes of half bytes are scanned fast: distances are looked up in registers and rounded to a byte. Of many codes
only the leading bytes are scanned, which have most of the variance, for more candidates.

References:
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC".
  Johnson, Douze & Jégou 2019, "Billion-scale similarity search with GPUs".
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes.code import Quantizer, import_faiss
from jaxwhiten.runtime import hardware
from jaxwhiten.search.header import VECTORS
from jaxwhiten.search.prepare import Coding
from jaxwhiten.search.store import (
    Arrays,
    Backend,
    BackendOptions,
    Chosen,
    CodedStore,
    FloatStore,
    Ranking,
    first,
    unranked,
)
from jaxwhiten.types import Int64

# candidates of a scan for each result, and at least
WIDER = 4
LEAST = 64
# those of a scan of leading bytes, which have this share of the variance
LEADING_WIDER = 16
LEADING_LEAST = 512
LEADING = 0.85
_SAVED = 4 << 20  # bytes of codes, at least, that each core need not scan: of fewer, more candidates cost more time
_TABLE_BYTES = 1 << 20  # of queries' tables at a time, which stay in the cache
_ALONE = 64 << 20  # bytes of codes that are scanned in less time than other threads take to start
_TABLES = 256 << 10  # bytes of codes that are scanned while the tables of a query are made
_SHARE = 8 << 20  # bytes of codes, at least, that a core scans for one query: of fewer, threads cost more time
_parallel = weakref.WeakSet["FaissCodes"]()  # those with threads that wait for a query


class FaissFloats(FloatStore):
    """Vectors that are compared by inner product, the cosine of unit vectors."""

    def search(self, queries: np.ndarray, k: int, among: Chosen = None) -> Ranking:
        faiss = import_faiss()
        if len(queries) > 1:
            hardware.check_process()
        x = self.mapped(queries)
        vectors = self.arrays[VECTORS]
        scores, rows = unranked(len(x), k)
        selector = None if among is None else faiss.IDSelectorBatch(among)
        sizes = (vectors.shape[1], len(x), len(vectors), k)
        inputs, results = (map(faiss.swig_ptr, arrays) for arrays in ((x, vectors), (scores, rows)))
        with hardware.faiss_on_one_thread() if len(x) == 1 else contextlib.nullcontext():
            faiss.knn_inner_product(*inputs, *sizes, *results, selector)
        return scores, rows


class FaissCodes(CodedStore):
    """Codes that are found by a scan, and ordered by the cosines of the decoded vectors.

    The codes are in indexes of FAISS, its parts, none of which is ever changed: lists that FAISS merges into others
    lose their bounds, and a search may go on meanwhile. A part is what a core scans for one query, or what was added.
    """

    selects = False  # whether a scan can be among some rows; its parts then number their rows themselves

    def __init__(
        self, options: BackendOptions, coding: Coding, arrays: Arrays, before: FaissCodes | None = None
    ) -> None:
        super().__init__(options, coding, arrays)
        self._scanned = self._leading()
        parts: list[Any] = []
        if before is not None and before._scanned.nbytes == self._scanned.nbytes:
            parts = [*before._parts]
        # New rows are a part with those of the parts before that are not longer than twice as many. So parts become
        # shorter from one to the next, and are few.
        start = sum(part.ntotal for part in parts)
        new = self.size - start
        while parts and parts[-1].ntotal <= 2 * new:
            start -= parts.pop().ntotal
        shares = range(start, self.size, self._rows_of_part(self.size - start))
        slices = [slice(first, min(self.size, first + shares.step)) for first in shares]
        self._parts: list[Any] = [*parts, *hardware.on_threads(self._part, slices)]
        self._in_turn = self._joined(threaded=False)
        self._at_once = self._in_turn
        if self.size * self._scanned.nbytes >= 2 * _SHARE and len(self._parts) > 1 and not self.selects:
            self._at_once = self._joined(threaded=True)
            _parallel.add(self)

    def _leading(self) -> Quantizer:
        """The quantizer of the bytes that a scan reads."""
        if self.selects:
            return self.quantizer
        leading = self.quantizer.leading(LEADING)
        saved = self.size * (self.quantizer.nbytes - leading.nbytes)
        return leading if saved >= _SAVED * hardware.cores() else self.quantizer

    def _rows_of_part(self, rows: int) -> int:
        """The rows of a part of new ones, of which each core gets one."""
        count = min(hardware.cores(), rows * self._scanned.nbytes // _SHARE)
        return max(1, -(-rows // max(1, count)))

    def _part(self, rows: slice) -> Any:
        """An index of the codes of rows."""
        index = self._scanned.empty_pq()
        index.add_sa_codes(np.ascontiguousarray(self.codes[rows, : self._scanned.nbytes]))
        # In blocks of 32 codes, on Sapphire Rapids faster than 64 for many queries and as fast for one; on Zen slower.
        return import_faiss().IndexPQFastScan(index, 32) if self.quantizer.bits == 4 else index

    def _joined(self, threaded: bool) -> Any:
        """The parts as one index, which are searched in turn or, `threaded`, each by its thread."""
        if len(self._parts) == 1:
            return self._parts[0]
        joined = import_faiss().IndexShards(self._parts[0].d, threaded, not self.selects)
        for part in self._parts:
            joined.add_shard(part)
        return joined

    def search(self, queries: np.ndarray, k: int, among: Chosen = None) -> Ranking:
        """Cores share the codes for a few queries, and queries if they are many.

        Threads of BLAS and of FAISS would wait for each other's.
        """
        units = self.units(queries)
        cores = hardware.cores()
        few = len(queries) < cores and self._at_once is not self._in_turn
        search = functools.partial(self._search, self._at_once if few else self._in_turn, k=k, among=among)
        if few:
            results = [search(query[None]) for query in units]
        else:
            count = 1 if len(queries) * (self.size * self._scanned.nbytes + _TABLES) < _ALONE else cores
            shares = blocks(len(queries), max(1, -(-len(queries) // count)))
            results = hardware.on_threads(search, [units[share] for share in shares])
        if len(results) == 1:
            return results[0]
        return np.concatenate([scores for scores, _ in results]), np.concatenate([rows for _, rows in results])

    def _search(self, scan: Any, units: np.ndarray, k: int, among: Chosen) -> Ranking:
        """`search` for mapped queries of unit length, on the calling thread."""
        asked, products = self.quantizer.query_coordinates(units)
        fewest = max(WIDER * k, LEAST)
        wide = fewest if self._scanned is self.quantizer else max(LEADING_WIDER * k, LEADING_LEAST)
        points = np.ascontiguousarray(self.quantizer.query_points(asked)[:, : self._scanned.width])
        if among is None or self.selects:
            with hardware.faiss_on_one_thread():
                candidates = scan.search(points, min(self.size, wide), params=self.params(among))[1]
            return self._best(asked, products, candidates, k)
        sparse = -(-self.size // max(1, len(among)))
        if len(among) <= 2 * fewest * sparse:
            return self.best_of(asked, products, among, k)
        inside = np.zeros(self.size + 1, bool)  # the last for a missing row
        inside[among] = True
        with hardware.faiss_on_one_thread():
            candidates = scan.search(points, min(self.size, max(2 * fewest, wide) * sparse))[1]
        candidates[~inside[candidates]] = -1
        scores, rows = self._best(asked, products, candidates, k)
        short = rows[:, -1] < 0
        if short.any():
            scores[short], rows[short] = self.best_of(asked[short], products[short], among, k)
        return scores, rows

    def params(self, among: Chosen) -> Any:
        """The parameters of a scan among some rows, or all, where it `selects`."""

    def _best(self, asked: np.ndarray, products: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int) -> Ranking:
        """The k candidates of each query with the highest cosines; ties go to the lower row."""
        scores, rows = unranked(len(asked), k)
        # so few queries at a time that their tables stay in the cache
        for part in blocks(len(asked), max(1, _TABLE_BYTES // (4 * 256 * self.quantizer.nbytes))):
            numbers = np.sort(candidates[part], axis=1)
            missing = numbers[:, 0].min() < 0
            if missing:  # those of all queries are left out
                numbers = numbers[:, min(numbers.shape[1] - k, int((numbers < 0).sum(axis=1).min())) :]
            codes = self.codes[np.maximum(numbers, 0) if missing else numbers]
            cosines = self.quantizer.cosines(asked[part], products[part], codes)
            if missing:
                cosines[numbers < 0] = -np.inf
            scores[part], rows[part] = first(cosines, numbers, k)
        return scores, rows


def _renew() -> None:
    """Starts threads in a forked process, which lacks them; FAISS would wait for their end."""
    for store in [*_parallel]:
        store._at_once.this.disown()
        store._at_once = store._joined(threaded=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

FLAT = Backend("faiss-flat", FaissCodes, FaissFloats, check_installed=import_faiss)
