"""What engines compile of a model folder, kept between processes.

A later process with OpenVINO reads neither the weights nor JAX, one with JAX traces nothing and does without Flax. An
entry is named by the content of the weights and of `config.json`, and by the code that made it, and has checksums
(`io.keep`). The entries used last are kept, up to `MOST` bytes. JAX's programs are unpickled: whoever can write to the
cache can run code here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from jaxwhiten import io
from jaxwhiten.errors import InputError
from jaxwhiten.models import FAMILIES, EncoderConfig, checkpoint, folders
from jaxwhiten.models.checkpoint import Place, Shape
from jaxwhiten.text import BulkTokenizer
from jaxwhiten.typing import Fields

MOST = 4e9  # bytes
_LOG = logging.getLogger(__name__)
_LEAST = "jax_persistent_cache_min_compile_time_secs"
_TEXT = "text.txt"
_GRAPH = "graph.xml"
_WEIGHTS = "graph.bin"
_BLOB = "graph.blob"
_JAX = "jax"
_PROGRAM = "program"
_CODE = (".", "models", "head", "engines", "codes", "whitening")  # rooms whose code decides what is kept


class Kept:
    """The cache of one model's files; `parts` name them, and `files` are those that the parts are made of.

    Nothing is kept of a file that has changed since its hash was taken: ModelError.
    """

    def __init__(self, *parts: Any, files: io.Files | None = None):
        self.folder = io.cache_dir("compiled", io.content_key(*parts))
        self.files = files or io.Files({})
        with contextlib.suppress(OSError):
            os.utime(self.folder)  # used last

    @classmethod
    def of(cls, folder: Path) -> Kept | None:
        """The cache of a folder with an encoder; None where none is wanted (`JAXWHITEN_COMPILATION_CACHE=0`)."""
        if os.environ.get("JAXWHITEN_COMPILATION_CACHE") == "0" or checkpoint.static_folder(folder) is not None:
            return None
        folder = folders.transformer_folder(folder)
        files = io.Files.of([folder / "config.json", *checkpoint.weight_files(folder)])
        return cls(_code(), [io.sha256_once(file) for file in files.seen], files=files)

    def text(self, name: str, make: Callable[[], str]) -> str:
        """A kept text."""
        folder = self.folder / name
        if (text := io.recall(folder, lambda folder: (folder / _TEXT).read_text(encoding="utf-8"))) is not None:
            return text
        text = make()
        self.files.check()
        with contextlib.suppress(OSError, InputError):
            io.keep(folder, lambda whole: io.write_text(whole / _TEXT, text))
        return text

    def compiled(self, key: str, core: Any, make: Callable[[], Any], hints: Fields, files: io.Files) -> Any:
        """A kept OpenVINO model, compiled; weights are mapped. `make` reads `files`, in addition to those of the model.

        The graph is kept once, and its compiled form for each kind of CPU and each set of hints.
        """
        # weights stay in the graph's file
        folder = self.folder / key
        options = {**hints, "CACHE_MODE": "OPTIMIZE_SIZE"}
        cpu = [core.get_property("CPU", name) for name in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")]

        def blob_of(graph: Path) -> Path:
            checksums = (graph / io.CHECKSUMS).read_text(encoding="utf-8")
            return self.folder / io.content_key(key, checksums, hints, *cpu)

        def imported(blob: Path) -> Any:
            data = BytesIO((blob / _BLOB).read_bytes())
            return core.import_model(data, "CPU", {**options, "WEIGHTS_PATH": str(folder / _WEIGHTS)})

        def compiled(graph: Path) -> Any:
            return io.recall(blob_of(graph), imported) or core.compile_model(graph / _GRAPH, "CPU", options)

        def write(whole: Path) -> None:
            import openvino

            openvino.save_model(model, whole / _GRAPH, compress_to_fp16=False)
            self.files.check()
            files.check()

        def write_blob(whole: Path) -> None:
            result.export_model(stream := BytesIO())
            (whole / _BLOB).write_bytes(stream.getbuffer())

        result: Any = io.recall(folder, compiled)
        model = make() if result is None else None
        with contextlib.suppress(OSError, RuntimeError, InputError):
            if result is None:
                io.keep(folder, write, RuntimeError)
                _forget(self.folder.parent)
                result = compiled(folder)
            if result is not None and not (blob := blob_of(folder)).exists():
                io.keep(blob, write_blob, RuntimeError)
        if result is None:
            return core.compile_model(model, "CPU", hints)
        return result


def program(
    key: Sequence[object], device: Any, arguments: tuple[Any, ...], trees: tuple[Any, Any], make: Callable[[], Any]
) -> Any:
    """A kept program of JAX by what decides it, or that of `make`; `trees` are those of arguments and results.

    A program is kept if it gives the same results once read again.
    """
    import jax
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    def read(data: bytes) -> Any:
        return deserialize_and_load(data, *trees, execution_devices=[device])

    entry = Kept(_code(), *key).folder
    folder = entry / _JAX
    if (stored := io.recall(folder, lambda folder: read((folder / _PROGRAM).read_bytes()))) is not None:
        return stored
    with _only_here:
        compiled = make()
    try:
        data = serialize(compiled)[0]
        first, again = (jax.tree.leaves(run(*arguments)) for run in (compiled, read(data)))
        if not all(np.array_equal(x, y, equal_nan=True) for x, y in zip(first, again, strict=True)):
            raise ValueError("other results once read again")
        io.keep(folder, lambda whole: (whole / _PROGRAM).write_bytes(data))
        _forget(entry.parent)
    except Exception as error:  # JAX does not write it, or there is no room
        _LOG.warning("%s: not kept (%s)", folder, error)
    return compiled


class _OnlyHere:
    """What is compiled in the block is not written to JAX's own cache: what is read from there cannot be kept again."""

    _lock = threading.Lock()
    _blocks = 0
    _before = 0.0

    def __enter__(self) -> None:
        import jax

        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._before = jax.config.jax_persistent_cache_min_compile_time_secs  # type: ignore[attr-defined]
                jax.config.update(_LEAST, math.inf)

    def __exit__(self, *_: object) -> None:
        import jax

        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                jax.config.update(_LEAST, self._before)


