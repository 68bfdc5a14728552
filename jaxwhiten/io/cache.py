"""The cache: what is kept between processes, up to a limit, and whether a file is still the one that was read.

`keep` writes a folder with the checksums of its files, and `recall` reads it only if they match. Small files are hashed
each time; a large one again when its identity changes, which every write through the file system does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jaxwhiten.errors import REASON, InputError, ModelError, turning, warn
from jaxwhiten.io.files import PathLike, whole_folder, write_json, write_text
from jaxwhiten.io.records import read_json
from jaxwhiten.io.tensors import check_seal, content_key, seal, sha256_file
from jaxwhiten.terminal import note

T = TypeVar("T")
Identity = tuple[int, ...]
_CHECKSUMS = "checksums.json"
_SMALL = 1 << 24  # bytes that are hashed each time
_TICK = 2 * 10**9  # nanoseconds between two times that every file system tells apart
# What is made again where it is missing.
_ROOMS = ("compiled", "embeddings", "hashes", "tokenizers", "tokens", "xla")
_TAG = "CACHEDIR.TAG"  # by which programs for backups know a cache (https://bford.info/cachedir)
_TAGGED = "Signature: 8a477f597d28d172789f06886806bc55\n"


def cache_dir(*names: str) -> Path:
    """A folder under the cache: `$JAXWHITEN_CACHE_DIR`, else `$XDG_CACHE_HOME/jaxwhiten`, else `~/.cache/jaxwhiten`.

    >>> cache_dir("tokens").name
    'tokens'
    """
    root = os.environ.get("JAXWHITEN_CACHE_DIR")
    if not root:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache"), "jaxwhiten")
    return Path(root).expanduser().joinpath(*names)


def cache_limit() -> float:
    """The bytes that the cache may take: `$JAXWHITEN_CACHE_GB`, by default 2 GB.

    >>> cache_limit()
    2000000000.0
    """
    text = os.environ.get("JAXWHITEN_CACHE_GB") or "2"
    with turning(InputError, f"JAXWHITEN_CACHE_GB={text!r}: expected a number of gigabytes ({REASON}).", ValueError):
        return 1e9 * float(text)


def trim_cache(limit: int | float | None = None) -> int:
    """Removes what was used longest ago, as far as the cache takes more bytes than its limit; returns what it takes.

    What was used last stays, however large it is, unless the limit is 0. A note on a terminal announces a new cache.

    >>> trim_cache() <= cache_limit()
    True
    """
    most = cache_limit() if limit is None else limit
    entries = []
    for entry in (entry for room in _ROOMS for entry in cache_dir(room).glob("[!.]*")):
        with contextlib.suppress(OSError):  # another process removes it
            status = entry.stat()
            used = max(status.st_mtime, 0 if entry.is_dir() else status.st_atime)
            entries.append((used, sum(file.stat().st_size for file in (entry, *entry.rglob("*"))), entry))
    entries.sort(reverse=True)
    total = taken = 0
    for used, size, entry in entries:
        total += size
        if total <= most or (most and used == entries[0][0]):
            taken += size
        elif entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
    if entries and sys.stderr.isatty() and not (tag := cache_dir(_TAG)).exists():
        note(f"{tag.parent} keeps compiled models and vectors, up to {cache_limit() / 1e9:g} GB (JAXWHITEN_CACHE_GB)")
        with contextlib.suppress(OSError):
            write_text(tag, _TAGGED)
    return taken


def identity(path: PathLike) -> Identity:
    """What changes whenever a file is written or replaced: its size, its times of modification and change, its inode.

    `touch` and `cp -p` can restore the size and the time of modification, but not the time of change.

    >>> identity("texts.txt") == identity("texts.txt")
    True
    """
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def sha256_once(path: Path) -> str:
    """`sha256_file`, of a large file kept in the cache for as long as it has the same path and `identity`.

    >>> sha256_once(Path("texts.txt")) == sha256_file("texts.txt")
    True
    """
    begun = time.time_ns()
    before = identity(path)
    if before[0] <= _SMALL:
        return sha256_file(path)
    cached = cache_dir("hashes", content_key(os.fspath(path.resolve()), before))
    with contextlib.suppress(OSError, ValueError):
        if len(digest := cached.read_text(encoding="ascii")) == 64:  # else damaged
            return digest
    digest = sha256_file(path)
    if identity(path) == before and max(before[1:3]) + _TICK < begun:  # else a write now could leave the same identity
        with contextlib.suppress(OSError):
            write_text(cached, digest)
    return digest


@dataclass(frozen=True)
class Files:
    """Files in the state in which they were first seen.

    >>> Files.of([Path("texts.txt")]).check()
    """

    seen: Mapping[Path, Identity]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Files:
        return cls({file: identity(file) for file in files})

    def check(self) -> None:
        """Raises ModelError if a file is no longer the one that was seen."""
        for file, before in self.seen.items():
            with contextlib.suppress(OSError):
                if identity(file) == before:
                    continue
            raise ModelError(f"{file}: changed after the model was loaded: load the model again.")


def keep(folder: Path, write: Callable[[Path], Any], *blamed: type[Exception]) -> None:
    """Makes a folder of the cache with the files of `write` and their checksums; arguments as in `whole_folder`.

    A folder that is there stays, so that what was made of one entry belongs to it for as long as it lasts.

    >>> keep(Path("kept"), lambda folder: write_text(folder / "text", "It rains."))
    >>> recall(Path("kept"), lambda folder: (folder / "text").read_text())
    'It rains.'
    """
    if folder.exists():  # of another process
        return
    with whole_folder(folder, *blamed, kind="cache") as whole:
        write(whole)
        checksums = {file.name: sha256_file(file) for file in sorted(whole.iterdir())}
        write_json(whole / _CHECKSUMS, seal(checksums))
    trim_cache()


def recall(folder: Path, read: Callable[[Path], T]) -> T | None:
    """What `read` makes of a folder of `keep`; None if there is none.

    A damaged one is removed with a warning, and None is returned.

    >>> recall(Path("nothing"), lambda folder: (folder / "text").read_text()) is None
    True
    """
    try:
        checksums = read_json(folder / _CHECKSUMS, dict[str, str])
        check_seal(_CHECKSUMS, checksums)
        for name in checksums.keys() - {"checksum"}:
            if sha256_once(folder / name) != checksums[name]:
                raise ValueError(f"{name}: checksum does not match")
        with contextlib.suppress(OSError):
            os.utime(folder)  # used last
        return read(folder)
    except Exception as error:
        if not os.path.lexists(folder):
            return None
        reason = " ".join(str(error).split())[-200:]
    warn(f"{folder}: damaged ({reason}): recomputing.")
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.unlink()
    return None
