"""The folder of an index: its header and the files that the header names, checked when read and replaced as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from jaxwhiten import io, records
from jaxwhiten._version import __version__
from jaxwhiten.errors import REASON, Bounds, FormatError, InputError, MismatchError, turning
from jaxwhiten.locks import LOCK
from jaxwhiten.options import bounded
from jaxwhiten.search.strings import Lines, Strings
from jaxwhiten.space import VectorSpace
from jaxwhiten.types import Fields, Int64, Json

HEADER = "header.json"
FITTED = "fitted.safetensors"
DOCUMENTS = "documents.jsonl"
ENDS = "documents_ends.npy"
METADATA = "metadata.jsonl"
METADATA_ENDS = "metadata_ends.npy"
NUMBERS = "ids.npy"
STRINGS = "ids.jsonl"
ID_ENDS = "ids_ends.npy"
REMOVED = "removed.npy"
# What backends keep of each document: codes, their inverted lists, vectors, and a copy to rescore by.
CODES = "codes.npy"
LISTS = "lists.npy"
VECTORS = "vectors.npy"
COPY = "rescore.npy"
OF_TEXTS = {DOCUMENTS, ENDS, METADATA, METADATA_ENDS, NUMBERS, STRINGS, ID_ENDS}
STORED = {CODES, LISTS, VECTORS, COPY}
KIND = "index"
_OF_IDS = {NUMBERS, STRINGS}
_SHARED = ("backend", "options", "input_dimension", "dimension", "whitening", "rescore", "normalize")
_MAPPED = (".npy", ".jsonl")
_WHOLE = 64 << 20  # bytes of a file up to which it is read to be verified; of a larger one, this is its start
# Files that a killed `save` leaves in a new folder.
LEFTOVER = re.compile(r"\.lock|\.writing\..*|\.header\.json\..*\.tmp|\w+-[0-9a-f]{12}\.\w+")
_AGAIN = "Rebuild the index."
_NEEDED = ("model", "fingerprint", "pooling", "max_length")  # entries of `encoding`
_OF_CODES = {"bytes": Bounds(1), "coordinates": Bounds(1), "length": Bounds(0.0, 1e9, above=True, below=True)}


class Codes(TypedDict):
    """The codes of an index."""

    name: str
    bytes: int  # per document
    length: float  # root mean square of the lengths of decoded documents
    coordinates: int  # columns of the product quantizer


class File(TypedDict):
    name: str
    bytes: int
    sha256: str


class Segment(TypedDict):
    """The rows that one `save` added to a folder."""

    rows: int
    files: dict[str, File]


@dataclass(kw_only=True)
class About:
    """The description of an index, in memory and in its header."""

    backend: str
    options: Json  # of the backend, as used
    input_dimension: int = bounded(MISSING, 1)  # of a raw vector
    dimension: int = bounded(MISSING, 1)  # of a stored vector
    encoding: Json | None  # of the documents (`Encoder.encoding`), or None if unknown
    whitening: Json | None  # hash, dimension and provenance of the one inside the index
    codes: Codes | None  # the code of the documents; None for float32
    rescore: str | None  # copy by which candidates of a search are scored again: "float16", "int8" or None
    notes: list[str]  # for the user: an option was lowered, a sample was taken
    build_seconds: float = bounded(MISSING, 0.0)


@dataclass(kw_only=True)
class Header(About):
    """A header read from a folder, with unit length, the files by their content, and the checksum.

    An index that was changed has segments: the rows of `files` come first, those of each segment follow, and the
    removed ones, a file of int64 numbers in ascending order, are left out.
    """

    checksum: str
    size: int = bounded(MISSING, 1)  # number of documents
    normalize: bool
    files: dict[str, File]
    rows: int = bounded(0, 0)  # of `files`, if the index has segments or removed rows
    segments: list[Segment] = field(default_factory=list)
    removed: File | None = None
    next_id: int | None = None  # of an index that numbers its documents, if it has removed some

    @property
    def parts(self) -> list[Segment]:
        """The rows of `files`, and the segments."""
        return [{"rows": self.rows or self.size, "files": self.files}, *self.segments]

    @property
    def own_ids(self) -> bool:
        """Whether the documents brought their IDs."""
        return self.next_id is None and not _OF_IDS.isdisjoint(self.files)

    @property
    def entries(self) -> list[File]:
        """Every file of the index."""
        files = [file for part in self.parts for file in part["files"].values()]
        if self.removed is None:
            return files
        return [*files, self.removed]


@dataclass(frozen=True, eq=False)
class Files(Mapping[str, Path]):
    """The verified files of an index.

    As a mapping it has the files of the first part, and with them what is there once. What is kept of each document is
    in files of every part: `array` and `strings` join them.
    """

    folder: Path
    parts: Sequence[tuple[Mapping[str, Path], int]]  # files by name, and rows
    places: Int64[np.ndarray, " n"] | None = None  # of the rows of the index in these parts; None takes all
    several: bool = False  # whether the parts are of several indexes

    @classmethod
    def of(cls, folder: Path, header: Header) -> Files:
        """The files that a header names; FormatError if one is missing or damaged."""
        parts = [
            ({name: verified(folder, file) for name, file in part["files"].items()}, part["rows"])
            for part in header.parts
        ]
        size = sum(rows for _, rows in parts)
        if header.removed is None:
            if size != header.size:
                raise FormatError(f"{folder / HEADER}: {size} rows, but {header.size} documents. {_AGAIN}")
            return cls(folder, parts)
        path = verified(folder, header.removed)
        with turning(FormatError, f"{path}: not readable as removed rows ({REASON}). {_AGAIN}", ValueError, OSError):
            [removed] = io.take({"removed": io.map_array(path)}, "int64", removed=(size - header.size,))
            io.within("the number of removed rows", len(removed), 1)
            io.within("removed rows", removed, 0, size - 1, ascending=True)
        return cls(folder, parts, np.delete(np.arange(size), removed))

    @classmethod
    def joined(cls, several: Sequence[Files]) -> Files:
        """The files of several folders, one after the other."""
        if len(several) == 1:
            return several[0]
        parts = [part for files in several for part in files.parts]
        if all(files.places is None for files in several):
            return cls(several[0].folder, parts, several=True)
        places = list[np.ndarray]()
        start = 0
        for files in several:
            rows = sum(rows for _, rows in files.parts)
            places.append(start + (np.arange(rows) if files.places is None else files.places))
            start += rows
        return cls(several[0].folder, parts, np.concatenate(places), several=True)

    def __getitem__(self, name: str) -> Path:
        return self.parts[0][0][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts[0][0])

    def __len__(self) -> int:
        return len(self.parts[0][0])

    def array(self, name: str) -> np.ndarray:
        """What is kept of each document in files of this name: [size, ...], a memory map if it is in one file.

        ValueError or KeyError if a file does not fit the header.
        """
        arrays = list[np.ndarray]()
        start = 0
        for files, rows in self.parts:
            array = io.map_array(files[name])
            io.same(f"rows of {name}", array.shape[:1], (rows,))
            first_part = arrays[0] if arrays else array
            io.same(name, (array.dtype, array.shape[1:]), (first_part.dtype, first_part.shape[1:]))
            if self.places is not None:
                first, last = np.searchsorted(self.places, [start, start + rows])
                array = array[self.places[first:last] - start]
            arrays.append(array)
            start += rows
        if len(arrays) == 1:
            return arrays[0]
        return np.concatenate(arrays)

    def strings(self, name: str, ends: str, kind: Any = str) -> Strings | None:
        """The lines in files of this name, read when they are needed; None if there are no such files.

        KeyError if there are none in a part.
        """
        if name not in self:
            return None
        return Strings([Lines(files[name], rows, files[ends], kind) for files, rows in self.parts], self.places)


def check_index_folder(path: os.PathLike[str] | str) -> Path:
    """The real path of a folder that `Index.save` may write; InputError if it is read-only or not an index."""
    folder = io.replaceable(path)
    str(folder).encode()  # UnicodeEncodeError: a name that is not UTF-8
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
    path = io.existing(io.below(Path(folder), HEADER), expected="; expected an index folder")
    record = records.read(path, dict[str, Any], _AGAIN)
    if record.get("kind", KIND) != KIND:
        raise FormatError(f"{path}: describes a {record['kind']!r}; expected an index.")
    io.check_version(path, record)
    header = _typed(record, path)
    io.check_seal(path, record)
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
    codes: Fields = header.codes or {}
    for name, bounds in _OF_CODES.items():
        if not bounds.hold(codes.get(name, 1)):
            raise FormatError(f"{path}: codes: {name}: expected {bounds.words}. {_AGAIN}")
    return header


def verified(folder: Path, entry: File, *, whole: bool = False) -> Path:
    """The path of one file of an index, after its size and checksum are compared with the header.

    The checksum of a file beyond 64 MB, which is memory-mapped, is compared only if it is to be read `whole`.
    """
    path = io.below(folder, entry["name"])
    if not os.path.isfile(path):
        raise FormatError(f"{folder / HEADER}: names the file {path.name!r:.80}, which is missing. {_AGAIN}")
    if (size := path.stat().st_size) != entry["bytes"]:
        raise FormatError(f"{path}: {size} bytes, expected {entry['bytes']}: truncated or overwritten.")
    if whole or size <= _WHOLE or path.suffix not in _MAPPED:
        with turning(FormatError, f"{path}: {REASON}.", ValueError):
            io.check_sha256(path, entry["sha256"])
    return path


def joined(folders: Sequence[Path], headers: Sequence[Header]) -> Header:
    """The header of the index of several folders; MismatchError if they cannot become one."""
    first = headers[0]
    for folder, header in zip(folders[1:], headers[1:], strict=True):
        if unlike := [name for name in _SHARED if getattr(header, name) != getattr(first, name)]:
            raise MismatchError(
                f"{folders[0]} and {folder} differ in {unlike[0]}: {getattr(first, unlike[0])!s:.80} and"
                f" {getattr(header, unlike[0])!s:.80}. Build both with the same settings."
            )
        encodings = [VectorSpace.of(one.encoding) for one in (first, header)]
        if unlike := encodings[0].differences(encodings[1], strict=True):
            raise MismatchError(f"{folders[0]} and {folder} are of different encoders ({', '.join(unlike)}).")
        if (part := _unlike(first, header)) is not None:
            raise MismatchError(
                f"{folders[0]} and {folder} differ in {part}: only indexes that keep the same of each document, by the"
                " same code and inverted lists, can be searched as one."
            )
    if any(not header.own_ids and (header.next_id is not None or header.removed is not None) for header in headers):
        raise MismatchError("Documents were removed from an index that numbers them: build these indexes with IDs.")
    return dataclasses.replace(first, size=sum(header.size for header in headers))


def _unlike(one: Header, other: Header) -> str | None:
    """The name of a file that is there once and not the same in two folders."""
    for name in sorted({*one.files, *other.files} - STORED - OF_TEXTS):
        entries = [header.files.get(name) for header in (one, other)]
        if None in entries or len({entry["sha256"] for entry in entries if entry}) > 1:
            return name
    for names, what in ((_OF_IDS, "IDs"), ({DOCUMENTS}, "texts"), ({METADATA}, "metadata")):
        if names & {*one.files} != names & {*other.files}:
            return what
    return None


class Tail(NamedTuple):
    """What stays in the folder of an index that was changed: the first part, with its rows, and segments."""

    files: dict[str, File]
    rows: int
    segments: list[Segment]
    first: int  # row of the index that is the first to be written
    removed: Int64[np.ndarray, " r"]  # rows among those that stay which the index does not have


def replace_files(
    folder: Path,
    about: Fields,
    write: Callable[[Path], None],
    seen: str | None = None,
    tail: Tail | None = None,
) -> Header:
    """Replaces the index in a locked folder; the old index stays whole until the new header names the files of `write`.

    With a `tail`, `write` writes a segment, and the other files stay.

    Returns the new header. MismatchError if `seen` is given and the folder has another header by now.
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
        header |= _contents(files, about["size"], tail)
        header = io.seal(json.loads(json.dumps(header)))
        replaced = _typed(header, folder / HEADER)
        io.write_json(folder / HEADER, header)
    except Exception:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    keep = {HEADER, LOCK, *(entry["name"] for entry in replaced.entries)}
    for old in folder.iterdir():
        if old.is_file() and old.name not in keep and LEFTOVER.fullmatch(old.name):
            old.unlink(missing_ok=True)
    return replaced


def _contents(files: dict[str, File], size: int, tail: Tail | None) -> Json:
    """The entries of a header that name its files, of which these are new."""
    if tail is None:
        return {"files": files}
    removed = files.pop(REMOVED, None)
    segments = [*tail.segments, {"rows": size - tail.first, "files": files}] if files else tail.segments
    return {"files": tail.files, "rows": tail.rows, "segments": segments, "removed": removed}