_only_here = _OnlyHere()


def _forget(root: Path) -> None:
    """Removes the entries that were used longest ago, as far as all take more than `MOST` bytes."""
    size = 0
    for entry in sorted(root.iterdir(), key=os.path.getmtime, reverse=True):
        size += sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
        if size > MOST:
            shutil.rmtree(entry, ignore_errors=True)


@functools.cache
def _code() -> str:
    rooms = (Path(__file__).parents[1] / room for room in _CODE)
    return io.content_key([io.sha256_file(file) for room in rooms for file in sorted(room.glob("*.py"))])


class Unread:
    """An encoder in a folder, read when its module is asked for; that it can be read is known from an earlier process.

    Attributes:
      kept: The cache of its files.
    """

    module = "Transformer"
    pools = False
    special_tokens = True

    def __init__(self, folder: Path, config: EncoderConfig, dtype: str, shapes: Mapping[Place, Shape], kept: Kept):
        self._folder = folder
        self.config = config
        self.dtype = dtype
        self._shapes = shapes
        self.kept = kept

    @property
    def was_read(self) -> bool:
        return "read" in self.__dict__

    @functools.cached_property
    def read(self) -> Any:
        """The module; ModelError if the files are no longer those that its cache is named by."""
        module = _load(self._folder, self.dtype)[0]
        self.kept.files.check()
        return module

    def leaves(self) -> list[np.ndarray]:
        """The weights in the order of the module's state, read without the module."""
        where = folders.transformer_folder(self._folder)
        family = FAMILIES[self.config.model_type]
        dtype = np.float32 if self.dtype == "float32" else bfloat16
        leaves = list(checkpoint.load_parameters(where, family, self._shapes, dtype).values())
        self.kept.files.check()
        return leaves


def _load(folder: Path, dtype: str) -> tuple[Any, EncoderConfig, Path]:
    from jaxwhiten.models.loading import load_model

    return load_model(folder, dtype=dtype, narrow=True)


def load(folder: Path, dtype: str = "float32") -> tuple[Any, EncoderConfig, Path]:
    """`load_model`, but with an `Unread` instead of an encoder of which something can be kept."""
    if (kept := Kept.of(folder)) is None:
        return _load(folder, dtype)
    models: list[Any] = []

    def shapes() -> str:
        from flax import nnx

        models.append(_load(folder, dtype)[0])
        return json.dumps(list(checkpoint.shapes_of(nnx.state(models[0])).items()))

    by_path = {tuple(path): tuple(shape) for path, shape in json.loads(kept.text("shapes", shapes))}
    where = folders.transformer_folder(folder)
    config = folders.load_config(where)
    kept.files.check()
    config = dataclasses.replace(config, pooler=config.pooler and any(path[0] == "pooler" for path in by_path))
    unread = Unread(folder, config, dtype, by_path, kept)
    if models:
        unread.read = models[0]
    return unread, config, where


def digest(
    model: tuple[EncoderConfig, Callable[[], Any]],
    kept: Kept | None,
    tokenizer: BulkTokenizer | None,
    after: Sequence[bytes],
    dtype: str = "float32",
) -> str:
    """SHA-256 of configuration and weights between a tokenizer and other bytes, kept by what is quick to read."""

    def make() -> str:
        from jaxwhiten.models.loading import contents

        before = b"" if tokenizer is None else tokenizer.to_json().encode()
        return folders.hashed(itertools.chain([before], contents(model[0], model[1]()), after))

    if kept is None:
        return make()
    before = b"" if tokenizer is None else tokenizer.to_str().encode()
    return kept.text(
        folders.hashed([dtype.encode(), before, *(folders.hashed([part]).encode() for part in after)]), make
    )
