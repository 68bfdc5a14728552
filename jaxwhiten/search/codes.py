"""Documents stored as codes, and ordered by the cosines of the decoded vectors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Quantizer
from jaxwhiten.io import same, take
from jaxwhiten.search.header import CODES, Header
from jaxwhiten.search.prepare import Coding, Rows, prepared
from jaxwhiten.search.store import Arrays, BackendOptions, Store
from jaxwhiten.store import appended
from jaxwhiten.types import Float32, Int64, UInt8
from jaxwhiten.whitening.affine import Affine

_ROTATION = ("mean", "rotation", "offset")  # of a code
_EXACT_BYTES = 32 << 20  # decoded rows at a time


class CodedStore(Store):
    """The codes of documents. A subclass searches all of them; a few chosen ones are scored here."""

    def __init__(
        self, options: BackendOptions, prepare: Affine, quantizer: Quantizer, codes: UInt8[np.ndarray, "n bytes"]
    ) -> None:
        super().__init__(options, prepare, len(codes))
        self.quantizer = quantizer
        self.codes = codes

    @classmethod
    def build(
        cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> CodedStore:
        """Stores checked raw vectors, or their codes, which are `stored` already."""
        assert coding.quantizer is not None
        codes = coded(vectors, coding.prepare, coding.quantizer) if stored is None else np.array(stored)
        return cls(options, coding.prepare, coding.quantizer, codes)

    @classmethod
    def read(
        cls, arrays: Arrays, prepare: Affine, tensors: Mapping[str, np.ndarray], options: BackendOptions, header: Header
    ) -> CodedStore:
        """The reverse of `arrays` and `tensors`; ValueError or KeyError if they contradict the header."""
        return cls(options, prepare, *read_codes(arrays, prepare, tensors, header))

    @property
    def arrays(self) -> Arrays:
        return {CODES: self.codes}

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        rotation = dict(zip(_ROTATION, self.quantizer.affine.parts, strict=True))
        return {"centroids": self.quantizer.centroids, **rotation}

    @property
    def coding(self) -> Coding:
        return Coding(self.prepare, self.quantizer)

    def stored(self, vectors: Rows) -> Arrays:
        return {CODES: coded(vectors, self.prepare, self.quantizer)}

    def extended(self, arrays: Arrays) -> CodedStore:
        codes = appended(self.codes, arrays[CODES])
        return type(self)(self.options, self.prepare, self.quantizer, codes)

    def taken(self, positions: np.ndarray) -> CodedStore:
        return type(self)(self.options, self.prepare, self.quantizer, self.codes[positions])

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
        for part in blocks(len(among), max(1, _EXACT_BYTES // (4 * max(len(asked), self.quantizer.width)))):
            cosines = self.quantizer.cosines(asked, products, self.codes[among[part]])
            numbers = np.broadcast_to(among[part], cosines.shape)
            both = np.concatenate([scores, cosines], axis=1), np.concatenate([rows, numbers], axis=1)
            scores, rows = first(*both, k)
        return scores, rows


def coded(vectors: Rows, prepare: Affine, quantizer: Quantizer) -> UInt8[np.ndarray, "n bytes"]:
    """The codes of checked raw vectors, block by block."""
    codes = np.empty((len(vectors), quantizer.nbytes), np.uint8)
    for part, x in prepared(vectors, prepare):
        codes[part] = quantizer.quantize(quantizer.affine(x))
    return codes


def read_codes(
    arrays: Arrays, prepare: Affine, tensors: Mapping[str, np.ndarray], header: Header
) -> tuple[Quantizer, UInt8[np.ndarray, "n bytes"]]:
    """The quantizer and the codes; ValueError or KeyError if they contradict the header."""
    assert header.codes is not None
    layout = header.codes
    [codes] = take({"codes": arrays[CODES]}, "uint8", codes=(len(arrays[CODES]), layout["bytes"]))
    affine = Affine(*(tensors[name] for name in _ROTATION))
    quantizer = Quantizer(layout["name"], affine, tensors["centroids"], float(layout["length"]))
    sizes = (quantizer.nbytes, quantizer.width, affine.inputs, affine.outputs)
    expected = (layout["bytes"], layout["coordinates"], header.dimension, layout["coordinates"])
    same("bytes and columns of the centroids", sizes, expected)
    if quantizer.bits not in (4, 8):
        raise ValueError(f"centroids of {quantizer.bits} bits")
    return quantizer, codes


def first(
    scores: Float32[np.ndarray, "q n"], rows: Int64[np.ndarray, "q n"], k: int
) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
    """The k highest scores and their rows, which ascend among equal scores."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    each = np.arange(len(best))[:, None]
    return scores[each, best], rows[each, best]
