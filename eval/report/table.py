"""A table as text cells, shown in a terminal or as Markdown."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def number(value: int | float | None, digits: int = 2, signed: bool = False) -> str:
    """A number as a cell; a dash if it is missing or undefined."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:{'+' * signed},.{digits}f}"  # + 0.0: no "-0.00"


def shorten(text: str, length: int) -> str:
    """The text, shortened to a length."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def model_name(model: str) -> str:
    """The last part of a model's name; for a `model` folder that a run wrote, the name of the run."""
    return Path(model.removesuffix("/model")).name


@dataclass(frozen=True)
class Table:
    """Cells as text, for any medium."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1  # number of columns, from the left, that hold words; the others hold numbers
    caption: str = ""
    notes: Sequence[str] = ()
    groups: Sequence[object] = ()  # for each row; a rule is drawn between groups
    best: frozenset[tuple[int, int]] = frozenset()  # cells (row, column) that hold the best value of their column
    key_columns: int | None = None  # number of columns, from the left, that name a row; by default `text_columns`

    def text(self, width: int = 100) -> str:
        """As text for a terminal; a table that is too wide is split, and each part repeats the columns that name a row.

        Words that all rows share are printed above the table instead.
        """
        keys, (same, common) = self.text_columns if self.key_columns is None else self.key_columns, self._shared()
        names = [c for c in range(keys) if c not in same]
        widths = [max(len(row[c]) for row in [self.columns, *self.rows]) + 2 for c in range(len(self.columns))]
        parts: list[list[int]] = [[]]
        for c in range(keys, len(self.columns)):
            if parts[-1] and sum(widths[i] for i in [*names, *parts[-1], c]) - 2 > width:
                parts.append([])
            parts[-1].append(c)
        lines = [textwrap.fill(self.caption, width), ""] if self.caption else []
        lines += [common, ""] if common else []
        lines.append("\n\n".join(self._lines([*names, *numbers], widths) for numbers in parts))
        return "\n".join([*lines, *(textwrap.fill(note, width) for note in self.notes)])

    def _shared(self) -> tuple[set[int], str]:
        """The text columns, except the last, that are equal in all rows, and a line that names their values."""
        words = range(self.text_columns) if len(self.rows) > 1 else ()
        same = [c for c in words if len({row[c] for row in self.rows}) == 1][: len(self.columns) - 1]
        told = ", ".join(f"{self.columns[c]} {self.rows[0][c]}" for c in same if self.rows[0][c])
        return set(same), f"all rows: {told}" if told else ""

    def _lines(self, columns: Sequence[int], widths: Sequence[int]) -> str:
        def line(row: Sequence[str]) -> str:
            padded = (
                row[c].ljust(widths[c] - 2) if c < self.text_columns else row[c].rjust(widths[c] - 2) for c in columns
            )
            return "  ".join(padded).rstrip()

        rule = "─" * (sum(widths[c] for c in columns) - 2)
        lines = [line(self.columns), rule]
        for number, row in enumerate(self.rows):
            if number and self.groups and self.groups[number] != self.groups[number - 1]:
                lines.append(rule)
            lines.append(line(row))
        return "\n".join([*lines, rule])

    def markdown(self) -> str:
        """As Markdown, with the best value of each column in bold."""
        marks = ["---" if c < self.text_columns else "---:" for c in range(len(self.columns))]
        body = [
            [f"**{cell}**" if (r, c) in self.best else cell.replace("|", "\\|") for c, cell in enumerate(row)]
            for r, row in enumerate(self.rows)
        ]
        lines = [f"| {' | '.join(row)} |" for row in ([*self.columns], marks, *body)]
        parts = [self.caption, "\n".join(lines), *self.notes]
        return "\n\n".join(part for part in parts if part)
