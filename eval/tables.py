"""Puts the tables of finished runs into Markdown files, between comments that name the run and the table.

    python -m eval.tables README.md docs/evidence/sts.md

A place for a table looks like this; the text between the two comments is replaced:

    <!-- table methods difference_table pooling=mean -->
    <!-- end -->

The words are the run's name below runs/, a table of `eval.report`, and conditions on rows: `KEY=VALUE,VALUE`,
`columns=PATTERN` for the columns whose names match a regular expression (`_` stands for a space), and `plain` for a
table without its caption and notes. Several places joined by ` + ` make one table, if their columns are the same.

A `*` in a run's name stands for seeds: scores are means over the runs of that name, and an interval reaches from their
lowest end to their highest.

A run's name with `{A,B}` names several runs, which make one table of `eval/compared.py`. Places named
`benchmarks/NAME VIEW` hold tables of `eval/report/benchmarks.py`. In both, conditions on rows are `COLUMN=PATTERN`:
regular expressions that a row's cell matches.

The results of a run are also kept in docs/runs/NAME, without sentences of data sets, and read from there if runs/ no
longer has the run, so that every table can be made again from the repository.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from configs import launch
from eval import beir, compared, compression, report, stages, thresholds
from eval.common import say
from eval.report import benchmarks
from eval.report.cut import cut
from jaxwhiten import io
from jaxwhiten.errors import InputError, unknown_name

MADE, KEPT = Path("runs"), Path("docs/runs")
_PLACE = re.compile(r"(<!-- table (?P<words>[^>]*?) -->\n)(?P<old>.*?)(?=<!-- end -->)", re.DOTALL)


def keep(run: report.Run, folder: Path) -> report.Run:
    """Saves the part of a run that the repository keeps: rows and header without sentences, searches or data folders.

    Returns:
      The saved run.
    """
    config = run.header.config
    own = {key: "" for key in ("data_dir", "cache", "out") if key in config}  # folders of the machine it was made on
    own |= {key: Path(config[key]).name for key in ("dataset", "outside", "corpus") if key in config}
    without = {name: value for name, value in (("examples", ()), ("similarity", None)) if hasattr(run.header, name)}
    if hasattr(run.header, "dataset"):
        without["dataset"] = dataclasses.replace(run.header.dataset, conflicts=())
    kept = dataclasses.replace(run.with_header(config=config | own, **without), figures={})
    kept.save(folder)
    return kept


def load(name: str) -> report.Run | list[report.Run] | benchmarks.Result | None:
    """The run of a name from runs/, which is then copied to docs/runs/, or the copy there; None if there is neither."""
    if "{" in name:
        parts = [part.split(",") for part in re.split(r"[{}]", name)]
        runs = [load("".join(words)) for words in itertools.product(*parts)]
        return None if any(run is None for run in runs) else runs
    if name.startswith(benchmarks.PREFIX):
        return benchmarks.load(name.removeprefix(benchmarks.PREFIX))
    if "*" in name:
        found = {
            str(path.parent.relative_to(folder)) for folder in (MADE, KEPT) for path in folder.glob(f"{name}/run.json")
        }
        return over_seeds([load(run) for run in sorted(found)], name.partition("-*")[0]) if found else None
    made, kept = MADE / name, KEPT / name
    if (path := kept.with_name(f"{kept.name}.json")).is_file():
        return {"name": name, **json.loads(path.read_text(encoding="utf-8"))}
    if (made / "run.json").is_file():
        run = report.Run.load(made)
        return keep(run, kept) if run.header.complete else run
    return report.Run.load(kept) if (kept / "run.json").is_file() else None


def over_seeds(runs: Sequence[report.Run], name: str) -> report.Run:
    """A run whose rows are those of several: means of their figures, and the widest of their intervals."""
    name = f"{name}, {len(runs)} seed{'s' * (len(runs) > 1)}"
    rows = [dataclasses.replace(_joined(same), model=name) for same in zip(*(run.rows for run in runs), strict=True)]
    config = dict(runs[0].header.config)
    if "versus" in config:
        config["versus"] = re.sub(r"-\d+(?=/|$)", "", config["versus"])
    return dataclasses.replace(runs[0].with_header(config=config), rows=rows)


def _joined(values: Sequence[Any]) -> Any:
    """The combination of the same cell of several runs; a value that is no number is taken from the first run."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if isinstance(first, dict):
        return {key: _joined([value[key] for value in values]) for key in first}
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        parts = {field.name: [getattr(value, field.name) for value in values] for field in dataclasses.fields(first)}
        ends = {
            name: end(parts[name]) for name, end in (("low", min), ("high", max)) if None not in parts.get(name, [None])
        }
        return dataclasses.replace(first, **{name: _joined(part) for name, part in parts.items()} | ends)
    return fmean(values) if isinstance(first, float) else first


