"""Search of codes in inverted lists by FAISS, of which those with the nearest centers are scanned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import Quantizer
from jaxwhiten.codes.code import import_faiss
from jaxwhiten.io import within
from jaxwhiten.options import bounded
from jaxwhiten.runtime import hardware
from jaxwhiten.search.faiss import FaissCodes
from jaxwhiten.search.header import CODES, LISTS
from jaxwhiten.search.prepare import BLOCK_ROWS, Coding, Rows
from jaxwhiten.search.store import Arrays, Backend, Chosen
from jaxwhiten.types import Float32, UInt8

# k-means needs this many vectors per cluster; with fewer FAISS warns, with fewer vectors than clusters it fails.
_MIN_POINTS = 39
_MAX_POINTS = 256  # and samples so many; with more FAISS does
RECALL = 0.98  # recall@10 of documents in inverted lists against all lists; that of queries is lower
_SEED = 1234
_SAMPLE = 256  # documents that are searched for to choose nprobe


@dataclass
class IvfOptions:
    """Options of inverted lists; 0 chooses a number when the index is built."""

    nlist: int = bounded(0, 0, 1 << 20)  # by default four times the root of the number of documents
    nprobe: int = bounded(0, 0, 1 << 20)  # lists that a query searches; by default the fewest for `RECALL`


class ListCodes(FaissCodes):
    """Codes in inverted lists; each document is in the list whose center is nearest to its decoded vector."""

    selects = True

    @classmethod
    def kept(cls, vectors: Rows, coding: Coding) -> Arrays:
        arrays = super().kept(vectors, coding)
        return {**arrays, LISTS: _nearest(arrays[CODES], coding)}

    @classmethod
    def build(
        cls, vectors: Rows, options: IvfOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> ListCodes:
        codes = super().kept(vectors, coding)[CODES] if stored is None else np.array(stored)
        notes = list[str]()
        requested = options.nprobe
        fits = coding.centers is None
        if fits:
            assert coding.quantizer is not None
            notes = fit_options(options, len(codes))
            coding = coding._replace(centers=_centers(coding.quantizer, codes, options))
        store = cls(options, coding, {CODES: codes, LISTS: _nearest(codes, coding)})
        if fits and requested == 0:
            notes.append(_choose_nprobe(store, vectors))
        store.notes = notes
        return store

    @classmethod
    def read(cls, arrays: Arrays, options: IvfOptions, coding: Coding) -> Any:
        within("nlist and nprobe", (options.nlist, options.nprobe), 1)  # 0 is chosen when an index is built
        if coding.centers is None or len(coding.centers) != options.nlist:
            raise ValueError(f"expected {options.nlist} centers of lists")
        within("lists of documents", arrays[LISTS], 0, options.nlist - 1)
        return super().read(arrays, options, coding)

    def _rows_of_part(self, rows: int) -> int:
        return rows  # to find the nearest lists takes longer than to scan them

    def _part(self, rows: slice) -> Any:
        faiss = import_faiss()
        quantizer, centers = self.quantizer, self.coding.centers
        assert centers is not None
        lists = faiss.IndexFlatL2(quantizer.width)
        lists.add(centers)
        index = faiss.IndexIVFPQ(
            lists, quantizer.width, len(centers), len(quantizer.centroids), quantizer.bits, faiss.METRIC_L2
        )
        index.by_residual = False
        quantizer.fill(index.pq)
        index.is_trained = True
        numbers = self.arrays[LISTS][rows].astype("<u4")[:, None].view(np.uint8)[:, : index.coarse_code_size()]
        ids = np.arange(rows.start, rows.stop)
        index.add_sa_codes(np.concatenate([numbers, self.codes[rows]], axis=1), ids)
        return faiss.IndexIVFPQFastScan(index) if quantizer.bits == 4 else index

    def params(self, among: Chosen) -> Any:
        faiss = import_faiss()
        if among is None:
            return faiss.SearchParametersIVF(nprobe=self.options.nprobe)
        # all lists, so that the result is exact
        return faiss.SearchParametersIVF(sel=faiss.IDSelectorBatch(among), nprobe=self.options.nlist)


def _nearest(codes: UInt8[np.ndarray, "n bytes"], coding: Coding) -> Any:
    """The list of each code."""
    assert coding.quantizer is not None
    numbers = np.empty(len(codes), np.int32)
    with hardware.faiss_products():
        for part in blocks(len(codes), BLOCK_ROWS):
            points = coding.quantizer.coordinates(codes[part])
            numbers[part] = import_faiss().knn(points, coding.centers, 1)[1][:, 0]
    return numbers


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
    return notes


def _centers(quantizer: Quantizer, codes: np.ndarray, options: IvfOptions) -> Float32[np.ndarray, "lists c"]:
    """The centers of lists, by k-means of decoded vectors."""
    sample = np.sort(np.random.default_rng(_SEED).permutation(len(codes))[: options.nlist * _MAX_POINTS])
    clusters = import_faiss().Kmeans(quantizer.width, options.nlist, seed=_SEED)
    with hardware.faiss_products():
        clusters.train(quantizer.coordinates(codes[sample]))
    centers: np.ndarray = clusters.centroids
    return centers


def _choose_nprobe(store: ListCodes, vectors: Rows) -> str:
    """Sets the fewest lists with which a sample of the documents finds its neighbors; a note for the user."""
    options = store.options
    n = len(vectors)
    rows = np.sort(np.random.default_rng(_SEED).permutation(n)[:_SAMPLE])
    queries = np.ascontiguousarray(vectors[rows], np.float32)
    k = min(11, n)  # with the document itself
    options.nprobe = options.nlist
    expected = store.search(queries, k)[1]

    def recall(nprobe: int) -> float:
        options.nprobe = nprobe
        pairs = zip(store.search(queries, k)[1], expected, rows, strict=True)
        return float(np.mean([len({*a} & {*b} - {row, -1}) for a, b, row in pairs])) / max(1, k - 1)

    nprobe = 1
    while (reached := recall(nprobe)) < RECALL and nprobe < options.nlist:
        nprobe = min(2 * nprobe, options.nlist)
    return f"nprobe={nprobe} of {options.nlist} lists: recall@10 {reached:.3f} for {len(rows)} of the documents."


IVF = Backend("faiss-ivf", ListCodes, options=IvfOptions, check_installed=import_faiss)
