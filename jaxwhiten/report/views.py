"""What the views of both evaluations share: columns of settings, `results.md` with the plots, and the closing text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten.report import page
from jaxwhiten.report.results import Header, Row
from jaxwhiten.report.run import Run
from jaxwhiten.report.table import Table, number

MARKDOWN = "results.md"
_PLOTS = (
    "score_by_k.png",
    "spectrum.png",
    "similarity.png",
    "quality_by_memory.png",
    "quality_by_time.png",
    "quality_by_bytes.png",
)
Plots = Mapping[str, tuple[Callable[[Any, Path], Path | None], str, str]]  # file name -> function, caption, section
Tables = Mapping[str, Callable[[Any], Table | None]]  # by the section of the page
Figures = Mapping[str, tuple[Callable[[Any], Any], int]]  # head -> the figure of a row, and its digits


def setting_columns(run: Run[Any, Any]) -> list[str]:
    """Heads of the columns that name a setting; β and γ only where they differ between rows."""
    return ["pooling", "whitening", "k", *(["β", "γ"] if len(run.knobs()) > 1 else [])]


def setting_cells(run: Run[Any, Any], row: Row) -> list[str]:
    """The cells below `setting_columns`."""
    knobs = [f"{row.beta:g}", f"{row.gamma:g}"] if row.has_knobs else ["", ""]
    return [row.pooling, row.label, str(row.k), *(knobs if len(run.knobs()) > 1 else [])]


def figure_cells(row: Row, figures: Figures) -> list[str]:
    """The cells below the heads of `figures`."""
    return [number(value(row), digits) for value, digits in figures.values()]


def write_views(
    run: Run[Any, Any],
    folder: Path,
    tables: Tables,
    plots: Plots,
    subject: str,
    *,
    folded: Mapping[str, str] = {},
    texts: Mapping[str, str] = {},
) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots; what has nothing to show is left out.

    `folded` is HTML below the table of a section; `texts` are sections without a table, shown as they are.
    """
    header = run.header
    drawn = {name: path for name, (draw, *_) in plots.items() if (path := draw(run, folder / name))}
    markdown = [f"# {header.title}", *(table.markdown() for view in tables.values() if (table := view(run)))]
    markdown += [f"![{plots[name][1]}]({name})" for name in drawn]
    markdown += [f"## {head}\n\n```text\n{text}\n```" for head, text in texts.items() if text]
    io.write_text(folder / MARKDOWN, "\n\n".join([*markdown, _provenance(header)]) + "\n")

    quiet = run.with_header(warnings=())  # the page shows the warnings above all tables
    sections = [
        page.section(
            section,
            page.tables(view(quiet)),
            folded.get(section, ""),
            *(page.picture(path, plots[name][1]) for name, path in drawn.items() if plots[name][2] == section),
        )
        for section, view in tables.items()
    ]
    sections += [page.section(section, page.verbatim(text)) for section, text in texts.items()]
    lead = f"{header.model} · {subject} · {header.date}"
    written = page.write_page(
        folder / page.PAGE, header.title, [lead], [*sections, *page.made(header)], header.warnings
    )
    return [folder / MARKDOWN, written, *drawn.values()]


def remove_views(folder: str | os.PathLike[str]) -> None:
    """Removes the tables and plots of an earlier run, so that none of them stands beside newer results."""
    for name in (MARKDOWN, page.PAGE, *_PLOTS):
        Path(folder, name).unlink(missing_ok=True)


def closing_text(
    run: Run[Any, Any], tables: Iterable[Callable[[Any], Table | None]], files: Sequence[Path], examples: str = ""
) -> str:
    """What a program prints when it is done: tables, example searches, the time taken and the names of the files."""
    header = run.header
    shown = [table.text() for view in tables if (table := view(run))]
    lines = ["\n" + part for part in (*shown, examples) if part]
    lines.append(f"\n{header.seconds:.0f} s, of which encoding {header.encoding.seconds:.0f} s")
    lines += [f"Table: {files[0]}", f"Page: {files[1]}"]
    return "\n".join([*lines, *(["Plots: " + " ".join(map(str, files[2:]))] if files[2:] else [])])


def _provenance(header: Header) -> str:
    """When, where and with what the run was made, for the foot of `results.md`."""
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
