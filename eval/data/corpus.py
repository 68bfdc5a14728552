"""Corpora: text files with one passage per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxwhiten.datasets import BadRows, numbered_lines


@dataclass
class Corpus:
    """The passages of text files: their non-blank lines."""

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
