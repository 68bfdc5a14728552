"""Shared parts of all views: columns declared once, `results.md` with the plots, and the closing text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from eval.report.results import Estimate, Header, TaskScores
from eval.report.run import Run
from eval.report.table import Table, number
from jaxwhiten import io

MARKDOWN = "results.md"
_PLOTS = ("score_by_k", "spectrum", "similarity", "quality_by_memory", "quality_by_time", "quality_by_bytes")
Plots = Mapping[str, tuple[Callable[[Any, Path], Path | None], str]]  # file name -> function, caption
Cell = str | Callable[[Any], str]  # the name of an attribute of the row, or a function from the row to text
Columns = Mapping[str, Cell]  # by their heads


def figure(name: str, digits: int = 2) -> Cell:
    """A cell with a number of the row, by its path, such as `"geometry.isoscore"`."""
    get = attrgetter(name)
    return lambda row: number(get(row), digits)


def change(found: Estimate | None, digits: int = 2) -> str:
    """A difference as a cell, with its mark; empty if there is none."""
    return number(found.value, digits, signed=True) + found.mark if found else ""


def ends(found: Estimate | TaskScores | None, digits: int = 2, signed: bool = False) -> str:
    """An interval as a cell: `a–b`, or `+a to +b` for a difference."""
    if found is None:
        return number(None)
    return (" to " if signed else "–").join(number(end, digits, signed) for end in (found.low, found.high))


def setting_columns(run: Run[Any, Any]) -> dict[str, Cell]:
    """The columns that name a setting; parameters of whitenings are included only if they differ between rows."""
    columns: dict[str, Any] = {"pooling": "pooling", "whitening": "label", "k": "k"}
    parameters = run.parameters()
    if len(parameters) > 1:
        for name in dict.fromkeys(name for one in parameters for name in one):
            columns[name] = lambda row, name=name: row.parameters.get(name, "")
    return columns


def table(
    rows: Sequence[Any],
    columns: Columns,
    text_columns: int,
    caption: str,
    *,
    group: Sequence[str] = (),
    best: Mapping[str, Sequence[float]] = {},
    **options: Any,
) -> Table:
    """A line for each row; `options` are passed to `Table`.

    Rows with equal attributes `group` form a group. `best` has the values of columns, by head, whose highest value is
    marked, unless there is only one row.
    """
    cells = [
        [str(getattr(row, cell)) if isinstance(cell, str) else cell(row) for cell in columns.values()] for row in rows
    ]
    groups, heads = list(map(attrgetter(*group), rows)) if group else (), list(columns)
    marked = set()
    for head, values in best.items():
        highest = max(filter(math.isfinite, values), default=None) if len(rows) > 1 else None
        marked |= {(row, heads.index(head)) for row, value in enumerate(values) if value == highest}
    return Table(heads, cells, text_columns, caption, groups=groups, best=frozenset(marked), **options)


@dataclass(frozen=True)
class Views:
    """The views of the runs of one program."""

    tables: Mapping[str, Callable[[Any], Table | None]]  # by section
    plots: Plots
    texts: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)  # shown verbatim; empty ones are omitted
    unprinted: Sequence[str] = ()  # sections that are not printed in the terminal

    def write(self, run: Run[Any, Any], folder: io.PathLike) -> list[Path]:
        """Writes `results.md` and the plots of a run that have something to show.

        Returns:
          The files written, `results.md` first.
        """
        header, folder = run.header, Path(folder)
        drawn = [(path, caption) for name, (draw, caption) in self.plots.items() if (path := draw(run, folder / name))]
        texts = {section: text(run) for section, text in self.texts.items()}
        markdown = [f"# {header.title}", *(table.markdown() for view in self.tables.values() if (table := view(run)))]
        markdown += [f"![{caption}]({path.name})" for path, caption in drawn]
        markdown += [f"## {head}\n\n```text\n{text}\n```" for head, text in texts.items() if text]
        io.write_text(folder / MARKDOWN, "\n\n".join([*markdown, _provenance(header)]) + "\n")
        return [folder / MARKDOWN, *(path for path, _ in drawn)]

    def text(self, run: Run[Any, Any], files: Sequence[Path]) -> str:
        """The text that a program prints at its end: tables, texts, the time taken and the files written."""
        header = run.header
        tables = [view(run) for section, view in self.tables.items() if section not in self.unprinted]
        shown = [table.text() for table in tables if table]
        shown += [text(run) for section, text in self.texts.items() if section not in self.unprinted]
        lines = ["\n" + part for part in shown if part]
        lines.append(f"\n{header.seconds:.0f} s, of which encoding {header.encoding.seconds:.0f} s")
        lines += [f"Table: {files[0]}"]
        return "\n".join([*lines, *(["Plots: " + " ".join(map(str, files[1:]))] if files[1:] else [])])


def remove_views(folder: io.PathLike) -> None:
    """Removes the tables and plots of an earlier run, so that they are not mistaken for newer results."""
    for name in (MARKDOWN, *(f"{name}.png" for name in _PLOTS)):
        Path(folder, name).unlink(missing_ok=True)


def _provenance(header: Header) -> str:
    """When, where and with which versions the run was made, for the end of `results.md`."""
    encoding, machine, memory = header.encoding, header.machine, header.machine.peak_rss_gb
    of = f"{encoding.sentences:,} unique sentences"
    of += f" and those of {encoding.nli_rows:,} NLI rows" if encoding.nli_rows else ""
    of += f"; {encoding.note}" if encoding.note else ""
    return "\n".join(
        [
            f"Made on {header.date} by `{header.program}` in {header.seconds:.0f} s, of which encoding "
            f"{encoding.seconds:.0f} s ({of}).",
            f"Machine: {machine.cores} cores, {machine.devices} JAX device(s) of kind {machine.device_kind}, peak "
            f"memory {'not known' if memory is None else f'{memory:.1f} GB'}.",
            f"Versions: {', '.join(f'{name} {version}' for name, version in header.versions.items())}.",
        ]
    )
