"""Lines of text files from strangers: gzip, byte-order mark, line ends, encoding and limits, in one place.

Every reader of this package goes through `line_blocks`. A line that is not clean UTF-8 text is refused with file and
line number, or counted and left out when the caller skips bad rows. Only `\\n` and `\\r\\n` end a line: the other
characters that `str.splitlines` takes for line ends occur inside sentences.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxwhiten.errors import DataError

MAX_LINE_BYTES = 16 << 20
MAX_SMALL_BYTES = 256 << 20
# A gzip file that unpacks to more than this and to this many times its size is refused: text packs 3 to 20 times.
MAX_UNPACKED, _MAX_RATIO = 1 << 30, 200
_BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


class BadRows:
    """What to do with a bad row: refuse the file, or leave the row out and count it.

    Args:
      path: The file, for messages.
      skip: Whether bad rows are left out and counted.
    """

    def __init__(self, path: str | os.PathLike[str], skip: bool = False):
        self.path = Path(path)
        self.skip = skip
        self.count = 0

    def __call__(self, line: int, reason: str) -> None:
        """Counts one bad row, or raises `DataError` naming file and line.

        Args:
          line: The line's number, from 1.
          reason: What is wrong with it.
        """
        if not self.skip:
            raise DataError(f"{self.path}, line {line}: {reason}.")
        self.count += 1


@contextlib.contextmanager
def _open(path: Path) -> Iterator[io.BufferedIOBase]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked


def _byte_blocks(path: Path, max_line: int, bad: BadRows) -> Iterator[tuple[int, bytes]]:
    """Yields (number of the first line, whole lines without the last line end) of the unpacked file."""
    number, pending, discarding, total = 1, b"", False, 0
    try:
        most = max(MAX_UNPACKED, _MAX_RATIO * os.stat(path).st_size)  # no limit where nothing is unpacked
        with _open(path) as file:
            first = True
            while chunk := file.read(_BLOCK_BYTES):
                total += len(chunk)
                if total > most:
                    raise DataError(
                        f"{path}, line {number}: unpacks to more than {most} bytes, over {_MAX_RATIO} times its size,"
                        " so it is no text. Unpack it yourself if it is."
                    )
                if first and chunk.startswith(_BOM):
                    chunk = chunk[len(_BOM) :]
                first = False
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
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _check(line: bytes, max_line: int) -> str | None:
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
    """Reads a text file, plain or gzip, in blocks of whole lines.

    Memory is bounded by the block size and `max_line`, whatever the file holds.

    Args:
      path: The file. Gzip is recognised by its content.
      bad: What to do with a bad line; by default it is refused.
      max_line: Bytes in the longest line accepted.

    Yields:
      Line numbers (from 1) and the lines without their ends; a byte-order mark is dropped.

    Raises:
      DataError: The file cannot be read, or a line is not UTF-8, holds a NUL or is too long.
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
                if reason := _check(raw, max_line):
                    bad(number, reason)
                else:
                    numbers.append(number)
                    lines.append(raw.decode("utf-8"))
            text = "\r"
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        yield numbers, lines


def read_lines(path: str | os.PathLike[str], *, limit: int) -> list[str]:
    """All lines of a small text file; line i of the result is line i + 1 of the file.

    Args:
      path: The file, plain or gzip.
      limit: More lines than this are refused, so that a wrong file cannot fill the memory.

    Returns:
      The lines without their ends.

    Raises:
      DataError: As `line_blocks`, or there are more than `limit` lines or `MAX_SMALL_BYTES` characters.
    """
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
