"""Puts the tables of finished runs into Markdown files, between comments that name the run and the table.

    python -m eval.tables README.md docs/evidence/whitening.md

A place for a table looks like this; the text between the two comments is replaced:

    <!-- table methods difference_table pooling=mean -->
    <!-- end -->

The words are a run's name (`eval.runs.find`), one of its program's `TABLES`, and conditions: `columns=PATTERN` for the
columns whose names match a regular expression (`_` stands for a space), `plain` for a table without its caption and
notes, and conditions on rows. These are `KEY=VALUE,VALUE` where rows are settings of an encoder, and elsewhere
`COLUMN=PATTERN`, for the rows whose cell matches. Several places joined by ` + ` make one table, if their columns are
the same.

A `*` in a run's name stands for seeds: scores are means over the runs of that name, and an interval reaches from their
lowest end to their highest. A run's name with `{A,B}` names several runs for a table over all of them.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from configs import launch
from eval import runs
from eval.common import say
from eval.report import Table, cut
from eval.runs import Run
from jaxwhiten import io
from jaxwhiten.errors import InputError, unknown_name

_PLACE = re.compile(r"(<!-- table (?P<words>[^>]*?) -->\n)(?P<old>.*?)(?=<!-- end -->)", re.DOTALL)


def table_of(sources: Sequence[Run], view: str, conditions: Sequence[str]) -> Table | None:
    """The table that the words of a place ask for; None if the runs have nothing to show in it."""
    tables = runs.module(sources[0]).TABLES
    if view not in tables:
        raise unknown_name("table", view, tables)
    if len(sources) == 1 and sources[0].rows and "pooling" in sources[0].rows[0]:
        columns = [words for words in conditions if words == "plain" or words.startswith("columns=")]
        sources = [Run(sources[0].header, _chosen(sources[0].rows, set(conditions) - set(columns)))]
        conditions = columns
    table: Table | None = tables[view](*sources)
    if table is not None and table.rows:
        return cut(table, conditions)
    return None


def _chosen(rows: Sequence[runs.Record], conditions: set[str]) -> list[runs.Record]:
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals:
            raise InputError(f"{condition!r}: a condition on rows is KEY=VALUE.")
        rows = [row for row in rows if _text(row.get(key)) in value.split(",")]
    return list(rows)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def joined(tables: Sequence[Table]) -> Table:
    """The rows of all tables, one table below the other.

    Raises:
      InputError: Their columns differ.
    """
    first = tables[0]
    if any(list(table.columns) != list(first.columns) for table in tables):
        raise InputError("Tables that are joined must have the same columns.")
    if len(tables) == 1:
        return first
    return dataclasses.replace(first, rows=[row for table in tables for row in table.rows], groups=())


def places(path: Path) -> list[list[list[str]]]:
    """For each place of a file the words of its parts.

    Raises:
      InputError: One names no run and table.
    """
    tables = []
    for match in _PLACE.finditer(path.read_text(encoding="utf-8")):
        tables.append([part.split() for part in match["words"].split(" + ")])
        if any(len(words) < 2 for words in tables[-1]):
            raise InputError(f"{path}: `{match['words']}` names no run and table.")
    return tables


def fill(path: Path) -> list[str]:
    """Fills every place of a file; returns the runs that are missing."""
    missing: list[str] = []
    of_places = iter(places(path))

    def new(match: re.Match[str]) -> str:
        parts = next(of_places)
        by_name = {words[0]: [runs.find(name) for name in runs.expand_braces(words[0])] for words in parts}
        if absent := [name for name, sources in by_name.items() if None in sources]:
            missing.extend(absent)
            return match[0]
        drawn = [table_of(by_name[name], view, conditions) for name, view, *conditions in parts]
        tables = [table for table in drawn if table is not None]
        markdown = ""
        if tables:
            markdown = joined(tables).markdown()
        return f"{match[1]}\n{markdown}\n\n"

    text = path.read_text(encoding="utf-8")
    filled = _PLACE.sub(new, text)
    if filled != text:
        io.write_text(path, filled)
    return missing


def main() -> None:
    if len(sys.argv) < 2:
        raise InputError("python -m eval.tables FILE.md ...")
    for name in sys.argv[1:]:
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{name} is not a file.")
        state = "filled"
        if missing := fill(path):
            state = f"left as they were, the runs are not there: {', '.join(missing)}"
        say(f"{name}: {state}")


if __name__ == "__main__":
    launch.run_without_config(main)
