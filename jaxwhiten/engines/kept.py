"""OpenVINO's graphs of a model folder, kept between processes: a later process reads neither the weights nor JAX.

An entry is named by the content of the weights and of `config.json`, and by the code that made it. OpenVINO keeps what
it compiles in the same folder. The entries used last are kept, up to `MOST` bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten.errors import JaxwhitenError
from jaxwhiten.models import EncoderConfig, checkpoint, folders

MOST = 4e9  # bytes
_CODE = ("models", "head", "engines")  # rooms whose code decides what is kept


class Kept:
    """The cache of one model's files; `parts` name them."""

    def __init__(self, *parts: Any):
        self._folder = io.cache_dir("openvino", io.content_key(*parts))
        with contextlib.suppress(OSError):
            os.utime(self._folder)  # used last

    @classmethod
    def of(cls, folder: Path) -> Kept | None:
        """The cache of a folder with an encoder; None where none is wanted (`JAXWHITEN_COMPILATION_CACHE=0`)."""
        if os.environ.get("JAXWHITEN_COMPILATION_CACHE") == "0" or checkpoint.static_folder(folder) is not None:
            return None
        folder = folders.transformer_folder(folder)
        files = [folder / "config.json", *checkpoint.weight_files(folder)]
        return cls(_code(), [io.sha256_once(file) for file in files])

    def text(self, name: str, make: Callable[[], str]) -> str:
        """A kept text."""
        file = self._folder / f"{name}.json"
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(file.read_text(encoding="utf-8")))
        text = make()
        with contextlib.suppress(OSError, JaxwhitenError):
            io.write_json(file, text)
        return text

    def compiled(self, key: str, core: Any, make: Callable[[], Any], hints: Mapping[str, Any]) -> Any:
        """A kept OpenVINO model, compiled; weights are mapped."""
        file = self._folder / key / "graph.xml"
        kept = {**hints, "CACHE_DIR": str(self._folder / "compiled"), "CACHE_MODE": "OPTIMIZE_SIZE"}
        with contextlib.suppress(RuntimeError):
            if file.is_file():
                return core.compile_model(file, "CPU", kept)
        model = make()
        with contextlib.suppress(OSError, RuntimeError, JaxwhitenError):
            import openvino

            with io.whole_folder(file.parent, RuntimeError, kind="compiled graph") as whole:
                openvino.save_model(model, whole / file.name, compress_to_fp16=False)
            _forget(self._folder.parent)
            return core.compile_model(file, "CPU", kept)
        return core.compile_model(model, "CPU", hints)


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

    module, pools, special_tokens = "Transformer", False, True

    def __init__(self, folder: Path, config: EncoderConfig, kept: Kept):
        self._folder, self.config, self.kept = folder, config, kept

    @functools.cached_property
    def read(self) -> Any:
        """The module."""
        return _load(self._folder)[0]


def _load(folder: Path) -> tuple[Any, EncoderConfig, Path]:
    from jaxwhiten.models.loading import load_model

    return load_model(folder, narrow=True)


def load(folder: Path) -> tuple[Any, EncoderConfig, Path]:
    """`load_model`, but with an `Unread` instead of an encoder whose graphs can be kept."""
    if (kept := Kept.of(folder)) is None:
        return _load(folder)
    made: list[Any] = []

    def pooler() -> str:
        made.append(_load(folder))
        return str(made[0][1].pooler)

    has_pooler = kept.text("pooler", pooler) == str(True)
    where = folders.transformer_folder(folder)
    config = made[0][1] if made else dataclasses.replace(folders.load_config(where), pooler=has_pooler)
    unread = Unread(folder, config, kept)
    if made:
        unread.read = made[0][0]
    return unread, config, where
