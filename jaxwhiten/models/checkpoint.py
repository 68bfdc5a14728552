"""Reading and writing weights: safetensors (single or sharded) and Flax msgpack; nothing is unpickled.

Tensors of every format get their PyTorch names (`….weight`, `….bias`), which the family maps to our parameter paths.
Shapes are checked before any tensor is read. Safetensors files are memory-mapped, read and released block by block, so
that weights of any dtype need no more memory than the resulting arrays.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.arrays import blocks, release_pages
from jaxwhiten.errors import ModelError
from jaxwhiten.lazy import DTypeLike, flax, nnx
from jaxwhiten.models.family import Family, Part

SAFETENSORS, SAFETENSORS_INDEX, MSGPACK = "model.safetensors", "model.safetensors.index.json", "flax_model.msgpack"
STATIC = "StaticEmbedding"  # what sentence-transformers calls a static encoder
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.ckpt")

# Last part of our parameter path -> last part in a checkpoint, newest name first.
_LEAVES = {
    "kernel": ("weight",),
    "embedding": ("weight",),
    "scale": ("weight", "gamma"),
    "bias": ("bias", "beta"),
    "w1": ("mlp.w1",),  # of experts
    "w2": ("mlp.w2",),
}

_DTYPES = dict(F64="f8", F32="f4", F16="f2", BF16="bfloat16", I64="i8", I32="i4", U32="u4", U16="u2")
Shape = tuple[int, ...]
# name -> (shape, reader of the array)
Tensors = Mapping[str, tuple[Shape, Callable[[], Any]]]


def load_parameters(folder: Path, family: Family, abstract: Any, dtype: DTypeLike = np.float32) -> dict[str, Any]:
    """The weights of a folder as nested dictionaries of numpy arrays of `dtype`; `abstract` holds shapes only.

    A missing pooler is left out, because many checkpoints are published without it. A ModelError names file and tensor
    if a tensor is missing, has another shape, or is not finite.
    """
    tensors, where = open_weights(folder)
    word = f"{family.names['embeddings.word']}.weight"
    prefix = next((prefix for prefix in family.prefixes if prefix + word in tensors), family.prefixes[0])
    flat = flax.traverse_util.flatten_dict(nnx.to_pure_dict(abstract))
    missing, found = {}, {}
    for path, leaf in flat.items():
        sources = [source._replace(name=prefix + source.name) for source in _sources(path, family)]
        source = next((source for source in sources if source.name in tensors), None)
        if source is None:
            missing[path] = sources[0].name
            continue
        expected = tuple(leaf.shape[::-1]) if path[-1] == "kernel" else tuple(leaf.shape)
        expected = (expected[0] * source.parts, *expected[1:])
        _check_shape(tensors, source.name, expected, where)
        found[path] = (source, expected)
    if any(path[0] != "pooler" for path in missing):
        raise _missing(list(missing.values()), where)
    arrays = {}
    for path, (source, shape) in found.items():
        if missing and path[0] == "pooler":
            continue
        rows = shape[0] // source.parts
        part, turned = slice(rows * source.part, rows * (source.part + 1)), path[-1] == "kernel"
        arrays[path] = read_tensor(tensors, source.name, shape, where, dtype, part, turned)
    return flax.traverse_util.unflatten_dict(arrays)


def _missing(names: list[str], where: Path) -> ModelError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return ModelError(f"{where}: tensor {names[0]!r}{more} is missing; the file is not complete for its config.json.")


def _check_shape(tensors: Tensors, name: str, expected: Shape, where: Path) -> None:
    if name not in tensors:
        raise _missing([name], where)
    if tensors[name][0] != expected:
        raise ModelError(f"{where}: tensor {name!r} has shape {tensors[name][0]}; config.json asks for {expected}.")


def read_tensor(
    tensors: Tensors, name: str, shape: Shape, where: Path, dtype: Any = np.float32, part: Any = ..., turn: bool = False
) -> np.ndarray:
    """Reads a tensor or a part of it; ModelError for another shape, a dtype without floats, NaN and infinities."""
    _check_shape(tensors, name, shape, where)
    try:
        array = np.asarray(tensors[name][1]())[part]
    except Exception as error:  # an unknown dtype, or a file that changed since it was opened
        raise ModelError(f"{where}: tensor {name!r} cannot be read ({error}).") from error
    if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
        raise ModelError(f"{where}: tensor {name!r} has dtype {array.dtype}; expected a floating-point type.")
    read = _aligned(array.shape[::-1] if turn else array.shape, dtype)
    rows = read.T if turn else read
    for block in blocks(len(array), max((1 << 22) // max(math.prod(array.shape[1:]), 1), 1)):
        with np.errstate(over="ignore"):  # values that overflow are refused below
            rows[block] = array[block]
        release_pages(array[block])
        if not np.isfinite(rows[block]).all():
            raise ModelError(f"{where}: tensor {name!r} has NaN or infinite values.")
    return read


def _aligned(shape: Shape, dtype: DTypeLike) -> np.ndarray:
    """An empty array aligned to 64 bytes, which JAX on a CPU uses without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def _sources(path: tuple[Any, ...], family: Family) -> Iterator[Part]:
    """Names, without prefix, of the parameter `path` in published checkpoints; the first name is the one written."""
    parts = [str(part) for part in path]
    number = next((part for part in parts if part.isdigit()), "")
    places = family.names[".".join("*" if part.isdigit() else part for part in parts[:-1])]
    for place in (places,) if isinstance(places, str | Part) else places:
        part = Part(place, 0, 1) if isinstance(place, str) else place
        for leaf in _LEAVES[parts[-1]]:
            yield part._replace(name=f"{part.name.replace('*', number)}.{leaf}")


