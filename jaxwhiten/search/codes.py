"""Documents stored as codes, and ordered by the cosines of the decoded vectors.

The codes lie in one file, row by row, a memory map in a loaded index.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Quantiser
from jaxwhiten.io import same, take
from jaxwhiten.search.header import CODES, Files, Header
from jaxwhiten.search.prepare import TRANSFORM, Coding, Rows, prepared, read_map
from jaxwhiten.search.store import BackendOptions, Store
from jaxwhiten.types import Float32, Int64, UInt8
from jaxwhiten.whitening.affine import Affine

_ROTATION = ("mean", "rotation", "offset")  # of a code
_EXACT_BYTES = 32 << 20  # decoded rows at a time


class CodedStore(Store):
    """The codes of documents. A subclass searches all of them; a few chosen ones are scored here."""

    def __init__(
        self, options: BackendOptions, prepare: Affine, quantiser: Quantiser, codes: UInt8[np.ndarray, "n bytes"]
    ) -> None:
        super().__init__(options, prepare, len(codes))
        self.quantiser = quantiser
        self.codes = codes

    @classmethod
    def build(
        cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> CodedStore:
        """Stores checked raw vectors, or their codes, which are `stored` already."""
        assert coding.quantiser is not None
        codes = coded(vectors, coding.prepare, coding.quantiser) if stored is None else np.array(stored)
        return cls(options, coding.prepare, coding.quantiser, codes)

    @classmethod
    def read(cls, files: Files, options: BackendOptions, header: Header) -> CodedStore:
        """The reverse of `write` and `rows`; ValueError or KeyError if the files contradict the header."""
        return cls(options, *read_codes(files, header)[:3])

    def rows(self, first: int = 0) -> Mapping[str, np.ndarray]:
        return {CODES: self.codes[first:]}

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        rotation = dict(zip(_ROTATION, self.quantiser.affine.parts, strict=True))
        return {"centroids": self.quantiser.centroids, **rotation}

    @property
    def coding(self) -> Coding:
        return Coding(self.prepare, self.quantiser)

    def plus(self, vectors: np.ndarray) -> CodedStore:
        codes = np.concatenate([self.codes, coded(vectors, self.prepare, self.quantiser)])
        return type(self)(self.options, self.prepare, self.quantiser, codes)

    def taken(self, rows: np.ndarray) -> CodedStore:
        return type(self)(self.options, self.prepare, self.quantiser, self.codes[rows])

    def units(self, queries: np.ndarray, prepared: bool) -> Float32[np.ndarray, "q k"]:
        """Queries as the quantizer is asked, of unit length."""
        if prepared or self.prepare.matrix is None:  # the index has checked their lengths
            units: np.ndarray = queries / np.sqrt(np.vecdot(queries, queries))[:, None]
            return units
        x = np.asarray(self.prepare(queries), np.float32)
        return x if self.prepare.unit_length else normalize(x)

    def best_of(
        self,
        asked: Float32[np.ndarray, "q c"],
        products: Float32[np.ndarray, " q"],
        among: Int64[np.ndarray, " m"],
        k: int,
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k rows of a set, in ascending order, with the highest cosines."""
        scores = np.full((len(asked), k), -np.inf, np.float32)
        rows = np.full((len(asked), k), -1, np.int64)
        for part in blocks(len(among), max(1, _EXACT_BYTES // (4 * max(len(asked), self.quantiser.width)))):
            cosines = self.quantiser.cosines(asked, products, self.codes[among[part]])
            numbers = np.broadcast_to(among[part], cosines.shape)
            both = np.concatenate([scores, cosines], axis=1), np.concatenate([rows, numbers], axis=1)
            scores, rows = first(*both, k)
        return scores, rows


def coded(vectors: Rows, prepare: Affine, quantiser: Quantiser) -> UInt8[np.ndarray, "n bytes"]:
    """The codes of checked raw vectors, block by block."""
    codes = np.empty((len(vectors), quantiser.nbytes), np.uint8)
    for part, x in prepared(vectors, prepare):
        codes[part] = quantiser.quantise(quantiser.affine(x))
    return codes


def read_codes(
    files: Files, header: Header
) -> tuple[Affine, Quantiser, UInt8[np.ndarray, "n bytes"], dict[str, np.ndarray]]:
    """The map of raw vectors, the quantizer, the codes, as a memory map, and all arrays beside them.

    ValueError or KeyError if they contradict the header.
    """
    assert header.codes is not None
    layout = header.codes
    [codes] = take({"codes": files.array(CODES)}, "uint8", codes=(header.size, layout["bytes"]))
    codes = np.asarray(codes)  # a subclass of arrays would cost time
    prepare, tensors = read_map(files.get(TRANSFORM), header.input_dimension, header.normalize, header.dimension)
    affine = Affine(*(tensors[name] for name in _ROTATION))
    quantiser = Quantiser(layout["name"], affine, tensors["centroids"], float(layout["length"]))
    sizes = (quantiser.nbytes, quantiser.width, affine.inputs, affine.outputs)
    expected = (layout["bytes"], layout["coordinates"], header.dimension, layout["coordinates"])
    same("bytes and columns of the centroids", sizes, expected)
    if quantiser.bits not in (4, 8):
        raise ValueError(f"centroids of {quantiser.bits} bits")
    return prepare, quantiser, codes, tensors


def first(
    scores: Float32[np.ndarray, "q n"], rows: Int64[np.ndarray, "q n"], k: int
) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
    """The k highest scores and their rows, which ascend among equal scores."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    each = np.arange(len(best))[:, None]
    return scores[each, best], rows[each, best]
