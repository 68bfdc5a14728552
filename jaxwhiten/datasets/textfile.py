"""Lines of untrusted text files: compression, byte-order mark, line ends, encoding and limits, in one place.

Every reader of this package uses `numbered_lines`; a `Corpus` is files with one passage per line. A line that is not
clean UTF-8 text raises an error with file and line number, or is skipped and counted. Only `\\n` and `\\r\\n` end a
line, because the other line ends of `str.splitlines` occur inside sentences. A pipe is read once, from its beginning.
"""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import importlib
import lzma
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxwhiten import interrupts
from jaxwhiten.errors import REASON, DataError, DataNotFoundError, turning
from jaxwhiten.io import PathLike, writing

PACKED = (".gz", ".bz2", ".xz", ".zst")
MAX_LINE_BYTES = 16 << 20
# A compressed file may not unpack to more than both limits: these bytes, and this ratio (text packs 3 to 20 times).
MAX_UNPACKED = 256 << 20
MAX_RATIO = 200
# Compressed files by their first bytes; zstd is in Python from 3.14 on.
_OPENERS: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_OPENERS |= {b"\x28\xb5\x2f\xfd": lambda file: _zstd(file.name).open(file)}
_BOM = b"\xef\xbb\xbf"
_SPOOLED = list[Any]()  # temporary files, which are removed when the process ends


def split_name(path: PathLike) -> tuple[str, str]:
    """A file's name without its ending, and the ending in lower case, both without that of a compression.

    >>> split_name("texts.tsv.gz")
    ('texts', '.tsv')
    """
    name = Path(path).name
    stem, ending = os.path.splitext(os.path.splitext(name)[0] if name.lower().endswith(PACKED) else name)
    return stem, ending.lower()


def _zstd(path: PathLike) -> Any:
    advice = f"{path}: zstd needs Python 3.14: decompress the file first, with `zstd -d {path}`."
    with turning(DataError, advice, ImportError):
        return importlib.import_module("compression.zstd")


@dataclass
class BadRows:
    """Handles bad rows of a file: raises an error, or skips and counts them."""

    path: PathLike
    skip: bool = False
    count: int = 0
    tell: Callable[[], int] = lambda: 0  # for a file of lines: the offset after the row that was read last

    def __call__(self, line: int, reason: str) -> None:
        """Counts a bad row, or raises `DataError` with file and line (from 1)."""
        if not self.skip:
            raise DataError(f"{self.path}, line {line}: {reason}.")
        self.count += 1


