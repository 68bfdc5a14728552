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
from jaxwhiten.report.table import Table

MARKDOWN = "results.md"
_PLOTS = ("score_by_k.png", "spectrum.png", "similarity.png", "quality_by_memory.png", "quality_by_time.png")
Draw = Callable[[Any, Path], Path | None]
Plots = Mapping[str, tuple[Draw, str]]  # file name -> how it is drawn, and its caption


def setting_columns(run: Run[Any, Any]) -> list[str]:
    """Heads of the columns that name a setting; β and γ only where they differ between rows."""
    return ["pooling", "whitening", "k", *(["β", "γ"] if len(run.knobs()) > 1 else [])]


def setting_cells(run: Run[Any, Any], row: Row) -> list[str]:
    """The cells below `setting_columns`."""
    knobs = [f"{row.beta:g}", f"{row.gamma:g}"] if row.has_knobs else ["", ""]
    return [row.pooling, row.label, str(row.k), *(knobs if len(run.knobs()) > 1 else [])]


def write_views(
    run: Run[Any, Any],
    folder: Path,
    plots: Plots,
    tables: Iterable[Table | None],
    sections: Callable[[Mapping[str, str]], Sequence[str]],
    lead: str,
    parts: Sequence[str] = (),
) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots.

    Args:
      run: The run.
      folder: Where to write.
      plots: All plots of this kind of run; one that has nothing to show is left out.
      tables: For `results.md`; None is left out.
      sections: Makes the sections of the page, given the plots as HTML by file name, empty where one is left out.
      lead: The line below the page's title.
      parts: Markdown between the plots and the foot of `results.md`.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    header = run.header
    drawn = {name: path for name, (draw, _) in plots.items() if (path := draw(run, folder / name))}
    markdown = [f"# {header.title}", *(table.markdown() for table in tables if table)]
    markdown += [f"![{plots[name][1]}]({name})" for name in drawn]
    io.write_text(folder / MARKDOWN, "\n\n".join([*markdown, *parts, _provenance(header)]) + "\n")
    pictures = {name: page.picture(drawn[name], plots[name][1]) if name in drawn else "" for name in plots}
    written = page.write_page(
        folder / page.PAGE, header.title, [lead], [*sections(pictures), *page.made(header)], header.warnings
    )
    return [folder / MARKDOWN, written, *drawn.values()]


def remove_views(folder: str | os.PathLike[str]) -> None:
    """Removes the tables and plots of an earlier run, so that none of them stands beside newer results."""
    for name in (MARKDOWN, page.PAGE, *_PLOTS):
        Path(folder, name).unlink(missing_ok=True)


def closing_text(run: Run[Any, Any], tables: Iterable[Table | None], files: Sequence[Path], *parts: str) -> str:
    """What a program prints when it is done: tables, further parts, the time taken and the names of the files."""
    header = run.header
    lines = ["\n" + part for part in (*(table.text() for table in tables if table), *parts) if part]
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
