"""Checksums, cache keys, and the one tensor-file format of the project.

A tensor file is a safetensors file whose metadata carries a JSON header: kind, format version, a checksum over the
tensors' bytes, and the provenance that the writer gave.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from jaxwhiten._version import __version__
from jaxwhiten.errors import REASON, Bounds, FormatError, turning
from jaxwhiten.io.files import HEADER_KEY, PathLike, atomic_path, check_file, existing
from jaxwhiten.io.records import from_json, parse_json
from jaxwhiten.types import Fields, Json

FORMAT_VERSION = 1


class _Header(TypedDict):
    """What every tensor file records."""

    kind: str
    checksum: str


def sha256_file(path: PathLike) -> str:
    """SHA-256 of a file's bytes, in hexadecimal.

    >>> sha256_file("texts.txt")[:8]
    'd29e10b6'
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashed(parts: Iterable[bytes]) -> str:
    """SHA-256 of bytes one after the other, in hexadecimal.

    >>> hashed([b"It ", b"rains."]) == hashed([b"It rains."])
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def content_key(*parts: object) -> str:
    """A short key (24 hexadecimal digits) that changes whenever one of the JSON-representable parts does.

    >>> content_key("tokens", 64) == content_key("tokens", 128)
    False
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _tensor_checksum(tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def seal(header: Fields, content: str = "") -> Json:
    """The header with a new checksum over itself and over `content`, the data that it describes.

    >>> sorted(seal({"rows": 2}))
    ['checksum', 'rows']
    """
    rest = {key: value for key, value in header.items() if key != "checksum"}
    text = json.dumps([rest, content], sort_keys=True)
    return {**rest, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def check_seal(path: PathLike, header: Fields, content: str = "") -> None:
    """Raises FormatError unless a header has the checksum that `seal` gave it.

    >>> check_seal("rows.json", seal({"rows": 2}))
    """
    if header.get("checksum") != seal(header, content)["checksum"]:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")


def check_version(path: PathLike, header: Fields) -> None:
    """Raises FormatError for a header without the format version that is read.

    >>> check_version("new.safetensors", {"format_version": 2})
    Traceback (most recent call last):
        ...
    jaxwhiten.errors.FormatError: new.safetensors: format version 2; ...
    """
    version = header.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        newer = type(version) is int and version > FORMAT_VERSION
        remedy = "Upgrade jaxwhiten" if newer else "It is damaged: rewrite it"
        raise FormatError(f"{path}: format version {version}; this jaxwhiten reads version {FORMAT_VERSION}. {remedy}.")


def save_array(path: PathLike, array: np.ndarray) -> None:
    """Writes a `.npy` file atomically.

    >>> save_array("vectors.npy", np.zeros((2, 3)))
    """
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)


def map_array(path: PathLike) -> np.ndarray:
    """Memory-maps a `.npy` file; nothing is unpickled. Any malformed file is a ValueError.

    >>> save_array("vectors.npy", np.zeros((2, 3)))
    >>> map_array("vectors.npy").shape
    (2, 3)
    """
    if not os.path.isfile(path):  # opening a pipe would wait for ever
        raise FileNotFoundError(errno.ENOENT, "no such file")
    with turning(ValueError, f"not a readable .npy file ({REASON})"):  # malformed headers raise many types
        return np.lib.format.open_memmap(path, mode="r")


def save_tensors(path: PathLike, tensors: Mapping[str, np.ndarray], *, kind: str, header: Fields) -> None:
    """Writes named arrays and a JSON header of provenance to one safetensors file, atomically.

    `kind` names the content, such as `"moments"`; `load_tensors` expects the same kind.

    >>> save_tensors("mean.safetensors", {"mean": np.zeros(3)}, kind="mean", header={"rows": 2})
    """
    from safetensors.numpy import save_file

    check_file(path, kind)
    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    full = {"kind": kind, "format_version": FORMAT_VERSION, "jaxwhiten_version": __version__, **header}
    full = seal(json.loads(json.dumps(full)), _tensor_checksum(arrays))  # the checksum covers the header as read back
    with atomic_path(path) as temporary:
        save_file(arrays, temporary, metadata={HEADER_KEY: json.dumps(full, ensure_ascii=False)})


def take(
    tensors: Mapping[str, np.ndarray], dtype: str, *, finite: bool = True, **shapes: tuple[int, ...]
) -> list[np.ndarray]:
    """Arrays by name; KeyError for a missing one, ValueError for another dtype or shape, and NaN or infinities.

    >>> [mean] = take({"mean": np.zeros(3)}, "float64", mean=(3,))
    >>> mean.tolist()
    [0.0, 0.0, 0.0]
    """
    chosen = {name: tensors[name] for name in shapes}
    for name, array in chosen.items():
        if (array.shape, array.dtype) != (shapes[name], np.dtype(dtype)):
            got = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"dtypes or shapes do not fit: {name} is {got}, expected {dtype} of shape {shapes[name]}")
    if finite:
        finite_numbers(chosen)
    return list(chosen.values())


def finite_numbers(tensors: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError if a named array holds NaN or an infinity.

    >>> finite_numbers({"mean": np.zeros(3)})
    """
    for name, array in tensors.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} contains NaN or an infinity")


def within(name: str, numbers: Any, low: int | float, high: int | float | None = None) -> None:
    """Raises ValueError unless numbers of a file are from `low` to `high`.

    >>> within("rows", np.array([0, 2, 3]), 0, 9)
    """
    values = np.asarray(numbers)
    valid = (values >= low) & (values <= (np.inf if high is None else high))
    if not valid.all():
        raise ValueError(f"{name}: {values[~valid].flat[0]}, expected {Bounds(low, high).words}")


def same(name: str, value: object, expected: object) -> None:
    """Raises ValueError unless a value of a file is the expected one.

    >>> same("rows", 3, 3)
    """
    if value != expected:
        raise ValueError(f"{name}: {value!r:.80}, expected {expected!r:.80}")


def load_tensors(path: PathLike, *, kind: str | tuple[str, ...]) -> tuple[dict[str, np.ndarray], Json]:
    """Reads the arrays by name and the header of a file written by `save_tensors`.

    Raises FormatError if the file is missing, damaged, of another format version, or of another kind.

    >>> save_tensors("mean.safetensors", {"mean": np.zeros(3)}, kind="mean", header={"rows": 2})
    >>> tensors, header = load_tensors("mean.safetensors", kind="mean")
    >>> tensors["mean"].shape, header["rows"]
    ((3,), 2)
    """
    from safetensors import SafetensorError, safe_open

    kinds = (kind,) if isinstance(kind, str) else kind
    expected = " or ".join(kinds)
    path = existing(Path(path), expected=f"; expected a jaxwhiten {expected} file")
    kinds_raised = (SafetensorError, OSError, KeyError, ValueError, TypeError)
    with turning(
        FormatError, f"{path}: not a readable jaxwhiten {expected} file ({REASON}). Rewrite it.", *kinds_raised
    ):
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        text = metadata[HEADER_KEY]
    header = parse_json(text, dict[str, Any], path)
    fields = from_json(_Header, header, path)
    check_version(path, header)
    if fields["kind"] not in kinds:
        raise FormatError(f"{path}: contains a {fields['kind']!r}, not a {' or '.join(map(repr, kinds))}.")
    check_seal(path, header, _tensor_checksum(tensors))
    return tensors, header
