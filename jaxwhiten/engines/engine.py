"""The contract of an engine, and engines by name."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxwhiten.engines import DEFAULT, ENGINES, FASTEST, INT8
from jaxwhiten.engines.batching import Batch, Found, Layout
from jaxwhiten.errors import InputError, check_name, warn
from jaxwhiten.head import Heads
from jaxwhiten.lazy import uncollected
from jaxwhiten.models import EncoderConfig
from jaxwhiten.models.checkpoint import STATIC
from jaxwhiten.text import BulkTokenizer, TokenIds
from jaxwhiten.typing import Fields, PyTree


@runtime_checkable
class Engine(Protocol):
    """A model ready to run in batches, with any heads."""

    name: ClassVar[str]  # in `ENGINES`
    dtypes: ClassVar[tuple[str, ...]]  # of matrix products
    dtype: str  # one of them
    devices: int  # among which the rows of a batch are dealt out in turn
    layout: Layout  # how sentences are cut into batches
    in_flight: int  # batches to start before waiting for the oldest

    @staticmethod
    def load(folder: Path, dtype: str) -> tuple[Any, EncoderConfig, Path]:
        """The model of a folder for products of a dtype, its configuration, and the folder of its weights."""

    def __init__(self, model: Any, max_length: int, device: Any, dtype: str, folder: Path | None) -> None: ...

    def start(self, batch: Batch, tokens: TokenIds, heads: Heads, *, alone: bool = False) -> Any:
        """Starts one batch with the placed steps of each head, and returns a handle.

        A batch that is `alone` runs without others, so that all cores may serve it and a thread gains nothing.
        """

    def fetch(self, handle: Any) -> dict[str, Found]:
        """Waits for a batch, and returns its vectors by the names of the heads, [room for sentences, d]."""

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, Found]:
        """The vectors of all sentences for heads that need no batches."""

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of a batch means that it did not fit into memory."""

    def place(self, tree: PyTree) -> PyTree:
        """Converts parameters to the form that `start` takes."""

    def model(self) -> Any:
        """The Flax module, sharing its parameters."""

    def digest(self, tokenizer: BulkTokenizer, after: Sequence[bytes]) -> str:
        """SHA-256 of what vectors depend on, after the tokenizer and before other bytes."""

    def once(self, name: str, make: Callable[[], str]) -> str:
        """A text that follows from the weights and is named, kept between processes if the weights are in a folder."""

    def save_beside(self, folder: Path) -> None:
        """Writes the engine's own files to a model folder."""


def chosen(name: str, folder: Path, dtype: str | None = None, device: Any = None) -> str:
    """The engine for a folder: as named, or for `"auto"` $JAXWHITEN_ENGINE, else the fastest that takes the folder.

    If that is JAX because OpenVINO does not take it, a warning says why.
    """
    if name == FASTEST:
        name = INT8 if dtype == "int8" else os.environ.get("JAXWHITEN_ENGINE") or FASTEST
    if name != FASTEST:
        return name
    if (reason := engine_class(INT8).why_not(folder, dtype, device)) is None:
        return INT8
    if reason:
        warn(f"The engine is {DEFAULT}, not {INT8}: {reason}")
    return DEFAULT


def recorded(encoding: Fields) -> str:
    """The engine for further vectors of recorded ones: any in float32, whose vectors are equal; else the recorded."""
    if encoding.get("dtype") in (None, "float32"):
        return FASTEST
    return encoding.get("engine") or DEFAULT


def engine_class(name: str) -> Any:
    """The class of an engine."""
    check_name("engine", name, ENGINES)
    file, _, cls = ENGINES[name].partition(".")
    with uncollected():
        engine: type[Engine] = getattr(importlib.import_module(f"{__package__}.{file}"), cls)
    return engine


def engine_for(
    name: str,
    model: Any,
    max_length: int,
    device: Any = None,
    dtype: str = "float32",
    folder: Path | None = None,
) -> Engine:
    """An engine with a model; a table of token vectors has its own engine under the name of JAX's.

    `device` is as in `forward.local_devices`. `folder` is the model's, for engines with files of their own.
    """
    if model.module != STATIC:
        return engine_class(name)(model, max_length, device, dtype, folder)
    if name != DEFAULT:
        raise InputError(f"A static encoder has no matrix products for an engine to run: use engine={DEFAULT!r}.")
    from jaxwhiten.engines.table import TableEngine

    return TableEngine(model, max_length, device)
