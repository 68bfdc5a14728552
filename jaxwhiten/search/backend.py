"""What a backend is: the part of an index that stores vectors or their codes, searches them, and writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, Int64

from jaxwhiten.search.coding import Coding
from jaxwhiten.search.header import Header
from jaxwhiten.whitening.affine import Affine

BACKENDS: dict[str, type[Backend]] = {}
"""Every backend by name: a subclass of `Backend` that has a name adds itself, once the package imports its file."""


class Backend(ABC):
    """Stored vectors and the search among them; rows have numbers, and no texts.

    A backend is one file: a subclass with its options, its facts and its files, which `BACKENDS` then names.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Any]] = make_dataclass("NoOptions", ())  # the dataclass of its options
    removes: ClassVar[bool] = False  # documents
    codes: ClassVar[bool] = False  # can be kept
    halves: ClassVar[bool] = False  # of bytes are scanned, and nothing but codes is kept
    trains: ClassVar[bool] = False  # codes

    options: Any  # as they were used
    prepare: Affine  # what is done to a raw vector before it is stored or searched for
    notes: Sequence[str] = ()  # for the user: an option lowered, a sample taken

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            BACKENDS[cls.name] = cls

    @classmethod
    @abstractmethod
    def build(
        cls, vectors: Float[np.ndarray, "n d"], options: Any, prepare: Affine, coding: Coding | None, mapped: bool
    ) -> Backend:
        """Stores vectors that were checked, raw or `mapped` by `prepare`; in codes of a coding with the same map."""

    @classmethod
    @abstractmethod
    def read(cls, files: Mapping[str, Path], options: Any, header: Header) -> Backend:
        """Reads verified files, by the names `write` gave them; ValueError where the header says otherwise."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes its files into an empty folder."""

    @abstractmethod
    def add(self, vectors: Float[np.ndarray, "n d"]) -> None:
        """Adds raw vectors that were checked at the end, or raises and changes nothing."""

    @abstractmethod
    def remove(self, gone: Int64[np.ndarray, " n"], keep: Int64[np.ndarray, " m"]) -> None:
        """Removes rows; those that go and those that stay, both in ascending order."""

    @abstractmethod
    def search(
        self, queries: Float32[np.ndarray, "q d"], k: int, prepared: bool
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """Scores, best first, and rows; −1 where an approximate search found fewer than k."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of its files."""
