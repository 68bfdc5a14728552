"""Puts the tables of finished runs into Markdown files, between comments that say which table of which run.

    python -m eval.tables README.md docs/methods.md

A place for a table is written so, and what is between the two comments is replaced:

    <!-- table runs/methods difference_table pooling=mean -->
    <!-- end -->

The words are the run's folder, a table of `jaxwhiten.report`, conditions on rows, and `plain` for a table without its
caption and notes. A run that is not there leaves its table as it is, and the command says so.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.common import say
from jaxwhiten import io, report
from jaxwhiten.errors import InputError, JaxwhitenError, unknown_name

_PLACE = re.compile(r"(<!-- table (?P<words>[^>]*?) -->\n)(?P<old>.*?)(?=<!-- end -->)", re.DOTALL)


def table_of(words: Sequence[str]) -> str | None:
    """The table that the words of a place ask for, as Markdown; None where the run is not there."""
    folder, view, *conditions = words
    plain = "plain" in conditions
    if not Path(folder, "run.json").is_file():
        return None
    run = report.Run.load(folder)
    module = report.retrieval if run.header.program == "eval.retrieval" else report
    views = [name for name in vars(module) if name.endswith("_table") and not name.startswith("_")]
    if view not in views:
        raise unknown_name("table", view, views)
    for condition in set(conditions) - {"plain"}:
        key, equals, value = condition.partition("=")
        if not equals:
            raise InputError(f"{condition!r}: a condition on rows is KEY=VALUE.")
        rows = [row for row in run.rows if str(getattr(row, key, None)) in value.split(",")]
        run = dataclasses.replace(run, rows=rows)
    table = getattr(module, view)(run)
    if table is not None and plain:
        table = dataclasses.replace(table, caption="", notes=())
    return "" if table is None else table.markdown()


def fill(path: Path) -> list[str]:
    """Fills every place of a file; returns the runs that are not there."""
    missing = []

    def new(match: re.Match[str]) -> str:
        words = match["words"].split()
        if len(words) < 2:
            raise InputError(f"{path}: `{match['words']}` names no run and table.")
        found = table_of(words)
        if found is None:
            missing.append(words[0])
            return match[0]
        return f"{match[1]}\n{found}\n\n"

    text = path.read_text(encoding="utf-8")
    filled = _PLACE.sub(new, text)
    if filled != text:
        io.write_text(path, filled)
    return missing


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    if len(sys.argv) < 2:
        raise InputError("python -m eval.tables FILE.md ...")
    for name in sys.argv[1:]:
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{name} is not a file.")
        missing = fill(path)
        say(f"{name}: " + (f"left as they were, the runs are not there: {', '.join(missing)}" if missing else "filled"))


if __name__ == "__main__":
    try:
        main()
    except JaxwhitenError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
