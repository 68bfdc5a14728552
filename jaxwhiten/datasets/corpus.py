"""Plain-text corpora: one passage per line, in one or more files, plain or gzip."""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxwhiten.datasets.textfile import BadRows, line_blocks
from jaxwhiten.errors import DataError, DataNotFoundError

TEXT_ENDINGS = (".txt", ".txt.gz")


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


def check_share(share: float) -> None:
    """Checks the share of passages held out."""
    if not 0 < share < 1:
        raise DataError(f"The share of passages held out is {share}; expected a number above 0 and below 1.")
