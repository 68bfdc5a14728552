"""A table as text cells, shown in a terminal or as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells as text, to be shown in any medium.

    Attributes:
      columns: Column heads.
      rows: Cells.
      text_columns: How many columns, from the left, hold words; the others hold numbers.
      caption: What the numbers are.
      notes: Footnotes.
      groups: For each row, the group it belongs to; a rule is drawn between groups.
      best: Cells (row, column) that hold the best value of their column.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    caption: str = ""
    notes: Sequence[str] = ()
    groups: Sequence[object] = ()
    best: frozenset[tuple[int, int]] = frozenset()

    def text(self) -> str:
        """For a terminal: aligned columns, rules between groups."""
        cells = [self.columns, *self.rows]
        widths = [max(len(row[c]) for row in cells) for c in range(len(self.columns))]

        def line(row: Sequence[str]) -> str:
            padded = (
                cell.ljust(width) if c < self.text_columns else cell.rjust(width)
                for c, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            return "  ".join(padded).rstrip()

        rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
        width = max(len(rule), 80)
        lines = [textwrap.fill(self.caption, width), ""] if self.caption else []
        lines += [line(self.columns), rule]
        for number, row in enumerate(self.rows):
            if number and self.groups and self.groups[number] != self.groups[number - 1]:
                lines.append(rule)
            lines.append(line(row))
        return "\n".join([*lines, rule, *(textwrap.fill(note, width) for note in self.notes)])

    def markdown(self) -> str:
        """As Markdown, the best value of each column in bold."""
        marks = ["---" if c < self.text_columns else "---:" for c in range(len(self.columns))]
        body = [
            [f"**{cell}**" if (r, c) in self.best else cell.replace("|", "\\|") for c, cell in enumerate(row)]
            for r, row in enumerate(self.rows)
        ]
        lines = [f"| {' | '.join(row)} |" for row in ([*self.columns], marks, *body)]
        parts = [self.caption, "\n".join(lines), *self.notes]
        return "\n\n".join(part for part in parts if part)
