"""What an index keeps of documents in memory, the search among them, and the backends that make it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.io import take
from jaxwhiten.options import check_bounds
from jaxwhiten.search.header import CODES, VECTORS
from jaxwhiten.search.prepare import Coding, Rows, prepared
from jaxwhiten.store import appended
from jaxwhiten.types import Fields, Float32, Int64, Shaped, UInt8

BackendOptions = Any  # the dataclass `Options` of the backend in question
Arrays = Mapping[str, Shaped[np.ndarray, "n ..."]]
"""What is kept of documents, by the name of the array in a file, with a row for each."""
Chosen = Int64[np.ndarray, " m"] | None
"""Positions of documents to search, in ascending order; None for all."""
Ranking = tuple[Float32[np.ndarray, "q k"], Shaped[np.ndarray, "q k"]]
"""Scores of each query, best first, and positions, rows or ids; −1 for a missing result, whose score is −inf."""
_EXACT_BYTES = 32 << 20  # decoded rows at a time


class Store(ABC):
    """Stored vectors and the search among them; a change gives a new store, and this one stays as it is.

    It numbers documents by their positions and knows neither ids nor texts.

    Attributes:
      options: Of the backend.
      coding: How a raw vector is stored.
      arrays: What is kept of its documents.
      notes: For the user: an option was lowered, a sample was taken.
    """

    notes: Sequence[str] = ()

    def __init__(self, options: BackendOptions, coding: Coding, arrays: Arrays, before: Any = None) -> None:
        """`before` is the store, if any, to whose arrays rows were added."""
        self.options = options
        self.coding = coding
        self.prepare = coding.prepare
        self.size = len(next(iter(arrays.values())))
        self._arrays = arrays

    @classmethod
    @abstractmethod
    def kept(cls, vectors: Rows, coding: Coding) -> Arrays:
        """What is kept of raw, checked vectors."""

    @classmethod
    def build(
        cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> Store:
        """Stores raw, checked vectors, or their codes, which are `stored` already."""
        return cls(options, coding, cls.kept(vectors, coding) if stored is None else {CODES: np.array(stored)})

    @classmethod
    def read(cls, arrays: Arrays, options: BackendOptions, coding: Coding) -> Store:
        """The reverse of `arrays`; ValueError or KeyError if they do not fit the coding."""
        of_none = cls.kept(np.empty((0, coding.prepare.inputs), np.float32), coding)
        size = len(arrays[next(iter(of_none))])
        for name, array in of_none.items():
            take(arrays, array.dtype.name, finite=False, **{name: (size, *array.shape[1:])})
        return cls(options, coding, {name: arrays[name] for name in of_none})

    @property
    def arrays(self) -> Arrays:
        return self._arrays

    @property
    def nbytes(self) -> int:
        """Size in bytes of its arrays, and of what else is needed to search."""
        return sum(array.nbytes for array in (*self.arrays.values(), *self.coding.tensors.values()))

    def extended(self, arrays: Arrays) -> Store:
        """With more documents, of which this is kept."""
        longer = {name: appended(array, arrays[name]) for name, array in self.arrays.items()}
        return type(self)(self.options, self.coding, longer, self)

    def taken(self, positions: Int64[np.ndarray, " m"]) -> Store:
        """With these documents alone, in ascending order."""
        chosen = {name: array[positions] for name, array in self.arrays.items()}
        return type(self)(self.options, self.coding, chosen)

    @abstractmethod
    def search(self, queries: Float32[np.ndarray, "q d"], k: int, among: Chosen = None) -> Ranking:
        """Scores and positions of the k best documents of each query."""


class FloatStore(Store):
    """The prepared vectors of documents in float32."""

    @classmethod
    def kept(cls, vectors: Rows, coding: Coding) -> Arrays:
        out = np.empty((len(vectors), coding.prepare.outputs), np.float32)
        for part, x in prepared(vectors, coding.prepare):
            out[part] = x
        return {VECTORS: out}

    def mapped(self, queries: np.ndarray) -> Float32[np.ndarray, "q k"]:
        """Queries in the form of the stored vectors."""
        return np.ascontiguousarray(self.prepare(queries), np.float32)


class CodedStore(Store):
    """The codes of documents. A subclass searches all of them; a few chosen ones are scored here."""

    def __init__(self, options: BackendOptions, coding: Coding, arrays: Arrays, before: Any = None) -> None:
        super().__init__(options, coding, arrays, before)
        assert coding.quantizer is not None
        self.quantizer = coding.quantizer
        self.codes = arrays[CODES]

    @classmethod
    def kept(cls, vectors: Rows, coding: Coding) -> Arrays:
        quantizer = coding.quantizer
        assert quantizer is not None
        codes = np.empty((len(vectors), quantizer.nbytes), np.uint8)
        for part, x in prepared(vectors, coding.prepare):
            codes[part] = quantizer.quantize(quantizer.affine(x))
        return {CODES: codes}

    def units(self, queries: np.ndarray) -> Float32[np.ndarray, "q k"]:
        """Queries as the quantizer is asked, of unit length."""
        if self.prepare.matrix is None:  # the index has checked their lengths
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
    ) -> Ranking:
        """The k rows of a set, in ascending order, with the highest cosines."""
        scores, rows = unranked(len(asked), k)
        for part in blocks(len(among), max(1, _EXACT_BYTES // (4 * max(len(asked), self.quantizer.width)))):
            cosines = self.quantizer.cosines(asked, products, self.codes[among[part]])
            numbers = np.broadcast_to(among[part], cosines.shape)
            both = np.concatenate([scores, cosines], axis=1), np.concatenate([rows, numbers], axis=1)
            scores, rows = first(*both, k)
        return scores, rows


def unranked(queries: int, k: int) -> Ranking:
    """The ranking of so many queries without results, to be filled."""
    return np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1)


def first(scores: Float32[np.ndarray, "q n"], rows: Shaped[np.ndarray, "q n"], k: int) -> Ranking:
    """The k highest scores and their rows, which ascend among equal scores."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    each = np.arange(len(best))[:, None]
    return scores[each, best], rows[each, best]


@dataclass
class NoOptions:
    """Those of a backend that has none."""


@dataclass(frozen=True)
class Backend:
    """A way of storing and searching.

    Attributes:
      codes: The store of codes.
      floats: That of vectors in float32; None if it stores codes alone.
      options: The dataclass of its options, whose fields may have `bounds`.
      check_installed: Raises MissingDependencyError if a package that it needs is not installed.
    """

    name: str
    codes: type[CodedStore]
    floats: type[FloatStore] | None = None
    options: type[Any] = NoOptions
    check_installed: Callable[[str], object] = str

    def store(self, coded: bool) -> type[Store]:
        """The store of codes or vectors; InputError if the backend has none."""
        store = self.codes if coded else self.floats
        if store is None:
            raise InputError(f"{self.name} stores codes alone: pass `bytes` or `codes`, or use faiss-flat.")
        return store

    def with_options(self, options: Fields) -> BackendOptions:
        """Its options; InputError for an unknown name, or for a number outside its range."""
        names = [option.name for option in fields(self.options)]
        for option in options:
            if not names:
                raise InputError(f"The backend {self.name} has no options: omit {option!r}.")
            check_name(f"option of {self.name}", option, names)
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        chosen = self.options(**plain)
        check_bounds(chosen)
        return chosen
