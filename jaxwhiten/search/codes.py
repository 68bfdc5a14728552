"""Documents stored as codes: found by a scan, and ordered by the cosines of the decoded vectors.

A scan may rank by rounded distances. It gives more candidates than results, whose cosines are then computed from the
stored codes. The codes lie in one file, row by row, a memory map in a loaded index; the scan keeps its own copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Quantiser
from jaxwhiten.io import same, take
from jaxwhiten.runtime import hardware
from jaxwhiten.search.backend import BackendOptions, Store
from jaxwhiten.search.header import CODES, About, Files, Header
from jaxwhiten.search.prepare import Coding, Rows, cosines, prepared, read_map, stretched, write_map
from jaxwhiten.shapes import Float32, Int64, UInt8
from jaxwhiten.typing import IdsLike
from jaxwhiten.whitening.affine import Affine

TRANSFORM = "transform.safetensors"
NPY_HEADER = 128  # bytes of a `.npy` file before its values
# candidates of a scan for each result, and at least
WIDER = 4
LEAST = 64
_ROTATION = ("mean", "rotation", "offset")  # of a code
_EXACT_BYTES = 32 << 20  # decoded rows at a time
_TABLE_BYTES = 1 << 20  # of queries' tables at a time, which stay in the cache
_ALONE = 64 << 20  # bytes of codes that are scanned in less time than other threads take to start
_TABLES = 256 << 10  # bytes of codes that are scanned while the tables of a query are made
_FEW = 4096  # rows of a set whose cosines are computed without a scan


def coded(vectors: Rows, prepare: Affine, quantiser: Quantiser) -> UInt8[np.ndarray, "n bytes"]:
    """The codes of checked raw vectors, block by block."""
    codes = np.empty((len(vectors), quantiser.nbytes), np.uint8)
    for part, x in prepared(vectors, prepare):
        codes[part] = quantiser.quantise(quantiser.affine(x))
    return codes


def tensors_of(quantiser: Quantiser) -> dict[str, np.ndarray]:
    """A quantizer as named arrays, without its name and length, which are in the header of an index."""
    if quantiser.affine.matrix is None:
        return {"centroids": quantiser.centroids}
    return {"centroids": quantiser.centroids, **dict(zip(_ROTATION, quantiser.affine.parts, strict=True))}


def read_codes(files: Files, header: Header) -> tuple[Affine, Quantiser, UInt8[np.ndarray, "n bytes"]]:
    """The map of raw vectors, the quantizer, and the codes, as a memory map.

    ValueError or KeyError if they contradict the header.
    """
    assert header.codes is not None
    layout = header.codes
    [codes] = take({"codes": files.array(CODES)}, "uint8", codes=(header.size, layout["bytes"]))
    codes = np.asarray(codes)  # a subclass of arrays would cost time
    prepare, tensors = read_map(files.get(TRANSFORM), header.input_dimension, header.normalize, header.dimension)
    affine = Affine(np.zeros(header.dimension))
    width = header.dimension  # of codes of version 0.1, which have no rotation of their own
    if is_first_version(header) and "rotation" in tensors:
        raise ValueError("a rotation of codes, but no number of coordinates in the header")
    if not is_first_version(header):
        affine = Affine(*(tensors[name] for name in _ROTATION))
        width = layout["coordinates"]
    quantiser = Quantiser(layout["name"], affine, tensors["centroids"], float(layout["length"]))
    sizes = (quantiser.nbytes, quantiser.width, affine.inputs, affine.outputs)
    same("bytes and columns of the centroids", sizes, (layout["bytes"], width, header.dimension, width))
    if quantiser.bits not in (4, 8):
        raise ValueError(f"centroids of {quantiser.bits} bits")
    return prepare, quantiser, codes


def first(
    scores: Float32[np.ndarray, "q n"], rows: Int64[np.ndarray, "q n"], k: int
) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
    """The k highest scores and their rows, which ascend among equal scores."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    each = np.arange(len(best))[:, None]
    return scores[each, best], rows[each, best]