def numbered_lines(
    path: PathLike, bad: BadRows | None = None, *, start: tuple[int, int] = (0, 0)
) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file, plain or compressed, without their ends, each with its number from 1.

    >>> list(numbered_lines("texts.txt"))
    [(1, 'A dog runs.'), (2, 'It rains.')]

    Memory is bounded by `MAX_LINE_BYTES` for any file. `start` continues after a line: its number, and the offset of
    its end as reported by `bad.tell`.
    """
    path, number, bad = Path(path), 1, bad or BadRows(path)
    try:
        with open(path, "rb") as plain:
            begins = plain.peek(8)
            opener = next((opener for first, opener in _OPENERS.items() if begins.startswith(first)), None)
            most = max(MAX_UNPACKED, MAX_RATIO * os.stat(path).st_size) if opener else sys.maxsize
            with opener(plain) if opener else contextlib.nullcontext(plain) as file:
                if start[1]:
                    file.seek(start[1])
                if file.seekable():
                    bad.tell = file.tell
                for number, line in lines_of(file.readline, bad, most=most, before=start[0]):
                    yield number, line
                end = bad.tell()
                bad.tell = lambda: end  # rows may be found to be bad when the file is at its end, and closed
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be read ({error.strerror}): check its permissions.") from error
        raise DataError(f"{path}, line {number}: truncated or damaged compressed file ({error}).") from error


def lines_of(
    readline: Callable[[int], bytes],
    bad: BadRows,
    *,
    most: int = sys.maxsize,
    before: int = 0,
) -> Iterator[tuple[int, str]]:
    """`numbered_lines` for an open file; more than `most` bytes raise a DataError.

    A byte-order mark is dropped. A line that is too long is read in parts, which are discarded. `before` is the number
    of lines before these. DataError for a file whose lines end with a carriage return alone.
    """
    number = before
    total = 0
    rest = False
    while part := readline(MAX_LINE_BYTES + 1):
        number = number + (not rest)
        total = total + len(part)
        if total > most:
            raise DataError(
                f"{bad.path}, line {number}: unpacks to more than {most} bytes, over {MAX_RATIO} times its size,"
                " so not a text file. Unpack it first if it is."
            )
        if number == 1 and not part.endswith(b"\n") and b"\r" in part.rstrip(b"\r"):
            raise DataError(
                f"{bad.path}, line 1: its lines end with a carriage return alone, expected \\n or \\r\\n: convert the"
                " file, as with `tr '\\r' '\\n'`."
            )
        begun = rest
        rest = len(part) > MAX_LINE_BYTES and not part.endswith(b"\n")
        if rest:
            continue
        line = part.removesuffix(b"\n").removeprefix(_BOM if number == 1 else b"")
        if part == _BOM and number == 1:
            return
        if begun:
            bad(number, f"longer than {MAX_LINE_BYTES} bytes")
        elif b"\0" in line:
            bad(number, "contains a NUL byte: not a text file, or not UTF-8")
        else:
            try:
                yield number, line.decode("utf-8").removesuffix("\r")
            except UnicodeDecodeError as error:
                at = f"byte 0x{line[error.start]:02x} at position {error.start}"
                bad(number, f"not UTF-8 ({at}): convert the file to UTF-8")
    if rest:
        bad(number, f"longer than {MAX_LINE_BYTES} bytes")


def corpus_files(where: PathLike, endings: Sequence[str] = (".txt",)) -> list[Path]:
    """The files of a corpus, sorted by name.

    >>> [file.name for file in corpus_files(".")]
    ['texts.txt']

    Args:
      where: A file or pipe; a folder (its files with one of these endings, plain or compressed, those in subfolders
        included, unless hidden); or a pattern with `*`, or `**` for subfolders.

    Raises:
      DataNotFoundError: There is no such file.
    """
    text = os.fspath(where)
    path = Path(where).expanduser()
    with turning(DataError, f"{path}: cannot be read ({REASON}): check its permissions.", PermissionError):
        if text and (path.is_file() or is_pipe(path)):
            return [path]
    if text and path.is_dir():
        files = [file for file in _files_below(path) if split_name(file)[1] in endings]
        message = f"{path}: no file that ends in {' or '.join(endings)}"
    else:
        if text:
            files = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
        else:
            files = []
        message = f"{text}: no such file or folder" if text else "No text was specified"
    if not files:
        raise DataNotFoundError(
            f"{message}. Specify a file, a folder or a pattern of text files, one passage per line."
        )
    return sorted(files)


def _files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its subfolders, without those in hidden subfolders, such as .git."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}): check its permissions.") from error

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for path in map(Path(where).joinpath, names) if path.is_file())


def is_pipe(path: PathLike) -> bool:
    """Whether a path is a pipe or a device, such as the /dev/fd/63 of a shell's `<(...)`: it can be read only once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def spooled(path: PathLike) -> Path:
    """The path of a file that can be read twice: the file itself, or a copy of what a pipe sends, under its name."""
    if not is_pipe(path):
        return Path(path)
    with open(path, "rb") as pipe:
        return spooled_stream(pipe, Path(path).name)


def spooled_stream(stream: Any, name: str) -> Path:
    """A temporary file with what a binary stream sends; it is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="jaxwhiten-")
    _SPOOLED.append(folder)
    interrupts.unfinished.add(folder.name)
    copy = Path(folder.name, name)
    with writing(Path(tempfile.gettempdir())), open(copy, "wb") as file:
        shutil.copyfileobj(stream, file)
    return copy


@dataclass
class Corpus:
    """The passages of text files: their non-blank lines.

    >>> list(Corpus(corpus_files("texts.txt")).passages())
    ['A dog runs.', 'It rains.']
    """

    files: Sequence[Path]  # from `corpus_files`
    skip_bad_rows: bool = False  # whether to skip lines that are not clean UTF-8 text, instead of raising an error
    skipped: int = 0  # lines, so far in the latest pass

    def passages(self) -> Iterator[str]:
        """Yields the passages one by one."""
        self.skipped = 0
        for path in self.files:
            bad = BadRows(path, self.skip_bad_rows)
            yield from (line for _, line in numbered_lines(path, bad) if line and not line.isspace())
            self.skipped += bad.count
