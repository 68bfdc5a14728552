"""Reading and writing weights: safetensors, single or sharded; nothing is unpickled.

Tensors have their PyTorch names (`….weight`, `….bias`), which the family maps to our parameter paths. Shapes are
checked before any tensor is read. Files are memory-mapped, read and released block by block, so that weights of any
dtype need no more memory than the resulting arrays.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import DTypeLike

from jaxwhiten import io
from jaxwhiten.arrays import blocks, release_pages
from jaxwhiten.errors import REASON, ModelError, turning
from jaxwhiten.models.family import Family, Part
from jaxwhiten.text.settings import ANEW, TransformerSettings
from jaxwhiten.types import Fields

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
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

_DTYPES = dict(F64="f8", F32="f4", F16="f2", BF16="bfloat16", I64="i8", I32="i4", I16="i2", I8="i1")
_DTYPES |= dict(U64="u8", U32="u4", U16="u2", U8="u1", BOOL="?")
_OWN = ("embeddings", "layers", "relative_bias", "final_norm")  # parts of an encoder that vectors depend on
_QUANTIZED = ("qweight", "scales", "absmax", "SCB")  # ends of names in files of GPTQ, AWQ and bitsandbytes
Shape = tuple[int, ...]
Tensors = Mapping[str, np.ndarray]  # memory-mapped
Place = tuple[Any, ...]  # of a parameter in our module
Sources = dict[Place, tuple[Part, Shape]]


class Module(TypedDict):
    """A row of `modules.json`."""

    type: str  # name of a class
    path: str  # of its folder; model2vec writes "." for the folder itself


class _Shards(TypedDict):
    weight_map: dict[str, str]


def load_parameters(
    folder: Path, family: Family, shapes: Mapping[Place, Shape], dtype: DTypeLike = np.float32
) -> dict[Place, np.ndarray]:
    """The weights of a folder as arrays of `dtype` by our parameter paths, see `match`; all must be finite."""
    tensors, where, sources, _ = match(folder, family, shapes)
    arrays = {}
    for path, (source, shape) in sources.items():
        rows = shape[0] // source.parts
        part = slice(rows * source.part, rows * (source.part + 1))
        turned = path[-1] == "kernel"
        arrays[path] = read_tensor(tensors, source.name, shape, where, dtype, part, turned)
    return arrays


def match(folder: Path, family: Family, shapes: Mapping[Place, Shape]) -> tuple[Tensors, Path, Sources, dict[str, int]]:
    """The tensor of each parameter, and modules outside the encoder, such as heads, with their numbers of tensors.

    A missing pooler is left out, because many checkpoints are published without it. A ModelError
    names file and tensor if a tensor is missing, has another shape, or is in the encoder and not used.
    """
    tensors, where = open_weights(folder)
    words = f"{family.names['embeddings.word']}.weight"
    prefix = next((prefix for prefix in family.prefixes if prefix + words in tensors), family.prefixes[0])
    found = dict[Place, Part]()
    for path in shapes:
        sources = [source._replace(name=prefix + source.name) for source in _sources(path, family)]
        found[path] = next((source for source in sources if source.name in tensors), sources[0])
    if any(path[0] == "pooler" and source.name not in tensors for path, source in found.items()):
        found = {path: source for path, source in found.items() if path[0] != "pooler"}
    matched = Sources()
    for path, source in found.items():
        expected = shapes[path][::-1] if path[-1] == "kernel" else shapes[path]
        expected = (expected[0] * source.parts, *expected[1:])
        _check_shape(tensors, source.name, expected, where)
        matched[path] = (source, expected)

    def module(name: str) -> str:
        inner = name.removeprefix(prefix)
        return name[: len(name) - len(inner)] + inner.partition(".")[0]

    def redundant(name: str) -> bool:
        """Whether a tensor is an integer buffer, rotary frequencies, or a copy of the word embeddings."""
        buffer = tensors[name].dtype.kind in "iub" or name.endswith("inv_freq")
        return buffer or np.array_equal(tensors[name], tensors[prefix + words])

    prefixes = {module(source.name) for path, (source, _) in matched.items() if path[0] in _OWN}
    unused = sorted(tensors.keys() - {source.name for source, _ in matched.values()})
    inside = [name for name in unused if module(name) in prefixes and not redundant(name)]
    if inside and not TransformerSettings.read(folder).config:  # which may specify fewer layers
        raise ModelError(
            f"{where}: tensor {inside[0]!r} is in the encoder, but its config.json has no place for it ({len(inside)}"
            " such tensors). Check model_type and the number of layers in config.json, or download it again."
        )
    return tensors, where, matched, dict(Counter(module(name) for name in unused if module(name) not in prefixes))


def by_path(state: Any) -> dict[Place, Any]:
    """The leaves of a state of Flax, by their paths and in their order."""
    from flax import nnx

    return {path: leaf.get_value() for path, leaf in nnx.to_flat_state(state)}


def shapes_of(state: Any) -> dict[Place, Shape]:
    """The shapes of a state's leaves."""
    return {path: tuple(leaf.shape) for path, leaf in by_path(state).items()}