def is_first_version(index: About) -> bool:
    """Whether the codes of an index are those of version 0.1, whose scores are not cosines."""
    return index.codes is not None and "coordinates" not in index.codes


@runtime_checkable
class Scan(Protocol):
    """A search among codes by the Euclidean distance in coordinates, exact or rounded."""

    selects: bool  # whether it can search among some rows

    def search(
        self, points: Float32[np.ndarray, "q c"], k: int, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, Int64[np.ndarray, "q k"]]:
        """Squared distances, nearest first, and rows; −1 for a missing result."""

    def add(self, codes: UInt8[np.ndarray, "n bytes"]) -> None:
        """Appends codes."""

    def remove(
        self, gone: Int64[np.ndarray, " n"], keep: Int64[np.ndarray, " m"], codes: UInt8[np.ndarray, "m bytes"]
    ) -> None:
        """Removes rows, see `Backend.remove`; `codes` are those of the others."""

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """What it keeps of each document besides the codes, by the name of its file."""

    def tensors(self) -> dict[str, np.ndarray]:
        """What else it needs to be made from the codes again, as named arrays."""


class CodedStore(Store):
    """The vectors of an index in codes.

    `exact` is whether scores are cosines; in codes of version 0.1 they are those of the scan.
    """

    removes = True

    def __init__(
        self,
        options: BackendOptions,
        prepare: Affine,
        quantiser: Quantiser,
        codes: UInt8[np.ndarray, "n bytes"],
        scan: Scan | None = None,
        *,
        exact: bool = True,
        notes: Sequence[str] = (),
        alone: Any = contextlib.nullcontext,
    ) -> None:
        self.options = options
        self.prepare = prepare
        self.notes = notes
        self.quantiser = quantiser
        self.codes = codes
        self.scan = scan
        self.exact = exact
        self._alone = alone

    def add(self, vectors: np.ndarray) -> None:
        codes = coded(vectors, self.prepare, self.quantiser)
        if self.scan is not None:
            self.scan.add(codes)
        self.codes = np.concatenate([self.codes, codes])

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        codes = self.codes[keep]
        if self.scan is not None:
            self.scan.remove(gone, keep, codes)
        self.codes = codes

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each core searches a share of the queries: threads of BLAS and of FAISS would wait for each other's."""
        units = self._units(queries, prepared)
        count = hardware.cores()
        if len(queries) * (self.codes.nbytes + _TABLES) < _ALONE:
            count = 1
        parts = blocks(len(queries), max(1, -(-len(queries) // count)))

        def search(part: slice) -> tuple[np.ndarray, np.ndarray]:
            with self._alone():
                return self._search(units[part], k, among)

        results = hardware.on_threads(search, list(parts))
        if len(results) == 1:
            return results[0]
        return np.concatenate([scores for scores, _ in results]), np.concatenate([rows for _, rows in results])

    def _search(
        self, units: np.ndarray, k: int, among: Int64[np.ndarray, " m"] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`search` for mapped queries of unit length, on the calling thread."""
        assert self.scan is not None
        prepared_queries, products = self.quantiser.asked(units)
        if not self.exact:
            return self._search_first_version(prepared_queries, k, among)
        wide = min(len(self.codes), max(WIDER * k, LEAST))
        points = self.quantiser.scanned(prepared_queries)
        if among is None or self.scan.selects:
            return self._best(prepared_queries, products, self.scan.search(points, wide, among)[1], k)
        deep = 2 * wide * -(-len(self.codes) // max(1, len(among)))
        if len(among) <= _FEW or deep >= len(self.codes):
            return self._best_of(prepared_queries, products, among, k)
        inside = np.zeros(len(self.codes) + 1, bool)  # the last for a missing row
        inside[among] = True
        candidates = self.scan.search(points, deep)[1]
        chosen = inside[candidates]
        chosen &= np.cumsum(chosen, axis=1) <= wide
        candidates = np.sort(np.where(chosen, candidates, -1), axis=1)[:, -wide:]
        scores, rows = self._best(prepared_queries, products, candidates, k)
        short = candidates[:, 0] < 0
        if short.any():
            scores[short], rows[short] = self._best_of(prepared_queries[short], products[short], among, k)
        return scores, rows

    def _search_first_version(self, asked: np.ndarray, k: int, among: IdsLike) -> tuple[np.ndarray, np.ndarray]:
        assert self.scan is not None
        length = self.quantiser.length
        count = k if among is None else len(self.codes)
        distances, rows = self.scan.search(stretched(asked, length), count)
        if among is not None:
            outside = ~np.isin(rows, among)
            distances[outside], rows[outside] = np.inf, -1
            order = np.argsort(distances, axis=1, kind="stable")[:, :k]
            each = np.arange(len(order))[:, None]
            distances = distances[each, order]
            rows = rows[each, order]
        return cosines(distances, length), rows

    def _units(self, queries: np.ndarray, prepared: bool) -> np.ndarray:
        """Queries as the quantizer is asked, of unit length."""
        if prepared or self.prepare.matrix is None:  # the index has checked their lengths
            units: np.ndarray = queries / np.sqrt(np.vecdot(queries, queries))[:, None]
            return units
        x = np.asarray(self.prepare(queries), np.float32)
        return x if self.prepare.unit_length else normalize(x)

    def _best(
        self, asked: np.ndarray, products: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k candidates of each query with the highest cosines; ties go to the lower row."""
        if len(asked) == 1:
            return self._ordered(asked, products, candidates, k)
        scores = np.empty((len(asked), k), np.float32)
        rows = np.empty((len(asked), k), np.int64)
        for part in blocks(len(asked), max(1, _TABLE_BYTES // (4 * 256 * self.quantiser.nbytes))):
            scores[part], rows[part] = self._ordered(asked[part], products[part], candidates[part], k)
        return scores, rows

    def _ordered(
        self, asked: np.ndarray, products: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """`_best` of so few queries that their tables stay in the cache."""
        numbers = np.sort(candidates, axis=1)
        missing = numbers[:, :1].min() < 0
        cosines = self.quantiser.cosines(asked, products, self.codes[np.maximum(numbers, 0) if missing else numbers])
        if missing:
            cosines[numbers < 0] = -np.inf
        return first(cosines, numbers, k)

    def _best_of(
        self, asked: np.ndarray, products: np.ndarray, among: Int64[np.ndarray, " m"], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k rows of a set, in ascending order, with the highest cosines."""
        scores = np.full((len(asked), k), -np.inf, np.float32)
        rows = np.full((len(asked), k), -1, np.int64)
        for part in blocks(len(among), max(1, _EXACT_BYTES // (4 * max(len(asked), self.quantiser.width)))):
            cosines = self.quantiser.cosines(asked, products, self.codes[among[part]])
            numbers = np.broadcast_to(among[part], cosines.shape)
            both = np.concatenate([scores, cosines], axis=1), np.concatenate([rows, numbers], axis=1)
            scores, rows = first(*both, k)
        return scores, rows

    @property
    def coding(self) -> Coding:
        return Coding(self.prepare, self.quantiser, centers=self._tensors().get("centers"))

    def extends(self, names: Collection[str]) -> bool:
        return self.rows(len(self.codes)).keys() <= {*names}

    def rows(self, first: int = 0) -> Mapping[str, np.ndarray]:
        arrays = {CODES: self.codes, **({} if self.scan is None else self.scan.rows)}
        return {name: array[first:] for name, array in arrays.items()}

    def _tensors(self) -> dict[str, np.ndarray]:
        return {**tensors_of(self.quantiser), **({} if self.scan is None else self.scan.tensors())}

    @property
    def nbytes(self) -> int:
        """Size of its files in bytes."""
        parts = () if self.prepare.matrix is None else self.prepare.parts
        arrays = (*self.rows().values(), *parts, *self._tensors().values())
        return NPY_HEADER + sum(array.nbytes for array in arrays)

    def write(self, folder: Path) -> None:
        write_map(folder / TRANSFORM, self.prepare, self._tensors())
