"""What an index keeps of documents in memory, and the search among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxwhiten.io import take
from jaxwhiten.search.header import VECTORS, Header
from jaxwhiten.search.prepare import Coding, Rows, prepared
from jaxwhiten.store import appended
from jaxwhiten.types import Float32, Int64, Shaped
from jaxwhiten.whitening.affine import Affine

BackendOptions = Any  # the dataclass `Options` of the backend in question
Arrays = Mapping[str, Shaped[np.ndarray, "n ..."]]
"""What is kept of documents, by the name of the array in a file, with a row for each."""


class Store(ABC):
    """Stored vectors and the search among them; a change gives a new store, and this one stays as it is.

    It numbers documents by their positions and knows neither ids nor texts. `prepare` is applied to a raw vector before
    it is stored or searched for.
    """

    notes: Sequence[str] = ()  # for the user: an option was lowered, a sample was taken

    def __init__(self, options: BackendOptions, prepare: Affine, size: int) -> None:
        self.options = options
        self.prepare = prepare
        self.size = size  # number of documents

    def __len__(self) -> int:
        return self.size

    @property
    @abstractmethod
    def arrays(self) -> Arrays:
        """What is kept of its documents."""

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """What else is needed to search, as named arrays."""
        return {}

    @property
    def nbytes(self) -> int:
        """Size in bytes of its arrays."""
        parts = () if self.prepare.matrix is None else self.prepare.parts
        return sum(array.nbytes for array in (*self.arrays.values(), *parts, *self.tensors.values()))

    @property
    def coding(self) -> Coding:
        """How it stores documents: indexes that are built with it can be searched as one."""
        return Coding(self.prepare)

    @abstractmethod
    def stored(self, vectors: Rows) -> Arrays:
        """What would be kept of more raw, checked vectors."""

    @abstractmethod
    def extended(self, arrays: Arrays) -> Store:
        """With more documents, of which this is kept."""

    @abstractmethod
    def taken(self, positions: Int64[np.ndarray, " m"]) -> Store:
        """With these documents alone, in ascending order."""

    @abstractmethod
    def search(
        self,
        queries: Float32[np.ndarray, "q d"],
        k: int,
        prepared: bool,
        among: Int64[np.ndarray, " m"] | None = None,
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """Scores, best first, and positions; −1 for a missing result.

        `among` are the positions to search, in ascending order; None searches all.
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
    def read(
        cls, arrays: Arrays, prepare: Affine, tensors: Mapping[str, np.ndarray], options: BackendOptions, header: Header
    ) -> FloatStore:
        """The reverse of `arrays`; ValueError or KeyError if they contradict the header."""
        shape = len(arrays[VECTORS]), header.dimension
        [vectors] = take({"vectors": arrays[VECTORS]}, "float32", finite=False, vectors=shape)
        return cls(options, prepare, vectors)

    @property
    def arrays(self) -> Arrays:
        return {VECTORS: self.vectors}

    def stored(self, vectors: Rows) -> Arrays:
        return {VECTORS: _stored(vectors, self.prepare)}

    def extended(self, arrays: Arrays) -> FloatStore:
        return type(self)(self.options, self.prepare, appended(self.vectors, arrays[VECTORS]))

    def taken(self, positions: np.ndarray) -> FloatStore:
        return type(self)(self.options, self.prepare, self.vectors[positions])

    def mapped(self, queries: np.ndarray, prepared: bool) -> Float32[np.ndarray, "q k"]:
        """Queries in the form of the stored vectors."""
        return queries if prepared else np.ascontiguousarray(self.prepare(queries), np.float32)


def _stored(vectors: Rows, prepare: Affine) -> Float32[np.ndarray, "n k"]:
    out = np.empty((len(vectors), prepare.outputs), np.float32)
    for part, x in prepared(vectors, prepare):
        out[part] = x
    return out
