"""The contract of a search backend: the part of an index that stores vectors or codes, searches and writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.errors import InputError, check_name
from jaxwhiten.search.header import Files, Header
from jaxwhiten.search.prepare import Coding, Rows
from jaxwhiten.shapes import Float, Float32, Int64, Shaped, UInt8
from jaxwhiten.typing import Fields
from jaxwhiten.whitening.affine import Affine

BACKENDS: dict[str, type[Backend]] = {}
"""Every backend by name: subclasses of `Backend` that define a name are added when the package imports their file."""

CODED = {"faiss-fast": "faiss-flat"}
"""Earlier names of backends, which stored nothing but codes, by today's."""

BackendOptions = Any  # the dataclass `Options` of the backend in question


def backend_with(name: str, options: Fields) -> tuple[type[Backend], BackendOptions]:
    """A backend and its options; InputError for an unknown name, or for a number outside its range."""
    name = CODED.get(name, name)
    check_name("search backend", name, BACKENDS)
    kind = BACKENDS[name]
    by_name = {option.name: option for option in fields(kind.Options)}
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    for option, value in options.items():
        if not by_name:
            raise InputError(f"The backend {name} has no options: omit {option!r}.")
        check_name(f"option of {name}", option, by_name)
        if bounds := by_name[option].metadata.get("bounds"):
            bounds.check(f"Option {option} of {name}", value)
    return kind, kind.Options(**options)


def check_able(name: str, capability: str, what: str) -> None:
    """Raises InputError for a backend without a capability; the message names those that have it."""
    if not getattr(BACKENDS[name], capability):
        able = ", ".join(other for other, backend in BACKENDS.items() if getattr(backend, capability))
        raise InputError(f"{name} cannot {what}; these backends can: {able}.")


class Store(ABC):
    """Stored vectors and the search among them. It numbers rows and knows neither ids nor texts."""

    removes: ClassVar[bool] = False  # whether it can remove documents

    options: BackendOptions  # as used
    prepare: Affine  # applied to a raw vector before it is stored or searched for
    notes: Sequence[str] = ()  # for the user: an option was lowered, a sample was taken

    @abstractmethod
    def extends(self, names: Collection[str]) -> bool:
        """Whether new rows can follow files of these names, so that a changed index need not be written as a whole."""

    @abstractmethod
    def rows(self, first: int = 0) -> Mapping[str, Shaped[np.ndarray, "n ..."]]:
        """Arrays with a row for each document from `first` on, by the name of the file that each is saved in."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes its files into an empty folder, except those of `rows()`."""

    @abstractmethod
    def add(self, vectors: Float[np.ndarray, "n d"]) -> None:
        """Appends raw, checked vectors, or raises and changes nothing."""

    @abstractmethod
    def remove(self, gone: Int64[np.ndarray, " n"], keep: Int64[np.ndarray, " m"]) -> None:
        """Removes rows; `gone` are the removed rows and `keep` the others, both in ascending order."""

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

    @property
    def coding(self) -> Coding:
        """How it stores documents: indexes that are built with it can be searched as one."""
        return Coding(self.prepare)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of its files in bytes."""


class Backend(Store):
    """A way of storing and searching: a subclass of `Store` with a name, options and files, in one file of its own."""

    name: ClassVar[str]
    Options: ClassVar[type[Any]] = make_dataclass("NoOptions", ())  # the dataclass of its options
    codes: ClassVar[bool] = False  # whether it can store codes

    @classmethod
    def check_installed(cls) -> None:
        """MissingDependencyError if a package that the backend needs is not installed."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            BACKENDS[cls.name] = cls

    @classmethod
    @abstractmethod
    def build(
        cls,
        vectors: Rows,
        options: BackendOptions,
        coding: Coding,
        stored: UInt8[np.ndarray, "n bytes"] | None,
    ) -> Store:
        """Stores checked raw vectors in this coding, or codes that are `stored` already."""

    @classmethod
    @abstractmethod
    def read(cls, files: Files, options: BackendOptions, header: Header) -> Store:
        """Reads files by the names that `write` and `rows` gave them; ValueError if they contradict the header."""
