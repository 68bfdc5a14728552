"""Files: atomic writes, checksums, cache keys, and the one tensor-file format of the project.

This is the only module that renames files. A tensor file is a safetensors file whose metadata carries a JSON header:
kind, format version, a checksum over the tensors' bytes, and whatever provenance the writer gave.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten._version import __version__
from jaxwhiten.errors import FormatError

FORMAT_VERSION = 1
_HEADER_KEY = "jaxwhiten"
_CHUNK = 1 << 20


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`; renames it over `path` when the block ends without an error.

    The file is flushed to disk before the rename, so that after a crash `path` holds either the old content or
    the new, never a part. On an error the temporary file is removed and `path` is left as it was.

    Args:
      path: The file to be written. Its folder is made if it is missing.

    Yields:
      The path to write to, on the same file system.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes UTF-8 text atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes JSON atomically, indented; NaN and infinities are refused because JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], *, kind: str, header: Mapping[str, Any]
) -> None:
    """Writes named arrays and a JSON header as one safetensors file, atomically.

    Args:
      path: The file to write.
      tensors: Arrays by name.
      kind: What the file is, such as `"moments"`; `load_tensors` asks for the same kind back.
      header: JSON-representable provenance.
    """
    from safetensors.numpy import save_file

    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    full = {
        "kind": kind,
        "format_version": FORMAT_VERSION,
        "checksum": _tensor_checksum(arrays),
        "jaxwhiten_version": __version__,
        **header,
    }
    with atomic_path(path) as temporary:
        save_file(arrays, temporary, metadata={_HEADER_KEY: json.dumps(full, ensure_ascii=False)})


def load_tensors(
    path: str | os.PathLike[str], *, kind: str | tuple[str, ...]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a file written by `save_tensors` and verifies kind, version and checksum.

    Args:
      path: The file to read.
      kind: The kind the caller expects, or several; the header says which it is.

    Returns:
      The arrays by name, and the header.

    Raises:
      FormatError: The file is missing, truncated, damaged, of another kind, or from a newer version.
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
        version, found, checksum = int(header["format_version"]), header["kind"], header["checksum"]
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"{path}: not a readable jaxwhiten {expected} file ({error}). Write it again.") from error
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path}: format version {version}; this jaxwhiten reads up to {FORMAT_VERSION}. Upgrade jaxwhiten."
        )
    if found not in kinds:
        raise FormatError(f"{path}: holds a {found!r}, not a {' or a '.join(map(repr, kinds))}.")
    if checksum != _tensor_checksum(tensors):
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return tensors, header