def table_of(
    run: report.Run | list[report.Run] | benchmarks.Result, view: str, conditions: Sequence[str]
) -> report.Table | None:
    """The table of a run that the words of a place ask for; None if the run has nothing to show in it."""
    if isinstance(run, list):
        if view not in compared.VIEWS:
            raise unknown_name("table", view, compared.VIEWS)
        return cut(compared.VIEWS[view](run), conditions)
    if isinstance(run, dict):
        found = (beir.VIEWS | compression.VIEWS | stages.VIEWS | thresholds.VIEWS).get(view)
        return cut(found(run), conditions) if found else benchmarks.table_of(run, view, conditions)
    module = getattr(report, run.header.program.removeprefix("eval."))
    views = [name for name in vars(module) if name.endswith("_table") and not name.startswith("_")]
    if view not in views:
        raise unknown_name("table", view, views)
    rows, shown = list(run.rows), {words for words in conditions if words == "plain" or words.startswith("columns=")}
    for condition in set(conditions) - shown:
        key, equals, value = condition.partition("=")
        if not equals:
            raise InputError(f"{condition!r}: a condition on rows is KEY=VALUE.")
        rows = [row for row in rows if _shown(getattr(row, key, None)) in value.split(",")]
    table: report.Table | None = getattr(module, view)(dataclasses.replace(run, rows=rows))
    return cut(table, sorted(shown)) if table is not None else None


def joined(tables: Sequence[report.Table]) -> report.Table:
    """The rows of all tables, one table below the other.

    Raises:
      InputError: Their columns differ.
    """
    first = tables[0]
    if any(list(table.columns) != list(first.columns) for table in tables):
        raise InputError("Tables that are joined must have the same columns.")
    if len(tables) == 1:
        return first
    return dataclasses.replace(first, rows=[row for table in tables for row in table.rows], best=frozenset(), groups=())


def fill(path: Path) -> list[str]:
    """Fills every place of a file; returns the runs that are missing."""
    missing = []

    def new(match: re.Match[str]) -> str:
        parts = [part.split() for part in match["words"].split(" + ")]
        if any(len(words) < 2 for words in parts):
            raise InputError(f"{path}: `{match['words']}` names no run and table.")
        runs = {name: load(name) for name in dict.fromkeys(words[0] for words in parts)}
        if absent := [name for name, run in runs.items() if run is None]:
            missing.extend(absent)
            return match[0]
        found = (table_of(runs[name], view, conditions) for name, view, *conditions in parts)
        tables = [table for table in found if table is not None]
        return f"{match[1]}\n{joined(tables).markdown() if tables else ''}\n\n"

    text = path.read_text(encoding="utf-8")
    filled = _PLACE.sub(new, text)
    if filled != text:
        io.write_text(path, filled)
    return missing


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    if len(sys.argv) < 2:
        raise InputError("python -m eval.tables FILE.md ...")
    for name in sys.argv[1:]:
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{name} is not a file.")
        missing = fill(path)
        say(f"{name}: " + (f"left as they were, the runs are not there: {', '.join(missing)}" if missing else "filled"))


if __name__ == "__main__":
    launch.run_without_config(main)
