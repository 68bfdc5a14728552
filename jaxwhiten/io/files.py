"""Atomic writes of files and folders. This is the only module that renames them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from jaxwhiten.errors import FormatError, InputError, JaxwhitenError, OutputError
from jaxwhiten.io.locks import LOCK, locked
from jaxwhiten.io.records import read_json
from jaxwhiten.terminal import interrupts

PathLike = str | os.PathLike[str]
MANIFEST = "jaxwhiten.json"  # lists the files of a folder made by `whole_folder`
HEADER_KEY = "jaxwhiten"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STALE_SECONDS = 24 * 3600
_LONGEST_NAME = 255  # bytes, of most file systems
_START = 1 << 16  # bytes, which hold the header of a tensor file
_KIND = re.compile(rb'^.{8}\{"__metadata__":\{"jaxwhiten":"\{.*?\\"kind\\": \\"([a-z_ -]+)\\"', re.DOTALL)
# How files begin that this package writes, by their ending; a tensor file has its kind in its header.
_BEGINNINGS = {".npy": b"\x93NUMPY", ".parquet": b"PAR1", ".jsonl": b"{", ".png": b"\x89PNG", ".html": b"<"}


class _Manifest(TypedDict):
    """The content of `MANIFEST`."""

    files: list[str]
    kind: NotRequired[str]


@contextlib.contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yields a temporary path next to `path`; renames it to `path` if the block ends without an error.

    The file is flushed to disk before the rename, so that after a crash `path` holds either the old content or the new.
    On an error `path` is unchanged. Missing folders are made. A link keeps its place: the file that it names is
    replaced. Raises OutputError if the file cannot be written, InputError as for `replaceable`.

    >>> with atomic_path("notes.txt") as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> Path("notes.txt").read_text()
    'all of it'
    """
    path = replaceable(path)
    with writing(path, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    interrupts.unfinished.add(name)
    os.close(handle)
    temporary = Path(name)
    try:
        with writing(path):
            yield temporary
        with writing(path, OSError):
            if not interrupts.unfinished & set(map(os.fspath, path.parents)):  # else `whole_folder` flushes the file
                _flush(temporary)
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        interrupts.unfinished.discard(name)


@contextlib.contextmanager
def whole_folder(path: PathLike, *blamed: type[Exception], kind: str = "model") -> Iterator[Path]:
    """Yields an empty folder next to `path`, which replaces `path` as a whole if the block ends without an error.

    After a kill at any moment `path` holds the old folder or the new one; the next writer removes the other. `MANIFEST`
    lists the new folder's files and names its `kind`, such as `"onnx"`; the block may write other facts to it. If
    `path` itself is a folder that is being written so, it is yielded. `blamed` are the errors by which the block
    reports a failed write, in addition to errors of Python and safetensors.

    >>> with whole_folder("model") as folder:
    ...     write_text(folder / "config.json", "{}")
    >>> sorted(path.name for path in Path("model").iterdir())
    ['config.json', 'jaxwhiten.json']

    Raises:
      InputError: As for `check_folder`.
      OutputError: The folder cannot be written to, or the disk is full; the old folder is intact.
    """
    if os.fspath(path) in interrupts.unfinished:
        yield Path(path)
        return
    folder = check_folder(path, kind)
    temporary = folder.with_name(f".{folder.name}.writing.{secrets.token_hex(4)}")
    unfinished = {os.fspath(temporary), f"{temporary}{LOCK}"}
    try:
        with contextlib.ExitStack() as held:
            with writing(folder, OSError):
                folder.parent.mkdir(parents=True, exist_ok=True)
                _remove_killed(folder)
                interrupts.unfinished |= unfinished
                held.enter_context(locked(temporary, outside=True))
                temporary.mkdir()
            with writing(folder, *blamed):
                yield temporary
            with writing(folder, OSError):
                files = sorted(file.relative_to(temporary) for file in temporary.rglob("*") if file.is_file())
                names = [*(name for file in files if (name := file.as_posix()) != MANIFEST), MANIFEST]
                facts = read_json(temporary / MANIFEST, dict[str, Any]) if len(names) == len(files) else {}
                write_json(temporary / MANIFEST, {**facts, "kind": kind, "files": names})
                for name in names:
                    _flush(temporary / name)
                (_exchange if check_folder(folder, kind).exists() else os.rename)(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        interrupts.unfinished -= unfinished


def _remove_killed(folder: Path) -> None:
    """Removes what writers of this folder left that were killed; those at work hold their locks."""
    folders = folder.parent.glob(f".{glob.escape(folder.name)}.writing.*")
    for killed in {str(path).removesuffix(LOCK) for path in folders}:
        with contextlib.suppress(OSError), locked(killed, 0, outside=True):
            shutil.rmtree(killed)


def replaceable(path: PathLike) -> Path:
    """The real path of an output; InputError if it is read-only or a link that leads nowhere.

    >>> replaceable("texts.txt").name
    'texts.txt'
    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise InputError(f"{path}: is a symbolic link in a loop. Specify a different output.")
    if real.exists() and not real.stat().st_mode & 0o222:  # root may write there all the same
        raise InputError(f"{path}: is read-only; nothing was written. Specify a different output, or change its mode.")
    return real


def existing(path: Path, error: type[JaxwhitenError] = FormatError, expected: str = "") -> Path:
    """The path of a file that is there, and no pipe; otherwise an error, with what was expected.

    >>> existing(Path("texts.txt")).name
    'texts.txt'
    """
    if not os.path.isfile(path):  # also for a name that is too long
        what = "is a folder, no file" if os.path.isdir(path) else "no such file"
        raise error(f"{path}: {what}{expected}.")
    return path


def check_file(path: PathLike, kind: str = "") -> Path:
    """The real path of a file to write: a new one, or an earlier output of the same kind, which is replaced.

    `kind` is the kind of `save_tensors`. Other files are recognized by how they begin.

    >>> check_file("new.npy").exists()
    False

    Raises:
      InputError: The path is a folder, a file of another kind, read-only, or a link that leads nowhere.
      OutputError: The path cannot be read.
    """
    with writing(path, OSError):
        real = replaceable(path)
        if real.is_dir():
            raise InputError(f"{path}: is a folder; expected a file.")
        if not real.exists() or not real.is_file() or not real.stat().st_size:
            return real
        with open(real, "rb") as file:
            start = file.read(_START)
    if kind:
        header = _KIND.search(start)  # of a damaged file, too
        other = header[1].decode() if header else ""
        fits = other == kind
    else:
        other = ""
        fits = start.startswith(_BEGINNINGS.get(real.suffix.lower(), b""))
    if not fits:
        what = f"contains a {other!r}, not a {kind!r}" if other else "is not a file that jaxwhiten wrote"
        raise InputError(f"{path}: {what}; nothing was written. Specify a different output.")
    return real


def check_folder(path: PathLike, kind: str = "model") -> Path:
    """The real path of a folder that `whole_folder` may write.

    >>> check_folder("new").exists()
    False

    Raises:
      InputError: The folder is of another kind, read-only, holds a file that `whole_folder` did not write, or cannot be
        replaced as a whole.
      OutputError: The folder cannot be read.
    """
    with writing(path, OSError):
        put_back(Path(os.path.realpath(path)))
        folder = replaceable(path)
        if not folder.exists():
            return folder
    if not folder.is_dir():
        raise InputError(f"{path}: is a file; expected a folder.")
    if folder.is_mount() or folder == Path.cwd():
        raise InputError(f"{path}: the working directory or a mount cannot be replaced: specify a folder in it.")
    manifest = _Manifest(files=[])
    with contextlib.suppress(FormatError):
        manifest = read_json(folder / MANIFEST, _Manifest)
    if (existing := manifest.get("kind", kind)) != kind:
        raise InputError(f"{path}: is a folder of kind {existing!r}, not {kind!r}; nothing was written: use another.")
    for file in folder.rglob("*"):
        name = file.relative_to(folder).as_posix()
        if name not in (LOCK, *manifest["files"]) and (file.is_symlink() or not file.is_dir()):
            raise InputError(
                f"{path}: contains {name}, which jaxwhiten did not write; nothing was written. Specify a new folder."
            )
    return folder


def put_back(folder: Path) -> Path:
    """The folder. If a process was killed between the two renames that replace it, the old folder is renamed back.

    >>> put_back(Path("cross")).is_dir()
    True
    """
    if not folder.exists():
        with contextlib.suppress(OSError):  # there is no such folder, or another process renames it
            os.rename(folder.with_name(f".{folder.name}.replaced"), folder)
    return folder


def _exchange(new: Path, old: Path) -> None:
    """Replaces a folder by another, in one step if the system can; the old one may end up under the new one's name."""
    if sys.platform == "linux":
        swap = getattr(ctypes.CDLL(None), "renameat2", None)
    else:
        swap = None
    if swap is not None and swap(-100, os.fsencode(new), -100, os.fsencode(old), 2) == 0:  # RENAME_EXCHANGE
        return
    aside = old.with_name(f".{old.name}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(old, aside)
    try:
        os.rename(new, old)
    finally:
        put_back(old)
    shutil.rmtree(aside, ignore_errors=True)


def below(folder: Path, name: str, error: type[JaxwhitenError] = FormatError) -> Path:
    """The path of a file that `folder` refers to by name; links into the blobs of the hub's cache are followed.

    >>> below(Path("cross"), "config.json").is_file()
    True

    Raises:
      JaxwhitenError: Of class `error`, if the name is no relative path of plain names or a link leaves the folder.
    """
    parts = name.replace("\\", "/").split("/")
    named = name.isprintable() and not {"", ".", ".."} & set(parts)
    if not named or max(len(os.fsencode(part)) for part in parts) > _LONGEST_NAME:
        raise error(f"{folder}: {name!r:.80} is not a valid file or folder name in it.")
    root, target = (Path(os.path.realpath(path)) for path in (folder, folder / name))
    blobs = root.parents[1] / "blobs" if root.parent.name == "snapshots" else root
    if not (target.is_relative_to(root) or target.is_relative_to(blobs)):
        raise error(f"{folder / name}: a link that leaves the folder; put a copy in its location.")
    return folder / name


def _flush(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def writing(path: PathLike, *blamed: type[Exception]) -> Iterator[None]:
    """Turns disk errors and errors of the classes `blamed` in the block into an OutputError that names `path`.

    >>> with writing("notes.txt"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
        ...
    jaxwhiten.errors.OutputError: notes.txt: could not be written (No space left on device); ...
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, (OutputError, *blamed)) and not _is_full_disk(error):
            raise
        cause = error.__cause__ or error  # an OutputError may name a file in `path`; its cause is reported
        advice = "set TMPDIR to another folder" if path == tempfile.gettempdir() else "choose another location"
        raise OutputError(
            f"{path}: could not be written ({reason(cause)}); existing files are intact. Free some space, or {advice}."
        ) from cause


def reason(error: BaseException) -> str:
    """Why a write failed, in the words of the system, which other libraries append to their own, or omit.

    >>> reason(RuntimeError("write error in index.faiss: 5 != 9 (No space left on device)"))
    'No space left on device'
    """
    text = str(error)
    for words in map(os.strerror, _NO_ROOM):
        if words in text:
            return words
    if "disk is full" in text:  # SQLite's
        return os.strerror(errno.ENOSPC)
    if type(error) is OSError and error.errno is None:  # NumPy's
        return "the disk took only a part of it"
    return getattr(error, "strerror", None) or " ".join(text.split())[:300]


def _is_full_disk(error: Exception) -> bool:
    """Whether the disk is full. NumPy raises OSError without a number, safetensors an error of its own."""
    if type(error) is OSError:
        return error.errno is None or error.errno in _NO_ROOM
    return type(error).__name__ == "SafetensorError"


def reserve(file: typing.BinaryIO, size: int) -> None:
    """Makes room for a file that will be memory-mapped: writing to a map on a full disk would end the process.

    >>> with open("vectors.f4", "w+b") as file:
    ...     reserve(file, 100)
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)


def remove_stale(folder: PathLike) -> None:
    """Removes temporary files and folders that are older than a day; processes that were killed left them.

    >>> remove_stale("cross")
    """
    for path in Path(folder).glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_text(path: PathLike, text: str) -> None:
    """Writes UTF-8 text atomically.

    >>> write_text("notes.txt", "A dog runs.")
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: PathLike, value: object) -> None:
    """Writes JSON atomically, indented; NaN and infinities are refused because JSON has none.

    >>> write_json("rows.json", {"rows": 2})
    >>> print(Path("rows.json").read_text())
    {
      "rows": 2
    }
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
