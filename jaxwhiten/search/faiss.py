"""The backends of FAISS.

References:
  Johnson, Douze & Jégou 2019, "Billion-scale similarity search with GPUs".
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import Quantizer
from jaxwhiten.codes.code import import_faiss
from jaxwhiten.io import take, within
from jaxwhiten.options import bounded
from jaxwhiten.runtime import hardware
from jaxwhiten.search.backend import Backend
from jaxwhiten.search.codes import CodedStore, coded, first, read_codes
from jaxwhiten.search.faiss_scans import FlatScan, ListScan
from jaxwhiten.search.header import CODES, LISTS, Header
from jaxwhiten.search.prepare import Coding, Rows
from jaxwhiten.search.store import Arrays, BackendOptions, FloatStore
from jaxwhiten.store import appended
from jaxwhiten.types import Float32, Int64, UInt8
from jaxwhiten.whitening.affine import Affine

# k-means needs this many vectors per cluster; with fewer FAISS warns, with fewer vectors than clusters it fails.
_MIN_POINTS = 39
RECALL = 0.98  # recall@10 of documents in inverted lists against all lists; that of queries is lower
_SAMPLE = 256  # documents that are searched for to choose nprobe
# candidates of a scan for each result, and at least
WIDER = 4
LEAST = 64
_TABLE_BYTES = 1 << 20  # of queries' tables at a time, which stay in the cache
_ALONE = 64 << 20  # bytes of codes that are scanned in less time than other threads take to start
_TABLES = 256 << 10  # bytes of codes that are scanned while the tables of a query are made


@dataclass
class IvfOptions:
    """Options of inverted lists; 0 chooses a number when the index is built."""

    nlist: int = bounded(0, 0, 1 << 20)  # by default four times the root of the number of documents
    nprobe: int = bounded(0, 0, 1 << 20)  # lists that a query searches; by default the fewest for `RECALL`
    max_points_per_centroid: int = bounded(256, 1, 1 << 20)  # vectors per list that k-means samples
    seed: int = bounded(1234, 1, 2**31 - 1)  # of k-means


class FaissFloats(FloatStore):
    """Vectors that are compared by inner product, the cosine of unit vectors."""

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        faiss = import_faiss()
        if len(queries) > 1:
            hardware.check_process()
        x = self.mapped(queries, prepared)
        scores = np.empty((len(x), k), np.float32)
        rows = np.empty((len(x), k), np.int64)
        selector = None if among is None else faiss.IDSelectorBatch(among)
        sizes = (self.vectors.shape[1], len(x), len(self.vectors), k)
        inputs, results = (map(faiss.swig_ptr, arrays) for arrays in ((x, self.vectors), (scores, rows)))
        with hardware.faiss_on_one_thread() if len(x) == 1 else contextlib.nullcontext():
            faiss.knn_inner_product(*inputs, *sizes, *results, selector)
        return scores, rows


class FaissCodes(CodedStore):
    """Codes that are found by a scan, and ordered by the cosines of the decoded vectors."""

    def __init__(
        self,
        options: BackendOptions,
        prepare: Affine,
        quantizer: Quantizer,
        codes: np.ndarray,
        scan: FlatScan | None = None,
    ) -> None:
        super().__init__(options, prepare, quantizer, codes)
        self.scan = scan or FlatScan(quantizer, codes)

    def extended(self, arrays: Arrays) -> FaissCodes:
        codes = appended(self.codes, arrays[CODES])
        return type(self)(self.options, self.prepare, self.quantizer, codes, self.scan.extended(codes, arrays))

    def taken(self, positions: np.ndarray) -> FaissCodes:
        codes = self.codes[positions]
        return type(self)(self.options, self.prepare, self.quantizer, codes, self.scan.taken(codes, positions))

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each core searches a share of the queries: threads of BLAS and of FAISS would wait for each other's."""
        units = self.units(queries, prepared)
        count = hardware.cores()
        if len(queries) * (self.codes.nbytes + _TABLES) < _ALONE:
            count = 1
        parts = blocks(len(queries), max(1, -(-len(queries) // count)))

        def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
            with hardware.faiss_on_one_thread():
                return self._search(units[part], k, among)

        results = hardware.on_threads(search, list(parts))
        if len(results) == 1:
            return results[0]
        return np.concatenate([scores for scores, _ in results]), np.concatenate([rows for _, rows in results])

    def _search(
        self, units: np.ndarray, k: int, among: Int64[np.ndarray, " m"] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`search` for mapped queries of unit length, on the calling thread."""
        asked, products = self.quantizer.asked(units)
        wide = min(len(self.codes), max(WIDER * k, LEAST))
        points = self.quantizer.scanned(asked)
        if among is None or self.scan.selects:
            return self._best(asked, products, self.scan.search(points, wide, among), k)
        deep = 2 * wide * -(-len(self.codes) // max(1, len(among)))
        if len(among) <= deep:
            return self.best_of(asked, products, among, k)
        inside = np.zeros(len(self.codes) + 1, bool)  # the last for a missing row
        inside[among] = True
        candidates = self.scan.search(points, deep)
        candidates[~inside[candidates]] = -1
        scores, rows = self._best(asked, products, candidates, k)
        short = rows[:, -1] < 0
        if short.any():
            scores[short], rows[short] = self.best_of(asked[short], products[short], among, k)
        return scores, rows

    def _best(
        self, asked: np.ndarray, products: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k candidates of each query with the highest cosines; ties go to the lower row."""
        scores = np.empty((len(asked), k), np.float32)
        rows = np.empty((len(asked), k), np.int64)
        # so few queries at a time that their tables stay in the cache
        for part in blocks(len(asked), max(1, _TABLE_BYTES // (4 * 256 * self.quantizer.nbytes))):
            numbers = np.sort(candidates[part], axis=1)
            missing = numbers[:, 0].min() < 0
            codes = self.codes[np.maximum(numbers, 0) if missing else numbers]
            cosines = self.quantizer.cosines(asked[part], products[part], codes)
            if missing:
                cosines[numbers < 0] = -np.inf
            scores[part], rows[part] = first(cosines, numbers, k)
        return scores, rows


class ListCodes(FaissCodes):
    """Codes in inverted lists, of which those with the nearest centers are scanned."""

    scan: ListScan

    @classmethod
    def build(
        cls, vectors: Rows, options: IvfOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> ListCodes:
        prepare, quantizer = coding.prepare, coding.quantizer
        assert quantizer is not None
        codes = coded(vectors, prepare, quantizer) if stored is None else np.array(stored)
        if coding.centers is not None:
            return cls(options, prepare, quantizer, codes, ListScan(quantizer, codes, options, coding.centers))
        requested = options.nprobe
        notes = fit_options(options, len(codes))
        scan = ListScan(quantizer, codes, options, _centers(quantizer, codes, options))
        store = cls(options, prepare, quantizer, codes, scan)
        if requested == 0:
            notes.append(_choose_nprobe(store, vectors))
        store.notes = notes
        return store

    @classmethod
    def read(
        cls, arrays: Arrays, prepare: Affine, tensors: Mapping[str, np.ndarray], options: IvfOptions, header: Header
    ) -> ListCodes:
        within("nlist and nprobe", (options.nlist, options.nprobe), 1)  # 0 is chosen when an index is built
        quantizer, codes = read_codes(arrays, prepare, tensors, header)
        [centers] = take(tensors, "float32", centers=(options.nlist, quantizer.width))
        [numbers] = take({"lists": arrays[LISTS]}, "int32", lists=(len(codes),))
        within("lists of documents", numbers, 0, options.nlist - 1)
        scan = ListScan(quantizer, codes, options, centers, numbers)
        return cls(options, prepare, quantizer, codes, scan)

    @property
    def arrays(self) -> Arrays:
        return {**super().arrays, LISTS: self.scan.numbers}

    def stored(self, vectors: Rows) -> Arrays:
        arrays = super().stored(vectors)
        return {**arrays, LISTS: self.scan.nearest(arrays[CODES])}

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        return {**super().tensors, "centers": self.scan.centers}

    @property
    def coding(self) -> Coding:
        return Coding(self.prepare, self.quantizer, centers=self.scan.centers)


def fit_options(options: IvfOptions, n: int) -> list[str]:
    """Sets the options that are 0, and lowers those that n vectors do not allow; notes for the user."""
    notes = list[str]()
    if options.nlist == 0:
        options.nlist = max(1, min(int(4 * n**0.5), n // _MIN_POINTS))

    def lower(name: str, most: int, reason: str) -> None:
        if (value := getattr(options, name)) > most:
            setattr(options, name, most)
            notes.append(f"{name} lowered from {value} to {most} for {n} documents ({reason}).")

    lower("nlist", max(1, n // _MIN_POINTS), f"{_MIN_POINTS} vectors per list")
    lower("nprobe", options.nlist, "nlist")
    options.nprobe = options.nprobe or options.nlist  # lowered once the lists are there
    if n > (limit := options.nlist * options.max_points_per_centroid):  # FAISS does not say this itself
        notes.append(
            f"k-means of the inverted lists: FAISS samples {limit} of the {n} vectors"
            f" ({options.max_points_per_centroid} per list); max_points_per_centroid raises it."
        )
    return notes


def _centers(quantizer: Quantizer, codes: np.ndarray, options: IvfOptions) -> Float32[np.ndarray, "lists c"]:
    """The centers of lists, by k-means of decoded vectors."""
    most = options.nlist * options.max_points_per_centroid
    sample = np.sort(np.random.default_rng(options.seed).permutation(len(codes))[:most])
    settings = {"seed": options.seed, "max_points_per_centroid": options.max_points_per_centroid}
    clusters = import_faiss().Kmeans(quantizer.width, options.nlist, **settings)
    with hardware.faiss_products():
        clusters.train(quantizer.coordinates(codes[sample]))
    centers: np.ndarray = clusters.centroids
    return centers


def _choose_nprobe(store: ListCodes, vectors: Rows) -> str:
    """Sets the fewest lists with which a sample of the documents finds its neighbors; a note for the user."""
    options = store.options
    n = len(vectors)
    rows = np.sort(np.random.default_rng(options.seed).permutation(n)[:_SAMPLE])
    queries = np.ascontiguousarray(vectors[rows], np.float32)
    k = min(11, n)  # with the document itself
    options.nprobe = options.nlist
    expected = store.search(queries, k, False)[1]

    def recall(nprobe: int) -> float:
        options.nprobe = nprobe
        pairs = zip(store.search(queries, k, False)[1], expected, rows, strict=True)
        return float(np.mean([len({*a} & {*b} - {row, -1}) for a, b, row in pairs])) / max(1, k - 1)

    nprobe = 1
    while (reached := recall(nprobe)) < RECALL and nprobe < options.nlist:
        nprobe = min(2 * nprobe, options.nlist)
    return f"nprobe={nprobe} of {options.nlist} lists: recall@10 {reached:.3f} for {len(rows)} of the documents."


class FaissFlat(Backend):
    """Search of all documents."""

    name = "faiss-flat"
    floats: ClassVar[type[FloatStore] | None] = FaissFloats
    codes: ClassVar[type[CodedStore]] = FaissCodes

    @classmethod
    def check_installed(cls) -> None:
        import_faiss(cls.name)


class FaissIvf(FaissFlat):
    """Search of inverted lists of codes."""

    name = "faiss-ivf"
    Options = IvfOptions
    floats = None
    codes = ListCodes
