"""Lines of untrusted text files: gzip, byte-order mark, line ends, encoding and limits, in one place.

Every reader of this package uses `line_blocks`; a `Corpus` is files with one passage per line. Lines that are not clean
UTF-8 text are refused with file and line number, or skipped and counted. Only `\\n` and `\\r\\n` end a line: the other
line ends of `str.splitlines` occur inside sentences.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxwhiten.errors import DataError, DataNotFoundError

TEXT_ENDINGS = (".txt", ".txt.gz")
MAX_LINE_BYTES = 16 << 20
MAX_SMALL_BYTES = 256 << 20
# A gzip file is refused if it unpacks to more than this and to this many times its size; text packs 3 to 20 times.
MAX_UNPACKED, _MAX_RATIO = 1 << 30, 200
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


class BadRows:
    """Handles bad rows of a file: raises an error, or skips and counts them."""

    def __init__(self, path: str | os.PathLike[str], skip: bool = False):
        self.path = Path(path)
        self.skip = skip
        self.count = 0

    def __call__(self, line: int, reason: str) -> None:
        """Counts a bad row, or raises `DataError` with file and line (from 1)."""
        if not self.skip:
            raise DataError(f"{self.path}, line {line}: {reason}.")
        self.count += 1


def _open(path: Path) -> io.BufferedIOBase:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else open(path, "rb")


def _byte_blocks(path: Path, max_line: int, bad: BadRows) -> Iterator[tuple[int, bytes]]:
    """Yields blocks of whole lines of the unpacked file, as (number of the first line, bytes)."""
    number, pending, discarding, total = 1, b"", False, 0
    try:
        most = max(MAX_UNPACKED, _MAX_RATIO * os.stat(path).st_size)  # never reached by plain files
        with _open(path) as file:
            while chunk := file.read(_BLOCK_BYTES):
                total += len(chunk)
                if total > most:
                    raise DataError(
                        f"{path}, line {number}: unpacks to more than {most} bytes, over {_MAX_RATIO} times its size,"
                        " so not a text file. Unpack it first if it is."
                    )
                if total == len(chunk):
                    chunk = chunk.removeprefix(_BOM)
                if discarding:
                    _, end, chunk = chunk.partition(b"\n")
                    if not end:
                        continue
                    number, discarding = number + 1, False
                head, end, tail = chunk.rpartition(b"\n")
                if end:
                    block = pending + head
                    yield number, block
                    number += block.count(b"\n") + 1
                    pending = tail
                else:
                    pending += chunk
                if len(pending) > max_line:
                    bad(number, f"longer than {max_line} bytes")
                    pending, discarding = b"", True
        if pending:
            yield number, pending
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}, line {number}: truncated or damaged gzip file ({error}).") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}): give a file that you may read."
        ) from error


def line_problem(line: bytes, max_line: int) -> str | None:
    """What is wrong with one line, or None."""
    if len(line) > max_line:
        return f"longer than {max_line} bytes"
    if b"\0" in line:
        return "holds a NUL byte: not a text file, or not UTF-8"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}): convert the file to UTF-8"
    return None


def line_blocks(
    path: str | os.PathLike[str], bad: BadRows | None = None, *, max_line: int = MAX_LINE_BYTES
) -> Iterator[tuple[Sequence[int], list[str]]]:
    """Yields a text file, plain or gzip, in blocks of whole lines: numbers from 1, and lines without their ends.

    A byte-order mark is dropped. Memory is bounded by the block size and `max_line` (in bytes) for any file.
    """
    path = Path(path)
    bad = bad or BadRows(path)
    for first, block in _byte_blocks(path, max_line, bad):
        try:
            clean = b"\0" not in block and len(block) <= max_line
            text = block.decode("utf-8") if clean else ""
        except UnicodeDecodeError:
            clean = False
        if clean:
            lines = text.split("\n")
            numbers: Sequence[int] = range(first, first + len(lines))
        else:
            numbers, lines = [], []
            for number, raw in enumerate(block.split(b"\n"), first):
                if reason := line_problem(raw, max_line):
                    bad(number, reason)
                else:
                    numbers.append(number)
                    lines.append(raw.decode("utf-8"))
            text = "\r"
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        yield numbers, lines


def read_lines(path: str | os.PathLike[str], *, limit: int) -> list[str]:
    """All lines of a small text file, at most `limit`, so that a wrong file cannot fill the memory."""
    result: list[str] = []
    size = 0
    for _, lines in line_blocks(path, max_line=_BLOCK_BYTES):
        result += lines
        size += sum(map(len, lines))
        if size > MAX_SMALL_BYTES:
            raise DataError(f"{path}: more than {MAX_SMALL_BYTES} bytes, so not the expected file.")
        if len(result) > limit:
            raise DataError(f"{path}, line {limit + 1}: more than {limit} lines, so not the expected file.")
    return result


def corpus_files(where: str | os.PathLike[str]) -> list[Path]:
    """The files of a corpus, sorted by name.

    Args:
      where: A file, a folder (its `.txt` and `.txt.gz` files), or a pattern with `*`.

    Raises:
      DataNotFoundError: There is no such file.
    """
    text, path = os.fspath(where), Path(where).expanduser()
    if text and path.is_file():
        return [path]
    if text and path.is_dir():
        found = [file for file in path.iterdir() if file.name.endswith(TEXT_ENDINGS) and file.is_file()]
        wanted = f"{path}: no file that ends in {' or '.join(TEXT_ENDINGS)}"
    else:
        found = [Path(name) for name in glob.glob(str(path)) if Path(name).is_file()] if text else []
        wanted = f"{text}: no such file or folder" if text else "No text was named"
    if not found:
        raise DataNotFoundError(f"{wanted}. Give a file, a folder or a pattern of text files, one passage per line.")
    return sorted(found)


class Corpus:
    """The passages of text files: their non-blank lines.

    Args:
      files: From `corpus_files`.
      skip_bad_rows: Whether to skip and count lines that are not clean UTF-8 text, instead of raising an error.

    Attributes:
      files: The files.
      skipped: Number of lines skipped so far in the latest pass.
    """

    def __init__(self, files: Sequence[Path], *, skip_bad_rows: bool = False):
        self.files = list(files)
        self.skip_bad_rows = skip_bad_rows
        self.skipped = 0

    def blocks(self, size: int) -> Iterator[list[str]]:
        """Yields lists of `size` passages; the last list may be shorter.

        Raises:
          DataError: A file cannot be read, or a line is not clean UTF-8 text.
        """
        self.skipped, pending = 0, []
        for path in self.files:
            bad = BadRows(path, self.skip_bad_rows)
            for _, lines in line_blocks(path, bad):
                pending += [line for line in lines if line and not line.isspace()]
                while len(pending) >= size:
                    yield pending[:size]
                    pending = pending[size:]
            self.skipped += bad.count
        if pending:
            yield pending

    def train_blocks(self, size: int, share: float) -> Iterator[list[str]]:
        """Yields the lists of `blocks` without the passages held out, see `held_out`."""
        for block in self.blocks(size):
            yield [passage for passage in block if not held_out(passage, share)]


def held_out(passage: str, share: float) -> bool:
    """Whether a passage is held out, decided by a hash of its text, so that duplicates are on the same side."""
    return zlib.crc32(passage.encode("utf-8", "replace")) < share * 2**32
