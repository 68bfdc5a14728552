"""The contract of an engine, and engines by name."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxwhiten import io
from jaxwhiten._lazy import uncollected
from jaxwhiten.engines import DEFAULT, ENGINES, FASTEST, OPENVINO
from jaxwhiten.engines.batching import Batch, BatchResult, Layout
from jaxwhiten.engines.cache import ModelCache
from jaxwhiten.errors import InputError, check_name, warn
from jaxwhiten.head import Heads
from jaxwhiten.models import EncoderConfig
from jaxwhiten.models.checkpoint import STATIC
from jaxwhiten.models.folders import ModelFolder
from jaxwhiten.space import Space
from jaxwhiten.text import BulkTokenizer, TokenIds


@runtime_checkable
class Engine(Protocol):
    """A model ready to run in batches, with any heads."""

    name: ClassVar[str]  # in `ENGINES`
    dtype: str  # of matrix products
    device: Any  # as given to the constructor
    config: EncoderConfig
    cache: ModelCache | None  # of the model's folder
    layout: Layout  # how sentences are cut into batches
    in_flight: int  # batches to start before waiting for the oldest

    @staticmethod
    def load(folder: ModelFolder, dtype: str) -> tuple[Any, EncoderConfig, Path]:
        """The model of a folder for products of a dtype, its configuration, and the folder of its weights."""

    def __init__(self, model: Any, max_length: int, device: Any, dtype: str) -> None: ...

    def start(self, batch: Batch, tokens: TokenIds, heads: Heads, *, alone: bool = False) -> Any:
        """Starts one batch with the placed steps of each head, and returns a handle.

        A batch that is `alone` runs without others, so that all cores may serve it and a thread gains nothing.
        """

    def fetch(self, handle: Any) -> dict[str, BatchResult]:
        """Waits for a batch, and returns its vectors by the names of the heads, [room for sentences, d]."""

    def at_once(self, tokens: TokenIds, heads: Heads) -> dict[str, BatchResult]:
        """The vectors of all sentences for heads that need no batches."""

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of a batch means that it did not fit into memory."""

    def place(self, tree: Any) -> Any:
        """Converts parameters to the form that `start` takes."""

    def model(self) -> Any:
        """The Flax module, sharing its parameters."""


def chosen(name: str, folder: ModelFolder, dtype: str | None = None, device: Any = None) -> str:
    """The engine for a folder: as named, or for `"auto"` $JAXWHITEN_ENGINE, else the fastest that takes the folder.

    If that is JAX because OpenVINO does not take it, a warning says why.
    """
    if name == FASTEST:
        name = os.environ.get("JAXWHITEN_ENGINE") or FASTEST
    if name != FASTEST:
        return name
    if (reason := engine_class(OPENVINO).why_not(folder, dtype, device)) is None:
        return OPENVINO
    if reason:
        warn(f"The engine is {DEFAULT}, not {OPENVINO}: {reason}")
    return DEFAULT


def recorded(space: Space) -> str:
    """The engine for further vectors of a space: any in float32, whose vectors are equal; else the recorded one."""
    return FASTEST if space.dtype in (None, "float32") else space.engine or DEFAULT


@functools.cache
def engine_class(name: str) -> Any:
    """The class of an engine."""
    check_name("engine", name, ENGINES)
    file, _, cls = ENGINES[name].partition(".")
    with uncollected():
        engine: type[Engine] = getattr(importlib.import_module(f"{__package__}.{file}"), cls)
    return engine


def engine_for(name: str, model: Any, max_length: int, device: Any = None, dtype: str = "float32") -> Engine:
    """An engine with a model; a table of token vectors has its own engine under the name of JAX's.

    `device` is as in `forward.local_devices`.
    """
    if model.module != STATIC:
        return engine_class(name)(model, max_length, device, dtype)
    if name != DEFAULT:
        raise InputError(f"A static encoder has no matrix products for an engine to run: use engine={DEFAULT!r}.")
    from jaxwhiten.engines.forward import TableEngine

    return TableEngine(model, max_length, device)


def digest(engine: Engine, tokenizer: BulkTokenizer) -> str:
    """SHA-256 of what vectors depend on before the head: tokenizer, configuration and weights; in float32 of no engine.

    Where the weights are in a folder it is cached, by what is quick to read.
    """
    arithmetic = (
        [] if engine.dtype == "float32" or engine.name == DEFAULT else [f"{engine.name} {engine.dtype}".encode()]
    )

    def make() -> str:
        from flax import nnx

        from jaxwhiten.models.loading import contents

        weights = contents(engine.config, nnx.state(engine.model()))
        return io.hashed(itertools.chain([tokenizer.to_json().encode()], weights, arithmetic))

    if engine.cache is None:
        return make()
    quick = [engine.dtype.encode(), tokenizer.to_str().encode(), *arithmetic]
    return engine.cache.text(io.hashed(quick), make)
