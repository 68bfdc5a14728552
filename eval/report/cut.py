"""The conditions of a place for a table, on the table's own columns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from eval.report.table import Table
from jaxwhiten.errors import InputError


def cut(table: Table, conditions: Sequence[str]) -> Table:
    """The rows and columns of a table that conditions choose.

    Args:
      table: All of it.
      conditions: `COLUMN=PATTERN` keeps the rows in which a column matches a regular expression, `columns=PATTERN` the
        columns whose names match; `_` stands for a space. `plain` drops the caption and the notes.

    Raises:
      InputError: A condition names no column.
    """
    heads, shown = list(table.columns), ""
    for condition in set(conditions) - {"plain"}:
        column, equals, pattern = condition.replace("_", " ").partition("=")
        if column == "columns":
            shown = pattern
        elif not equals or column not in heads:
            raise InputError(f"{condition!r}: a condition on rows is COLUMN=PATTERN, a column one of {heads}.")
        else:
            at = heads.index(column)
            rows = [row for row in table.rows if re.search(pattern, row[at])]
            table = dataclasses.replace(table, rows=rows, best=frozenset(), groups=())
    kept = [at for at, head in enumerate(heads) if re.search(shown, head)]
    words = sum(at < table.text_columns for at in kept)
    rows = [[row[at] for at in kept] for row in table.rows]
    best = frozenset((row, kept.index(at)) for row, at in table.best if at in kept)
    columns = [heads[at] for at in kept]
    table = dataclasses.replace(table, columns=columns, rows=rows, text_columns=words, best=best, key_columns=None)
    return dataclasses.replace(table, caption="", notes=()) if "plain" in conditions else table
