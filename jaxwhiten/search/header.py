"""The folder of an index: its header and the files that the header names, checked when read and replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, TypedDict

from jaxwhiten import io, records
from jaxwhiten._version import __version__
from jaxwhiten.errors import REASON, Bounds, FormatError, InputError, MismatchError, turning
from jaxwhiten.locks import LOCK
from jaxwhiten.parameters import bounded
from jaxwhiten.space import VectorSpace

HEADER, FITTED = "header.json", "fitted.safetensors"
KIND = "index"
# Files that a killed `save` leaves in a new folder.
LEFTOVER = re.compile(r"\.lock|\.writing\..*|\.header\.json\..*\.tmp|\w+-[0-9a-f]{12}\.\w+")
_AGAIN = "Rebuild the index."
_NEEDED = ("model", "fingerprint", "pooling", "max_length")  # entries of `encoding`
_OF_CODES = {"bytes": Bounds(1), "coordinates": Bounds(1), "length": Bounds(0.0, 1e9, above=True, below=True)}


class _Codes(TypedDict):
    name: str
    bytes: int  # per document
    length: float  # root mean square of the lengths of decoded documents


class Codes(_Codes, total=False):
    """The codes of an index; those of version 0.1, which include a whitening, have no `coordinates`."""

    coordinates: int  # columns of the product quantizer


class File(TypedDict):
    name: str
    bytes: int
    sha256: str


@dataclass(kw_only=True)
class About:
    """The description of an index, in memory and in its header."""

    backend: str
    options: dict[str, Any]  # of the backend, as used
    size: int = bounded(MISSING, 1)  # number of documents
    input_dimension: int = bounded(MISSING, 1)  # of a raw vector
    dimension: int = bounded(MISSING, 1)  # of a stored vector
    encoding: dict[str, Any] | None  # of the documents (`Encoder.encoding`), or None if unknown
    whitening: dict[str, Any] | None  # hash, dimension and provenance of the one inside the index
    codes: Codes | None  # the code of the documents; None for float32
    rescore: str | None  # copy by which candidates of a search are scored again: "float16", "int8" or None
    notes: list[str]  # for the user: an option was lowered, a sample was taken
    build_seconds: float = bounded(MISSING, 0.0)


@dataclass(kw_only=True)
class Header(About):
    """A header read from a folder, with unit length, the files by their content, and the checksum."""

    checksum: str
    normalize: bool
    files: dict[str, File]


def check_index_folder(path: os.PathLike[str] | str) -> Path:
    """The real path of a folder that `Index.save` may write; InputError if it is read-only or not an index."""
    folder = io.replaceable(path)
    str(folder).encode()  # UnicodeEncodeError: FAISS opens only names in UTF-8
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path}: is a file; an index is a folder.")
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    ours = HEADER in names or all(map(LEFTOVER.fullmatch, names))
    with contextlib.suppress(FormatError):  # there is none, or it is damaged
        ours = records.read(folder / HEADER, dict[str, Any]).get("kind") == KIND
    if not ours:
        raise InputError(f"{path}: is not empty and not an index; nothing was written. Specify a new or empty folder.")
    return folder


def read_header(folder: str | os.PathLike[str]) -> Header:
    """The header of an index folder; FormatError if it is missing, damaged or of another version."""
    path = io.below(Path(folder), HEADER)
    if not path.is_file():
        raise FormatError(f"{path}: no such file; expected an index folder.")
    record = records.read(path, dict[str, Any], _AGAIN)
    if record.get("kind", KIND) != KIND:
        raise FormatError(f"{path}: describes a {record['kind']!r}; expected an index.")
    io.check_version(path, record)
    header = _typed(record, path)
    if record.get("checksum") != io.seal(record)["checksum"]:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return header


def _typed(record: Any, path: Path) -> Header:
    """The header; FormatError if an entry has an impossible type or size."""
    header: Header = records.from_json(Header, record, path, _AGAIN, others=True)
    with turning(FormatError, f"{path}: could not be written again ({REASON}). {_AGAIN}", ValueError):
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    if header.encoding is not None:
        space = records.from_json(VectorSpace, header.encoding, f"{path}: encoding", _AGAIN, others=True)
        if lacking := [name for name in _NEEDED if getattr(space, name) is None]:
            raise FormatError(f"{path}: encoding: {lacking[0]}: missing. {_AGAIN}")
    codes: Mapping[str, Any] = header.codes or {}
    for name, bounds in _OF_CODES.items():
        if not bounds.hold(codes.get(name, 1)):
            raise FormatError(f"{path}: codes: {name}: expected {bounds.words}. {_AGAIN}")
    return header


def read_documents(path: Path, size: int) -> list[str]:
    """The texts of an index, one per line and vector."""
    texts = records.read_lines(path, str, _AGAIN)
    if len(texts) != size:
        raise FormatError(f"{path}: does not contain {size} documents, one per vector. {_AGAIN}")
    return texts


def verified(folder: Path, entry: File) -> Path:
    """The path of one file of an index, after its size and checksum are compared with the header."""
    path = io.below(folder, entry["name"])
    if not os.path.isfile(path):
        raise FormatError(f"{folder / HEADER}: names the file {path.name!r:.80}, which is missing. {_AGAIN}")
    if (size := path.stat().st_size) != entry["bytes"]:
        raise FormatError(f"{path}: {size} bytes, expected {entry['bytes']}: truncated or overwritten.")
    if io.sha256_file(path) != entry["sha256"]:
        raise FormatError(f"{path}: checksum does not match, the file was damaged after it was written.")
    return path


def replace_files(
    folder: Path, about: Mapping[str, Any], write: Callable[[Path], None], seen: str | None = None
) -> str:
    """Replaces the index in a locked folder; the old index stays whole until the new header names the files of `write`.

    Returns the checksum of the header. MismatchError if `seen` is given and the folder has another header by now.
    """
    current = None
    with contextlib.suppress(FormatError):
        current = read_header(folder).checksum
    if seen is not None and current not in (None, seen):
        raise MismatchError(
            f"{folder}: another writer has changed the index since it was loaded, and would lose its work. Load"
            " it again and repeat your change, both within jaxwhiten.search.locked, or save to a different folder."
        )
    io.remove_stale(folder, ".writing.*")
    new: list[Path] = []
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing.") as temporary:
            write(Path(temporary))
            files: dict[str, File] = {}
            for path in sorted(Path(temporary).iterdir()):
                digest = io.sha256_file(path)
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())
                place = folder / f"{path.stem}-{digest[:12]}{path.suffix}"
                files[path.name] = {"name": place.name, "bytes": path.stat().st_size, "sha256": digest}
                if not place.exists():
                    new.append(place)
                os.replace(path, place)
        header = {"kind": KIND, "format_version": io.FORMAT_VERSION, "jaxwhiten_version": __version__, **about}
        header = io.seal(json.loads(json.dumps(header | {"files": files})))
        _typed(header, folder / HEADER)
        io.write_json(folder / HEADER, header)
    except Exception:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    keep = {HEADER, LOCK, *(entry["name"] for entry in files.values())}
    for old in folder.iterdir():
        if old.is_file() and old.name not in keep and LEFTOVER.fullmatch(old.name):
            old.unlink(missing_ok=True)
    return str(header["checksum"])