def static_folder(folder: Path) -> Path | None:
    """Where the table of a static encoder's folder lies; None for other folders."""
    try:
        first = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[0]
        kind, path = str(first["type"]), str(first["path"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None  # no list of modules, or one that `head.folder` refuses
    if kind.rpartition(".")[2] != STATIC:
        return None
    return folder if path in ("", ".") else io.below(folder, path, ModelError)


def weight_files(folder: Path) -> list[Path]:
    """The files that `open_weights` reads."""
    names = (SAFETENSORS, SAFETENSORS_INDEX, MSGPACK)
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        open_weights(folder)  # refuses the folder
    assert file is not None
    return [file, *_shards(file)] if file.name == SAFETENSORS_INDEX else [file]


def open_weights(folder: Path) -> tuple[Tensors, Path]:
    """The tensors of a folder, read lazily, and their file."""
    readers = {SAFETENSORS: _open_safetensors, SAFETENSORS_INDEX: _open_sharded, MSGPACK: _open_msgpack}
    for name, reader in readers.items():
        if (folder / name).is_file():
            return reader(folder / name), folder / name
    pickled = next((name for name in _PICKLED if (folder / name).exists()), None)
    if pickled:
        raise ModelError(
            f"{folder / pickled}: pickled weights can run code when they are read, so jaxwhiten does not read them. "
            "Save them as safetensors first: AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)."
        )
    raise ModelError(f"{folder}: no weights; expected {SAFETENSORS}, {SAFETENSORS_INDEX} or {MSGPACK}.")


def _open_safetensors(path: Path) -> Tensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:  # it checks the header
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        data: np.ndarray = np.memmap(path, np.uint8, mode="r")
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        entries, data = json.loads(data[8:begin].tobytes()), data[begin:]
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable safetensors file ({error}); download it again.") from error

    def mapped(name: str) -> np.ndarray:
        part, dtype = slice(*entries[name]["data_offsets"]), _DTYPES[entries[name]["dtype"]]
        return data[part].view(dtype).reshape(shapes[name])

    return {name: (shape, functools.partial(mapped, name)) for name, shape in shapes.items()}


def _shards(index: Path) -> list[Path]:
    """The shards that an index names, which are there."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a shard's name is not text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index}: not a readable index of shards ({error}); download it again.") from error
    for name in names:
        if not os.path.isfile(io.below(index.parent, name, ModelError)):
            raise ModelError(f"{index}: shard {name!r:.80} is missing; download it again.")
    return [index.parent / name for name in names]


def _open_sharded(index: Path) -> Tensors:
    tensors: dict[str, Any] = {}
    for file in _shards(index):
        tensors.update(_open_safetensors(file))
    return tensors


def _open_msgpack(path: Path) -> Tensors:
    from flax.serialization import msgpack_restore

    try:
        tree = msgpack_restore(path.read_bytes())
        flat = flax.traverse_util.flatten_dict(tree, sep=".")
        arrays = {name: np.asarray(value) for name, value in flat.items()}
    except Exception as error:  # msgpack raises many types on damaged input
        raise ModelError(f"{path}: not a readable Flax msgpack file ({error}); download it again.") from error
    tensors = {}
    for name, array in arrays.items():
        stem, _, leaf = name.rpartition(".")
        if leaf == "kernel":
            array, leaf = array.T, "weight"
        elif leaf in ("scale", "embedding"):
            leaf = "weight"
        tensors[f"{stem}.{leaf}"] = (tuple(array.shape), lambda array=array: array)
    return tensors


def to_tensors(family: Family, state: nnx.State[Any, Any], dtype: str, prefix: str = "") -> dict[str, np.ndarray]:
    """A state as tensors with their Hugging Face names; the inverse of `load_parameters`."""
    parts: dict[str, dict[int, np.ndarray]] = {}
    for path, leaf in flax.traverse_util.flatten_dict(nnx.to_pure_dict(state)).items():
        source = next(_sources(path, family))
        array = np.asarray(leaf).astype(dtype)
        parts.setdefault(prefix + source.name, {})[source.part] = array.T if path[-1] == "kernel" else array
    return {
        name: np.ascontiguousarray(np.concatenate([pieces[part] for part in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def save_folder(
    folder: str | Path, raw: Mapping[str, Any], tensors: Mapping[str, np.ndarray], dtype: str = "float32"
) -> None:
    """Writes `config.json` from `raw`, and `model.safetensors`, and replaces the folder as a whole."""
    from safetensors.numpy import save_file

    with io.whole_folder(folder) as whole:
        io.write_json(whole / "config.json", {**raw, "dtype": dtype})
        with io.atomic_path(whole / SAFETENSORS) as temporary:
            save_file(dict(tensors), temporary, metadata={"format": "pt"})
