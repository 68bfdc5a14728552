"""The search backends: each has a name, options, and the stores that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, make_dataclass
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.errors import InputError, check_name
from jaxwhiten.search.codes import CodedStore
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import Coding, Rows
from jaxwhiten.search.store import Arrays, BackendOptions, FloatStore, Store
from jaxwhiten.types import Fields, UInt8
from jaxwhiten.whitening.affine import Affine

BACKENDS: dict[str, type[Backend]] = {}
"""Every backend by name: subclasses of `Backend` are added when the package imports their file."""


class Backend:
    """A way of storing and searching, in one file of its own."""

    name: ClassVar[str]
    Options: ClassVar[type[Any]] = make_dataclass("NoOptions", ())  # the dataclass of its options
    floats: ClassVar[type[FloatStore] | None] = None  # of vectors in float32; None if it stores codes alone
    codes: ClassVar[type[CodedStore]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        BACKENDS[cls.name] = cls

    @classmethod
    def check_installed(cls) -> None:
        """MissingDependencyError if a package that the backend needs is not installed."""

    @classmethod
    def check_stores(cls, coded: bool) -> None:
        """InputError if vectors are to be stored without a code, and the backend stores codes alone."""
        if cls.floats is None and not coded:
            raise InputError(f"{cls.name} stores codes alone: pass `bytes` or `codes`, or use faiss-flat.")

    @classmethod
    def build(
        cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: UInt8[np.ndarray, "n bytes"] | None
    ) -> Store:
        """Stores checked raw vectors in this coding, or codes that are `stored` already."""
        if coding.quantizer is not None:
            return cls.codes.build(vectors, options, coding, stored)
        assert cls.floats is not None
        return cls.floats.build(vectors, options, coding.prepare)

    @classmethod
    def read(
        cls, arrays: Arrays, prepare: Affine, tensors: Mapping[str, np.ndarray], options: BackendOptions, header: Header
    ) -> Store:
        """The store of which these are the arrays and tensors; ValueError or KeyError if they contradict the header."""
        kind = cls.floats if header.codes is None else cls.codes
        if kind is None:
            raise ValueError(f"vectors without a code, which {cls.name} does not store")
        return kind.read(arrays, prepare, tensors, options, header)


def backend_with(name: str, options: Fields) -> tuple[type[Backend], BackendOptions]:
    """A backend and its options; InputError for an unknown name, or for a number outside its range."""
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
