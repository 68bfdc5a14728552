"""A table: columns declared once, a line for each row, shown in a terminal or as Markdown."""

from __future__ import annotations

import dataclasses
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from eval.runs import Record
from jaxwhiten.errors import InputError

Cell = str | Callable[[Record], str]  # the name of an attribute of the row, or a function from the row to text
Columns = Mapping[str, Cell]  # by their heads


def number(value: int | float | None, digits: int = 2, signed: bool = False) -> str:
    """A number as a cell; a dash if it is missing or undefined."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:{'+' * signed},.{digits}f}"  # + 0.0: no "-0.00"


SIGNIFICANT = "∗"  # follows a significant difference; Markdown does not interpret this sign


def mark(estimate: Record | None) -> str:
    """`SIGNIFICANT` if the interval of a figure excludes 0, else a space."""
    if estimate and (estimate.low > 0 or estimate.high < 0):
        return SIGNIFICANT
    return " "


def change(estimate: Record | None, digits: int = 2) -> str:
    """A difference as a cell, with its mark; empty if there is none."""
    if estimate:
        return number(estimate.value, digits, signed=True) + mark(estimate)
    return ""


def bounds(estimate: Record | None, digits: int = 2, signed: bool = False) -> str:
    """An interval as a cell: `a–b`, or `+a to +b` for a difference."""
    if estimate is None:
        return number(None)
    low = number(estimate.low, digits, signed)
    high = number(estimate.high, digits, signed)
    if signed:
        return f"{low} to {high}"
    return f"{low}–{high}"


def shorten(text: str, length: int) -> str:
    """The text, shortened to a length."""
    if len(text) <= length:
        return text
    return text[: length - 1].rstrip() + "…"


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
    key_columns: int | None = None  # number of columns, from the left, that name a row; by default `text_columns`
    merged: bool = False  # whether Markdown names what rows in succession share in their first column only once

    def text(self, width: int = 100) -> str:
        """As text for a terminal; a table that is too wide is split, and each part repeats the columns that name a row.

        Words that all rows share are printed above the table instead.
        """
        keys = self.key_columns
        if keys is None:
            keys = self.text_columns
        constant, common = self._shared()
        names = [c for c in range(keys) if c not in constant]
        widths = [max(len(row[c]) for row in [self.columns, *self.rows]) + 2 for c in range(len(self.columns))]
        parts: list[list[int]] = [[]]
        for c in range(keys, len(self.columns)):
            if parts[-1] and sum(widths[i] for i in [*names, *parts[-1], c]) - 2 > width:
                parts.append([])
            parts[-1].append(c)
        lines = []
        if self.caption:
            lines += [textwrap.fill(self.caption, width), ""]
        if common:
            lines += [common, ""]
        lines.append("\n\n".join(self._lines([*names, *numbers], widths) for numbers in parts))
        return "\n".join([*lines, *(textwrap.fill(note, width) for note in self.notes)])

    def _shared(self) -> tuple[set[int], str]:
        """The text columns, except the last, that are equal in all rows, and a line that names their values."""
        if len(self.rows) < 2:
            return set(), ""
        constant = [c for c in range(self.text_columns) if len({row[c] for row in self.rows}) == 1]
        constant = constant[: len(self.columns) - 1]
        shared = ", ".join(f"{self.columns[c]} {self.rows[0][c]}" for c in constant if self.rows[0][c])
        if not shared:
            return set(constant), ""
        return set(constant), f"all rows: {shared}"

    def _lines(self, columns: Sequence[int], widths: Sequence[int]) -> str:
        def padded(row: Sequence[str], c: int) -> str:
            if c < self.text_columns:
                return row[c].ljust(widths[c] - 2)
            return row[c].rjust(widths[c] - 2)

        def line(row: Sequence[str]) -> str:
            return "  ".join(padded(row, c) for c in columns).rstrip()

        rule = "─" * (sum(widths[c] for c in columns) - 2)
        lines = [line(self.columns), rule]
        for number, row in enumerate(self.rows):
            if number and self.groups and self.groups[number] != self.groups[number - 1]:
                lines.append(rule)
            lines.append(line(row))
        return "\n".join([*lines, rule])

    def markdown(self) -> str:
        """As Markdown."""
        numbers = len(self.columns) - self.text_columns
        marks = ["---"] * self.text_columns + ["---:"] * numbers
        body = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        if self.merged:
            for r in range(1, len(body)):
                if self.rows[r][0] == self.rows[r - 1][0]:
                    body[r][0] = ""
        lines = [f"| {' | '.join(row)} |" for row in ([*self.columns], marks, *body)]
        parts = [self.caption, "\n".join(lines), *self.notes]
        return "\n\n".join(part for part in parts if part)


def figure(name: str, digits: int = 2, missing: str | None = None) -> Cell:
    """A cell with a number of the row, by its path, such as `"geometry.isoscore"`.

    With `missing` the row may lack the number, and the cell is this text where it does.
    """
    get = attrgetter(name)

    def cell(row: Record) -> str:
        if missing is not None and row.get(name) is None:
            return missing
        return number(get(row), digits)

    return cell


def _text_of(cell: Cell) -> Callable[[Record], str]:
    if isinstance(cell, str):
        return lambda row: str(getattr(row, cell))
    return cell


def table(
    rows: Sequence[Record], columns: Columns, text_columns: int, caption: str, group: Sequence[str] = (), **options: Any
) -> Table:
    """A line for each row; `options` are passed to `Table`. Rows with equal attributes `group` form a group."""
    functions = [_text_of(cell) for cell in columns.values()]
    cells = [[text(row) for text in functions] for row in rows]
    groups: Sequence[object] = list(map(attrgetter(*group), rows)) if group else ()
    return Table(list(columns), cells, text_columns, caption, groups=groups, **options)


def cut(table: Table, conditions: Sequence[str]) -> Table:
    """The rows and columns of a table that conditions choose.

    Args:
      table: All of it.
      conditions: `COLUMN=PATTERN` keeps the rows in which a column matches a regular expression, `columns=PATTERN` the
        columns whose names match; `_` stands for a space. `plain` drops the caption and the notes.

    Raises:
      InputError: A condition names no column.
    """
    heads = list(table.columns)
    selection = ""
    for condition in set(conditions) - {"plain"}:
        column, equals, pattern = condition.replace("_", " ").partition("=")
        if column == "columns":
            selection = pattern
        elif not equals or column not in heads:
            raise InputError(f"{condition!r}: a condition on rows is COLUMN=PATTERN, a column one of {heads}.")
        else:
            c = heads.index(column)
            rows = [row for row in table.rows if re.search(pattern, row[c])]
            table = dataclasses.replace(table, rows=rows, groups=())
    chosen = [c for c, head in enumerate(heads) if re.search(selection, head)]
    words = sum(c < table.text_columns for c in chosen)
    rows = [[row[c] for c in chosen] for row in table.rows]
    columns = [heads[c] for c in chosen]
    table = dataclasses.replace(table, columns=columns, rows=rows, text_columns=words, key_columns=None)
    if "plain" in conditions:
        return dataclasses.replace(table, caption="", notes=())
    return table
