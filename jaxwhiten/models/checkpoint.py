"""Weights in and out: safetensors (single or sharded) and Flax msgpack; nothing is ever unpickled.

Whatever the file, tensors are first given their PyTorch-style names (`….weight`, `….bias`), then mapped to our
parameter paths by the family's name table. Shapes are checked before any tensor is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx, traverse_util

from jaxwhiten import io
from jaxwhiten.errors import ModelError
from jaxwhiten.models.registry import Family

SAFETENSORS, SAFETENSORS_INDEX, MSGPACK = "model.safetensors", "model.safetensors.index.json", "flax_model.msgpack"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.ckpt")

# Last part of our parameter path -> last part in a checkpoint, newest name first.
_LEAVES = {
    "kernel": ("weight",),
    "embedding": ("weight",),
    "scale": ("weight", "gamma"),
    "bias": ("bias", "beta"),
}

# name -> (shape, a function that reads it)
Tensors = Mapping[str, tuple[tuple[int, ...], Callable[[], np.ndarray]]]


def load_parameters(folder: Path, family: Family, abstract: nnx.State) -> dict[str, Any]:
    """Reads a folder's weights into a state.

    Args:
      folder: Holds `model.safetensors`, its sharded index, or `flax_model.msgpack`.
      family: Name table and prefixes.
      abstract: The model's state with shapes only.

    Returns:
      The state as nested dictionaries of float32 numpy arrays.

    Raises:
      ModelError: No readable weights, a missing or mis-shaped tensor, a NaN; the message names file and tensor.
    """
    tensors, where = _open_weights(folder)
    prefix = _prefix(tensors, family)
    flat = traverse_util.flatten_dict(nnx.to_pure_dict(abstract))
    missing, values = [], {}
    for path, leaf in flat.items():
        names = [prefix + name for name in tensor_names(path, family)]
        name = next((n for n in names if n in tensors), None)
        if name is None:
            missing.append(names[0])
            continue
        shape, read = tensors[name]
        transpose = path[-1] == "kernel"
        expected = tuple(leaf.shape[::-1]) if transpose else tuple(leaf.shape)
        if shape != expected:
            raise ModelError(f"{where}: tensor {name!r} has shape {shape}; config.json asks for {expected}.")
        values[path] = (name, read, transpose)
    if missing and all(name.startswith(f"{prefix}pooler.") for name in missing):
        raise _NoPooler
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{where}: tensor {missing[0]!r}{more} is missing; the file is not complete for its config.json."
        )
    return _read_all(values, where)


class _NoPooler(Exception):
    """The only weights missing are the pooler's: many checkpoints are published without it."""


def _read_all(values: dict[tuple, tuple], where: Path) -> dict[str, Any]:
    arrays = {}
    for path, (name, read, transpose) in values.items():
        array = read()
        if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
            raise ModelError(f"{where}: tensor {name!r} has dtype {array.dtype}; expected a floating-point type.")
        array = np.asarray(array, dtype=np.float32)
        if not np.isfinite(array).all():
            raise ModelError(f"{where}: tensor {name!r} has NaN or infinite values.")
        arrays[path] = np.ascontiguousarray(array.T) if transpose else array
    return traverse_util.unflatten_dict(arrays)


def tensor_names(path: tuple, family: Family) -> Iterator[str]:
    """The names, newest first, under which published checkpoints hold our parameter `path` (without a prefix)."""
    parts = [str(part) for part in path]
    number = next((part for part in parts if part.isdigit()), None)
    stem = ".".join("*" if part.isdigit() else part for part in parts[:-1])
    base = family.names[stem] if number is None else family.names[stem].replace("*", number)
    for leaf in _LEAVES[parts[-1]]:
        yield f"{base}.{leaf}"


def _prefix(tensors: Tensors, family: Family) -> str:
    """The prefix this checkpoint puts before its names: the one under which the word embedding is found."""
    word = f"{family.names['embeddings.word']}.weight"
    return next((prefix for prefix in family.prefixes if prefix + word in tensors), family.prefixes[0])


def _open_weights(folder: Path) -> tuple[Tensors, Path]:
    if (folder / SAFETENSORS).is_file():
        return _open_safetensors(folder / SAFETENSORS), folder / SAFETENSORS
    if (folder / SAFETENSORS_INDEX).is_file():
        return _open_sharded(folder / SAFETENSORS_INDEX), folder / SAFETENSORS_INDEX
    if (folder / MSGPACK).is_file():
        return _open_msgpack(folder / MSGPACK), folder / MSGPACK
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
        with safe_open(path, framework="flax") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a readable safetensors file ({error}); download it again.") from error

    def reader(name: str) -> Callable[[], np.ndarray]:
        def read() -> np.ndarray:
            with safe_open(path, framework="flax") as file:  # "flax" rather than "numpy": it knows bfloat16
                return np.asarray(file.get_tensor(name))

        return read

    return {name: (shape, reader(name)) for name, shape in shapes.items()}


def _open_sharded(index: Path) -> Tensors:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index}: not a readable index of shards ({error}); download it again.") from error
    tensors: dict = {}
    for name in files:
        if Path(name).name != name:
            raise ModelError(f"{index}: shard {name!r} lies outside the folder.")
        if not (index.parent / name).is_file():
            raise ModelError(f"{index}: shard {name!r} is missing; download it again.")
        tensors.update(_open_safetensors(index.parent / name))
    return tensors


def _open_msgpack(path: Path) -> Tensors:
    from flax.serialization import msgpack_restore

    try:
        tree = msgpack_restore(path.read_bytes())
        flat = traverse_util.flatten_dict(tree, sep=".")
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


def save_parameters(path: Path, family: Family, state: nnx.State, dtype: np.dtype | str = "float32") -> None:
    """Writes a state as one safetensors file with the Hugging Face names, atomically.

    Args:
      path: The file to write.
      family: Name table.
      state: The model's parameters.
      dtype: `"float32"` or `"float16"`.
    """
    from safetensors.numpy import save_file

    tensors = {}
    for key, leaf in traverse_util.flatten_dict(nnx.to_pure_dict(state)).items():
        array = np.asarray(leaf).astype(dtype)
        tensors[next(tensor_names(key, family))] = np.ascontiguousarray(array.T if key[-1] == "kernel" else array)
    with io.atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
