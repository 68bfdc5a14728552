"""What an index stores of documents, and the search among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.io import take
from jaxwhiten.search.header import VECTORS, Files, Header
from jaxwhiten.search.prepare import TRANSFORM, Coding, Rows, prepared, read_map, write_map
from jaxwhiten.types import Float, Float32, Int64, Shaped
from jaxwhiten.whitening.affine import Affine

BackendOptions = Any  # the dataclass `Options` of the backend in question
_NPY_HEADER = 128  # bytes of a `.npy` file before its values


class Store(ABC):
    """Stored vectors and the search among them; a change gives a new store, and this one stays as it is.

    It numbers rows and knows neither ids nor texts. `prepare` is applied to a raw vector before it is stored or
    searched for.
    """

    notes: Sequence[str] = ()  # for the user: an option was lowered, a sample was taken

    def __init__(self, options: BackendOptions, prepare: Affine, size: int) -> None:
        self.options = options
        self.prepare = prepare
        self.size = size  # number of documents

    def __len__(self) -> int:
        return self.size

    @abstractmethod
    def rows(self, first: int = 0) -> Mapping[str, Shaped[np.ndarray, "n ..."]]:
        """Arrays with a row for each document from `first` on, by the name of the file that each is saved in."""

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """What else is needed to search, as named arrays."""
        return {}

    def write(self, folder: Path) -> None:
        """Writes its files into an empty folder, except those of `rows()`."""
        write_map(folder / TRANSFORM, self.prepare, self.tensors)

    @property
    def nbytes(self) -> int:
        """Size of its files in bytes."""
        parts = () if self.prepare.matrix is None else self.prepare.parts
        rows = self.size * sum(array.nbytes for array in self.rows(self.size - 1).values())
        return _NPY_HEADER + rows + sum(array.nbytes for array in (*parts, *self.tensors.values()))

    @property
    def coding(self) -> Coding:
        """How it stores documents: indexes that are built with it can be searched as one."""
        return Coding(self.prepare)

    @abstractmethod
    def plus(self, vectors: Float[np.ndarray, "n d"]) -> Store:
        """With more raw, checked vectors after its own."""

    @abstractmethod
    def taken(self, rows: Int64[np.ndarray, " m"]) -> Store:
        """With these rows alone, which ascend."""

    @abstractmethod
    def search(
        self,
        queries: Float32[np.ndarray, "q d"],
        k: int,
        prepared: bool,
        among: Int64[np.ndarray, " m"] | None = None,
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """Scores, best first, and rows; −1 for a missing result.

        `among` are the rows to search, in ascending order; None searches all.
        """


class FloatStore(Store):
    """The prepared vectors of documents in float32."""

    def __init__(self, options: BackendOptions, prepare: Affine, vectors: Float32[np.ndarray, "n k"]) -> None:
        super().__init__(options, prepare, len(vectors))
        self.vectors = vectors

    @classmethod
    def build(cls, vectors: Rows, options: BackendOptions, prepare: Affine) -> FloatStore:
        """Stores checked raw vectors."""
        return cls(options, prepare, _stored(vectors, prepare))

    @classmethod
    def read(cls, files: Files, options: BackendOptions, header: Header) -> FloatStore:
        """The reverse of `write` and `rows`; ValueError or KeyError if the files contradict the header."""
        shape = header.size, header.dimension
        [vectors] = take({"vectors": files.array(VECTORS)}, "float32", finite=False, vectors=shape)
        prepare, _ = read_map(files.get(TRANSFORM), header.input_dimension, header.normalize, header.dimension)
        return cls(options, prepare, np.ascontiguousarray(vectors))

    def rows(self, first: int = 0) -> Mapping[str, np.ndarray]:
        return {VECTORS: self.vectors[first:]}

    def plus(self, vectors: np.ndarray) -> FloatStore:
        return type(self)(self.options, self.prepare, np.concatenate([self.vectors, _stored(vectors, self.prepare)]))

    def taken(self, rows: np.ndarray) -> FloatStore:
        return type(self)(self.options, self.prepare, self.vectors[rows])

    def mapped(self, queries: np.ndarray, prepared: bool) -> Float32[np.ndarray, "q k"]:
        """Queries in the form of the stored vectors."""
        return queries if prepared else np.ascontiguousarray(self.prepare(queries), np.float32)


def _stored(vectors: Rows, prepare: Affine) -> Float32[np.ndarray, "n k"]:
    out = np.empty((len(vectors), prepare.outputs), np.float32)
    for part, x in prepared(vectors, prepare):
        out[part] = x
    return out
