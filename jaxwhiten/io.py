"""Files: atomic writes, checksums, cache keys, and the one tensor-file format of the project.

This is the only module that renames files. A tensor file is a safetensors file whose metadata carries a JSON header:
kind, format version, a checksum over the tensors' bytes, and whatever provenance the writer gave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import interrupts
from jaxwhiten._version import __version__
from jaxwhiten.errors import FormatError, OutputError

FORMAT_VERSION = 2
_HEADER_KEY = "jaxwhiten"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STALE_SECONDS = 24 * 3600


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`; renames it over `path` when the block ends without an error.

    The file is flushed to disk before the rename, so that after a crash `path` holds either the old content or
    the new, never a part. On an error the temporary file is removed and `path` is left as it was. A missing folder is
    made. OutputError where it cannot be written to, or the disk is full.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise _not_written(path, error) from error
    interrupts.unfinished.add(name)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        try:
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            os.replace(temporary, path)
        except OSError as error:
            raise _not_written(path, error) from error
    except Exception as error:
        if isinstance(error, OutputError) or not _is_full_disk(error):
            raise
        raise _not_written(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
        interrupts.unfinished.discard(name)


def _is_full_disk(error: Exception) -> bool:
    """Whether the disk is to blame. NumPy raises OSError without a number, safetensors an error of its own."""
    if type(error) is OSError:
        return error.errno is None or error.errno in _NO_ROOM
    return type(error).__name__ == "SafetensorError"


def _not_written(path: Path, error: Exception) -> OutputError:
    reason = getattr(error, "strerror", None) or str(error)
    return OutputError(
        f"{path}: could not be written ({reason}); what was there before is intact. Make room, or choose another place."
    )


def remove_stale(folder: str | os.PathLike[str], pattern: str = ".*.tmp") -> None:
    """Removes temporary files and folders older than a day, which processes that were killed left in a folder."""
    for path in Path(folder).glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes UTF-8 text atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes JSON atomically, indented; NaN and infinities are refused because JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def to_json(value: Any) -> Any:
    """Dataclasses as dictionaries; NaN and infinities, which JSON has not, as None.

    A field whose default is None is left out where it is None.
    """
    if dataclasses.is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: to_json(item) for f, item in pairs if item is not None or f.default is not None}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(kind: Any, value: Any, where: object, remedy: str = "Write it again.", *, others: bool = False) -> Any:
    """A value read from JSON, checked against a type: the one check that a file holds what its program writes.

    Args:
      kind: A dataclass, a TypedDict, `list[...]`, `tuple[..., ...]`, `dict[str, ...]`, a union, `Any`, or a plain type.
        An int is taken for a float, and null for a NaN where None is not allowed.
      value: What `json.loads` gave.
      where: The place of the value, such as the path of its file, for the message.
      remedy: What to do, for the message.
      others: Whether keys that a dataclass or TypedDict does not name are left out, instead of refused.

    Raises:
      FormatError: The value is of another type; the message names the entry.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)

    def inner(kind: Any, value: Any, at: str) -> Any:
        return from_json(kind, value, f"{where}{at}", remedy, others=others)

    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        plain = [kind for kind in arguments if isinstance(kind, type) and type(value) is kind]
        return inner((plain or [kind for kind in arguments if kind is not types.NoneType])[0], value, "")
    if kind is Any:
        return value
    if kind is float and (value is None or isinstance(value, int | float)):
        return math.nan if value is None else float(value)
    typed = typing.is_typeddict(kind)
    if typed or dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            hints = typing.get_type_hints(kind)
            if typed:
                needed = set(kind.__required_keys__)
            else:
                missing = dataclasses.MISSING
                fields = dataclasses.fields(kind)
                needed = {f.name for f in fields if f.default is missing and f.default_factory is missing}
            wrong = sorted(needed - set(value) | (set() if others else set(value) - set(hints)))
            if not wrong:
                known = {name: item for name, item in value.items() if name in hints}
                return kind(**{name: inner(hints[name], item, f": {name}") for name, item in known.items()})
            where = f"{where}: {', '.join(wrong)}"
    elif origin is dict and isinstance(value, dict):
        return {key: inner(arguments[1], item, f": {key}") for key, item in value.items()}
    elif origin in (list, tuple) and isinstance(value, list):
        return origin(inner(arguments[0], item, f", item {i}") for i, item in enumerate(value))
    elif origin is None and isinstance(value, kind):
        return value
    raise FormatError(f"{where}: not what this version of jaxwhiten writes there. {remedy}")


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_key(*parts: Any) -> str:
    """A short key (24 hexadecimal digits) that changes whenever one of the JSON-representable parts does."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def cache_dir(*names: str) -> Path:
    """A folder under the cache: `$JAXWHITEN_CACHE_DIR`, else `$XDG_CACHE_HOME/jaxwhiten`, else `~/.cache/jaxwhiten`."""
    root = os.environ.get("JAXWHITEN_CACHE_DIR")
    if not root:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache"), "jaxwhiten")
    return Path(root).joinpath(*names)


def _tensor_checksum(tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def seal(header: Mapping[str, Any], content: str = "") -> dict[str, Any]:
    """The header with a checksum, put in place of any, over itself and over `content`, what it describes."""
    rest = {key: value for key, value in header.items() if key != "checksum"}
    text = json.dumps([rest, content], sort_keys=True)
    return {**rest, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def check_version(path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
    """FormatError for a header of another format version than this jaxwhiten writes; ValueError if it has none."""
    version = header["format_version"]
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"format version {version!r}")
    if version != FORMAT_VERSION:
        remedy = "Upgrade jaxwhiten" if version > FORMAT_VERSION else "It is older than any release: write it again"
        raise FormatError(f"{path}: format version {version}; this jaxwhiten reads version {FORMAT_VERSION}. {remedy}.")


def save_array(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Writes a `.npy` file atomically."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)


def map_array(path: str | os.PathLike[str]) -> np.ndarray:
    """Memory-maps a `.npy` file; nothing is unpickled. Whatever else the file holds, the error is a ValueError."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError):
        raise
    except Exception as error:  # malformed headers: TypeError, OverflowError, MemoryError, RecursionError, ...
        raise ValueError(f"not a readable .npy file ({type(error).__name__}: {str(error)[:200]})") from error


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], *, kind: str, header: Mapping[str, Any]
) -> None:
    """Writes named arrays and a JSON header of provenance as one safetensors file, atomically.

    `kind` says what the file is, such as `"moments"`; `load_tensors` asks for the same kind back.
    """
    from safetensors.numpy import save_file

    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    full = {"kind": kind, "format_version": FORMAT_VERSION, "jaxwhiten_version": __version__, **header}
    full = seal(json.loads(json.dumps(full)), _tensor_checksum(arrays))  # sealed as it will be read
    with atomic_path(path) as temporary:
        save_file(arrays, temporary, metadata={_HEADER_KEY: json.dumps(full, ensure_ascii=False)})


def load_tensors(
    path: str | os.PathLike[str], *, kind: str | tuple[str, ...]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays by name and the header of a file written by `save_tensors`.

    FormatError where it is missing, damaged, of another format version, or not of the kind or kinds wanted.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    kinds = (kind,) if isinstance(kind, str) else kind
    expected = " or ".join(kinds)
    if not path.is_file():
        raise FormatError(f"{path}: no such file; expected a jaxwhiten {expected} file.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = json.loads(metadata[_HEADER_KEY])
        found, checksum = header["kind"], header["checksum"]
        check_version(path, header)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{path}: not a readable jaxwhiten {expected} file ({error}). Write it again.") from error
    if found not in kinds:
        raise FormatError(f"{path}: holds a {found!r}, not a {' or '.join(map(repr, kinds))}.")
    if checksum != seal(header, _tensor_checksum(tensors))["checksum"]:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return tensors, header
