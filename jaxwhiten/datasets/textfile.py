"""Lines of text files: compression and encoding, in one place.

Every reader of this package uses `decoded` or `numbered_lines`; a `Corpus` is files with one passage per line. A line
that is not clean UTF-8 text raises an error with file and line number, or is skipped and counted. Only `\\n` and
`\\r\\n` end a line, because the other line ends of `str.splitlines` occur inside sentences. A pipe is read once.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxwhiten.errors import REASON, DataError, DataNotFoundError, turning
from jaxwhiten.io import PathLike, writing
from jaxwhiten.terminal import interrupts

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SPOOLED = list[Any]()  # temporary files, which are removed when the process ends


def split_name(path: PathLike) -> tuple[str, str]:
    """A file's name without its ending, and the ending in lower case, both without that of a compression.

    >>> split_name("texts.tsv.gz")
    ('texts', '.tsv')
    """
    name = Path(path)
    if name.suffix.lower() in PACKED:
        name = name.with_suffix("")
    return name.stem, name.suffix.lower()


@dataclass
class BadRows:
    """Handles bad rows of a file: raises an error, or skips and counts them."""

    path: PathLike
    skip: bool = False
    count: int = 0
    unit: str = "line"
    tell: Callable[[], int] = lambda: 0  # for a file of lines: the offset after the row that was read last

    def __call__(self, line: int, reason: str) -> None:
        """Counts a bad row, or raises `DataError` with file and line (from 1)."""
        if not self.skip:
            raise DataError(f"{self.path}, {self.unit} {line}: {reason}.")
        self.count += 1


def damage(text: str) -> str | None:
    """What is wrong with a text; None for clean text. `decoded` turns bytes that are not UTF-8 into surrogates."""
    if not (found := _NO_TEXT.search(text)):
        return None
    code = ord(found[0])
    if not code:
        return "contains a NUL character: remove it"
    if 0xDC80 <= code <= 0xDCFF:
        return f"not UTF-8 (byte 0x{code - 0xDC00:02x}): convert the file to UTF-8"
    return "contains an unpaired surrogate: convert the file to UTF-8"


def decoded(path: PathLike, bad: BadRows | None = None) -> Iterator[str]:
    """The lines of a file, plain or compressed as its ending says, with their ends.

    Raises:
      DataError: The file is missing or damaged; the message names file and line.
    """
    number = 1
    try:
        with PACKED.get(Path(path).suffix.lower(), open)(path, "rb") as file:
            if bad and file.seekable():
                bad.tell = file.tell
            for line in decoded_stream(file.readline):
                yield line
                number += 1
            if bad:
                end = bad.tell()
                bad.tell = lambda: end  # rows may be found to be bad when the file is at its end, and closed
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be read ({error.strerror}): check its permissions.") from error
        raise DataError(f"{path}, line {number}: truncated or damaged compressed file ({error}).") from error


def decoded_stream(readline: Callable[[], bytes]) -> Iterator[str]:
    """The lines of an open file, each as soon as it is there."""
    encoding = "utf-8-sig"
    for line in iter(readline, b""):
        yield line.decode(encoding, "surrogateescape")
        encoding = "utf-8"


def numbered_lines(path: PathLike, bad: BadRows | None = None) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file, plain or compressed, without their ends, each with its number from 1.

    >>> list(numbered_lines("texts.txt"))
    [(1, 'A dog runs.'), (2, 'It rains.')]
    """
    bad = bad or BadRows(path)
    yield from clean_lines(decoded(path, bad), bad)


def clean_lines(lines: Iterator[str], bad: BadRows) -> Iterator[tuple[int, str]]:
    """`numbered_lines` of what `decoded` or `decoded_stream` yields."""
    for number, line in enumerate(lines, 1):
        if reason := damage(line):
            bad(number, reason)
        else:
            yield number, line.removesuffix("\n").removesuffix("\r")


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
    path = Path(where).expanduser()
    with turning(DataError, f"{path}: cannot be read ({REASON}): check its permissions.", PermissionError):
        if path.is_file() or is_pipe(path):
            return [path]
    if os.fspath(where) and path.is_dir():
        files = [file for file in _files_below(path) if split_name(file)[1] in endings]
    else:
        files = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]
    if not files:
        raise DataNotFoundError(
            f"{where}: no such file or folder, or no file with text in it: specify a file, a folder or a pattern of"
            " text files, one passage per line."
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
    with writing(tempfile.gettempdir()), open(copy, "wb") as file:
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
            yield from (line for _, line in numbered_lines(path, bad) if line.strip())
            self.skipped += bad.count
