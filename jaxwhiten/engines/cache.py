"""What engines keep of a model folder between processes: graphs of OpenVINO, and texts such as fingerprints.

With a graph that is kept, a later process reads neither the weights nor JAX, and starts in half the time. An entry is
named by the content of the weights and of `config.json`, and by the code that made it, and has checksums (`io.keep`).
OpenVINO's own cache beside it holds the compiled forms.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten._version import __version__
from jaxwhiten.errors import InputError
from jaxwhiten.models import EncoderConfig, checkpoint
from jaxwhiten.models.folders import ModelFolder
from jaxwhiten.runtime.hardware import cpu_features
from jaxwhiten.types import Fields

_TEXT = "text.txt"
_GRAPH = "graph.xml"
_CODE = (".", "models", "head", "engines", "codes", "whitening")  # rooms whose code decides what is kept


class ModelCache:
    """The cache of one model's files, whose identities are taken before they are read.

    Nothing is kept of a file that has changed since: ModelError.
    """

    def __init__(self, folder: ModelFolder):
        files = [folder.transformer / "config.json", *checkpoint.weight_files(folder.transformer)]
        self.files = io.Files({**io.Files.of(files).seen, **folder.config_files.seen})
        self.folder = io.cache_dir("compiled", io.content_key(_code(), [io.sha256_once(file) for file in files]))
        with contextlib.suppress(OSError):
            os.utime(self.folder)  # used last

    @classmethod
    def of(cls, folder: ModelFolder) -> ModelCache | None:
        """The cache of a folder with an encoder; None where none is wanted (`JAXWHITEN_COMPILATION_CACHE=0`)."""
        if os.environ.get("JAXWHITEN_COMPILATION_CACHE") == "0" or folder.static is not None:
            return None
        return cls(folder)

    def text(self, name: str, make: Callable[[], str]) -> str:
        """The text that was kept under a name, or that of `make`."""
        folder = self.folder / name
        if (text := io.recall(folder, lambda folder: (folder / _TEXT).read_text(encoding="utf-8"))) is not None:
            return text
        text = make()
        self.files.check()
        with contextlib.suppress(OSError, InputError):
            io.keep(folder, lambda whole: io.write_text(whole / _TEXT, text))
        return text

    def compiled(self, key: str, core: Any, make: Callable[[], Any], hints: Fields) -> Any:
        """The graph of OpenVINO that was kept under a key, or that of `make`, compiled; its weights are mapped."""
        folder = self.folder / key
        # Compiled forms are for one kind of CPU, and for the instructions that oneDNN may use there.
        limits = [os.environ.get(name) for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")]
        cache = self.folder / io.content_key(cpu_features(), limits)

        def read(folder: Path) -> Any:
            options = {"CACHE_DIR": str(cache), "CACHE_MODE": "OPTIMIZE_SIZE"}
            return core.compile_model(folder / _GRAPH, "CPU", {**hints, **(options if _is_writable(cache) else {})})

        def write(whole: Path) -> None:
            import openvino

            openvino.save_model(graph, whole / _GRAPH, compress_to_fp16=False)
            self.files.check()

        if (result := io.recall(folder, read)) is not None:
            return result
        graph = make()
        self.files.check()
        with contextlib.suppress(OSError, InputError):
            io.keep(folder, write, RuntimeError)
        return io.recall(folder, read) or core.compile_model(graph, "CPU", hints)


def _is_writable(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)


@functools.cache
def _code() -> str:
    files = sorted(file for room in _CODE for file in (Path(__file__).parents[1] / room).glob("*.py"))
    states = ((file.name, file.stat()) for file in files)
    return io.content_key(__version__, [(name, state.st_size, state.st_mtime_ns) for name, state in states])


class LazyModel:
    """An encoder in a folder, read when its module is asked for; that it can be read is known from an earlier process.

    Attributes:
      cache: The cache of its files.
    """

    module = "Transformer"
    pools = False
    special_tokens = True

    def __init__(self, folder: ModelFolder, dtype: str, cache: ModelCache):
        self._folder = folder.path
        self.dtype = dtype
        self.cache = cache
        config = folder.config
        pooler = cache.text("pooler", lambda: str(self.loaded.config.pooler))  # which the weights may lack
        self.config = dataclasses.replace(config, pooler=False) if config.pooler and pooler != str(True) else config
        cache.files.check()

    @functools.cached_property
    def loaded(self) -> Any:
        """The module; ModelError if the files are no longer those that its cache is named by."""
        module = _load(self._folder, self.dtype)[0]
        self.cache.files.check()
        return module


def _load(folder: Path, dtype: str) -> tuple[Any, EncoderConfig, Path]:
    from jaxwhiten.models.loading import load_model

    return load_model(folder, dtype=dtype, narrow=True)


def load(folder: ModelFolder, dtype: str = "float32") -> tuple[Any, EncoderConfig, Path]:
    """`load_model`, but with a `LazyModel` instead of an encoder of which something can be kept."""
    if (cache := ModelCache.of(folder)) is None:
        return _load(folder.path, dtype)
    model = LazyModel(folder, dtype, cache)
    return model, model.config, folder.transformer