def _check_shape(tensors: Tensors, name: str, expected: Shape, where: Path) -> None:
    if name not in tensors:
        raise ModelError(f"{where}: tensor {name!r} is missing; the file is not complete for its config.json.")
    if tensors[name].shape != expected:
        raise ModelError(
            f"{where}: tensor {name!r} has shape {tensors[name].shape}, expected {expected} by config.json."
        )


def read_tensor(
    tensors: Tensors,
    name: str,
    shape: Shape,
    where: Path,
    dtype: DTypeLike = np.float32,
    part: Any = ...,
    turn: bool = False,
) -> np.ndarray:
    """Reads a tensor or a part of it; ModelError for another shape, a dtype without floats, NaN and infinities."""
    _check_shape(tensors, name, shape, where)
    array = tensors[name][part]
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


def modules(folder: Path) -> list[Module]:
    """The rows of `modules.json`."""
    return io.read_json(folder / "modules.json", list[Module], ANEW, error=ModelError)


def weight_files(folder: Path) -> list[Path]:
    """The files that `open_weights` reads, and that which replaces keys of `config.json`, if one does."""
    _, file = open_weights(folder)
    settings = TransformerSettings.read(folder)
    shards = _shards(file) if file.name == SAFETENSORS_INDEX else []
    return [file, *shards, *([settings.file] if settings.config else [])]


def open_weights(folder: Path) -> tuple[Tensors, Path]:
    """The tensors of a folder and their file."""
    readers = {SAFETENSORS: _open_safetensors, SAFETENSORS_INDEX: _open_sharded}
    for name, reader in readers.items():
        if (folder / name).is_file():
            tensors = reader(folder / name)
            for tensor in tensors:
                if "lora_" in tensor or tensor.rpartition(".")[2] in _QUANTIZED:
                    raise ModelError(
                        f"{folder / name}: tensor {tensor!r} belongs to an adapter or to quantized weights, which are"
                        " not read. Save the model with its adapter merged, in float32, float16 or bfloat16."
                    )
            return tensors, folder / name
    pickled = next((name for name in _PICKLED if (folder / name).exists()), None)
    if pickled:
        raise ModelError(
            f"{folder / pickled}: pickled weights can run code when they are read, so jaxwhiten does not read them."
            " Save them as safetensors first: load the model in sentence-transformers or transformers, and save it by"
            " save_pretrained(NEW_FOLDER)."
        )
    raise ModelError(f"{folder}: no weights; expected {' or '.join(readers)}.")


def _open_safetensors(path: Path) -> Tensors:
    from safetensors import SafetensorError, safe_open

    kinds = (SafetensorError, OSError, ValueError)
    with turning(ModelError, f"{path}: not a readable safetensors file ({REASON}); download it again.", *kinds):
        safe_open(path, framework="numpy")  # it checks the header
        data: np.ndarray = np.asarray(np.memmap(path, np.uint8, mode="r"))
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        entries = json.loads(data[8:begin].tobytes())
    entries.pop("__metadata__", None)
    if other := sorted({entry["dtype"] for entry in entries.values()} - _DTYPES.keys()):
        raise ModelError(f"{path}: contains tensors of dtype {other[0]}, which is not read.")
    data = data[begin:]
    return {
        name: data[slice(*entry["data_offsets"])].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in entries.items()
    }


def _shards(index: Path) -> list[Path]:
    """The shards that an index names, which are there."""
    names = sorted(set(io.read_json(index, _Shards, ANEW, error=ModelError)["weight_map"].values()))
    for name in names:
        if not os.path.isfile(io.below(index.parent, name, ModelError)):
            raise ModelError(f"{index}: shard {name!r:.80} is missing; download it again.")
    return [index.parent / name for name in names]


def _open_sharded(index: Path) -> Tensors:
    return {name: tensor for file in _shards(index) for name, tensor in _open_safetensors(file).items()}


def to_tensors(family: Family, state: Any, dtype: str, prefix: str = "") -> dict[str, np.ndarray]:
    """A state as tensors with their Hugging Face names; the inverse of `load_parameters`."""
    parts: dict[str, dict[int, np.ndarray]] = {}
    for path, leaf in by_path(state).items():
        source = next(_sources(path, family))
        array = np.asarray(leaf).astype(dtype)
        parts.setdefault(prefix + source.name, {})[source.part] = array.T if path[-1] == "kernel" else array
    return {
        name: np.ascontiguousarray(np.concatenate([pieces[part] for part in sorted(pieces)]))
        for name, pieces in parts.items()
    }


def save_folder(folder: str | Path, raw: Fields, tensors: Mapping[str, np.ndarray], dtype: str = "float32") -> None:
    """Writes `config.json` from `raw`, and `model.safetensors`, and replaces the folder as a whole."""
    from safetensors.numpy import save_file

    with io.whole_folder(folder) as whole:
        io.write_json(whole / "config.json", {**raw, "dtype": dtype})
        with io.atomic_path(whole / SAFETENSORS) as temporary:
            save_file(dict(tensors), temporary, metadata={"format": "pt"})
