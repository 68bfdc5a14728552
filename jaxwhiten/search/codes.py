"""Documents stored as codes: found by a scan, and ordered by the cosines of the decoded vectors.

A scan may rank by rounded distances. It gives more candidates than results, whose cosines are then computed from the
stored codes. The codes lie in one file, row by row, a memory map in a loaded index; the scan keeps its own copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Quantiser
from jaxwhiten.io import map_array
from jaxwhiten.search.backend import Store
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import cosines, prepared, read_map, stretched, write_map
from jaxwhiten.shapes import Float32, Int64, UInt8
from jaxwhiten.whitening.affine import Affine

CODES, TRANSFORM = "codes.npy", "transform.safetensors"
NPY_HEADER = 128  # bytes of a `.npy` file before its values
WIDER, LEAST = 4, 64  # candidates of a scan for each result, and at least
_ROTATION = ("mean", "rotation", "offset")  # of a code
_EXACT_BYTES = 32 << 20  # decoded candidates at a time


def coded(vectors: np.ndarray, prepare: Affine, quantiser: Quantiser) -> UInt8[np.ndarray, "n bytes"]:
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


def read_codes(files: Mapping[str, Path], header: Header) -> tuple[Affine, Quantiser, UInt8[np.ndarray, "n bytes"]]:
    """The map of raw vectors, the quantizer, and the codes, as a memory map.

    ValueError or KeyError if they contradict the header.
    """
    assert header.codes is not None
    codes, about = map_array(files[CODES]), header.codes
    if codes.shape != (header.size, about["bytes"]) or codes.dtype != np.uint8:
        raise ValueError(f"{codes.dtype} codes of shape {codes.shape}, unlike the header")
    prepare, tensors = read_map(files.get(TRANSFORM), header.input_dimension, header.normalize)
    if (prepare.inputs, prepare.outputs) != (header.input_dimension, header.dimension):
        raise ValueError(f"stored vectors of dimension {prepare.outputs}, unlike the header")
    affine = Affine(np.zeros(header.dimension))
    width = header.dimension  # of codes of version 0.1, which have no rotation of their own
    if not is_first_version(header):
        affine = Affine(*(tensors[name] for name in _ROTATION))
        width = about["coordinates"]
    quantiser = Quantiser(about["name"], affine, tensors["centroids"], float(about["length"]))
    sizes = (quantiser.nbytes, quantiser.width, affine.inputs, affine.outputs)
    if sizes != (about["bytes"], width, header.dimension, width) or quantiser.bits not in (4, 8):
        raise ValueError(f"centroids of {quantiser.nbytes} bytes and {quantiser.width} columns, unlike the header")
    return prepare, quantiser, codes


def is_first_version(header: Header) -> bool:
    """Whether the codes of an index are those of version 0.1, whose scores are not cosines."""
    return header.codes is not None and "coordinates" not in header.codes


@runtime_checkable
class Scan(Protocol):
    """A search among codes by the Euclidean distance in coordinates, exact or rounded."""

    def search(self, points: Float32[np.ndarray, "q c"], k: int) -> tuple[np.ndarray, Int64[np.ndarray, "q k"]]:
        """Squared distances, nearest first, and rows; −1 for a missing result."""

    def add(self, codes: UInt8[np.ndarray, "n bytes"]) -> None:
        """Appends codes."""

    def remove(self, gone: Int64[np.ndarray, " n"], keep: Int64[np.ndarray, " m"]) -> None:
        """Removes rows, see `Backend.remove`."""

    def tensors(self) -> dict[str, np.ndarray]:
        """What a scan needs to be made from the codes again, as named arrays."""


class CodedStore(Store):
    """The vectors of an index in codes.

    `exact` is whether scores are cosines; in codes of version 0.1 they are those of the scan.
    """

    removes = True

    def __init__(
        self,
        options: Any,
        prepare: Affine,
        quantiser: Quantiser,
        codes: UInt8[np.ndarray, "n bytes"],
        scan: Scan,
        *,
        exact: bool = True,
        notes: Sequence[str] = (),
        alone: Any = contextlib.nullcontext,
    ) -> None:
        self.options, self.prepare, self.notes = options, prepare, notes
        self.quantiser, self.codes, self.scan, self.exact, self._alone = quantiser, codes, scan, exact, alone

    def add(self, vectors: np.ndarray) -> None:
        codes = coded(vectors, self.prepare, self.quantiser)
        self.scan.add(codes)
        self.codes = np.concatenate([self.codes, codes])

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self.scan.remove(gone, keep)
        self.codes = self.codes[keep]

    def search(
        self, queries: Float32[np.ndarray, "q d"], k: int, prepared: bool
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """Scores, best first, and rows; −1 for a result missing from an approximate search."""
        with self._alone() if len(queries) == 1 else contextlib.nullcontext():
            asked, products = self._asked(queries, prepared)
            if not self.exact:
                length = self.quantiser.length
                distances, rows = self.scan.search(stretched(asked, length), k)
                return cosines(distances, length), rows
            wide = min(len(self.codes), max(WIDER * k, LEAST))
            return self._best(asked, products, self.scan.search(self.quantiser.scanned(asked), wide)[1], k)

    def _asked(self, queries: np.ndarray, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        x = queries if prepared else np.asarray(self.prepare(queries), np.float32)
        return self.quantiser.asked(normalize(x))

    def _best(
        self, asked: np.ndarray, products: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k candidates of each query with the highest cosines; ties go to the lower row."""
        scores, rows = np.empty((len(asked), k), np.float32), np.empty((len(asked), k), np.int64)
        wide = candidates.shape[1]
        for part in blocks(len(asked), max(1, _EXACT_BYTES // (4 * wide * self.quantiser.width))):
            numbers = np.sort(candidates[part], axis=1)
            found = self.quantiser.coordinates(self.codes[np.maximum(numbers, 0).ravel()])
            found = found.reshape(*numbers.shape, -1)
            exact = self.quantiser.cosines(asked[part], products[part], found)
            exact[numbers < 0] = -np.inf
            best = np.argsort(-exact, axis=1, kind="stable")[:, :k]
            scores[part] = np.take_along_axis(exact, best, axis=1)
            rows[part] = np.take_along_axis(numbers, best, axis=1)
        return scores, rows

    def _tensors(self) -> dict[str, np.ndarray]:
        return {**tensors_of(self.quantiser), **self.scan.tensors()}

    @property
    def nbytes(self) -> int:
        """Size of its files in bytes."""
        parts = () if self.prepare.matrix is None else self.prepare.parts
        return NPY_HEADER + self.codes.nbytes + sum(array.nbytes for array in (*parts, *self._tensors().values()))

    def write(self, folder: Path) -> None:
        """Writes its files into an empty folder."""
        np.save(folder / CODES, self.codes)
        write_map(folder / TRANSFORM, self.prepare, self._tensors())
