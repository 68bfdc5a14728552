"""Shared parts of the views of an evaluation: columns of settings, `results.md` with the plots, the closing text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.report.table import Cell, Table
from eval.runs import Record, Run
from eval.settings import combinations, label, symbols
from jaxwhiten import io

MARKDOWN = "results.md"
Plots = Mapping[str, tuple[Callable[..., Path | None], str]]  # file name -> function of `path`, caption


def setting_columns(run: Run) -> dict[str, Cell]:
    """The columns that name a setting; parameters of whitenings are included only if they differ between rows."""
    columns: dict[str, Cell] = {"pooling": "pooling", "whitening": label, "k": "k"}
    parameters = combinations(run.rows)
    if len(parameters) > 1:
        for name in dict.fromkeys(name for values in parameters for name in values):
            columns[name] = lambda row, name=name: symbols(row).get(name, "")
    return columns


@dataclass(frozen=True)
class Views:
    """The views of the runs of one program."""

    tables: Mapping[str, Callable[[Run], Table | None]]  # by section
    plots: Plots

    def write(self, run: Run, folder: io.PathLike) -> list[Path]:
        """Writes `results.md` and the plots of a run that have something to show.

        Returns:
          The files written, `results.md` first.
        """
        header = run.header
        folder = Path(folder)
        pictures = [
            (path, caption) for name, (draw, caption) in self.plots.items() if (path := draw(run, path=folder / name))
        ]
        markdown = [f"# {header.title}", *(table.markdown() for view in self.tables.values() if (table := view(run)))]
        markdown += [f"![{caption}]({path.name})" for path, caption in pictures]
        io.write_text(folder / MARKDOWN, "\n\n".join([*markdown, _provenance(header)]) + "\n")
        return [folder / MARKDOWN, *(path for path, _ in pictures)]

    def remove(self, folder: Path) -> None:
        """Removes the tables and plots of an earlier run, so that they are not mistaken for newer results."""
        for name in (MARKDOWN, *self.plots):
            (folder / name).unlink(missing_ok=True)

    def text(self, run: Run, files: Sequence[Path]) -> str:
        """The text that a program prints at its end: tables, texts, the time taken and the files written."""
        header = run.header
        lines = [f"\n{table.text()}" for view in self.tables.values() if (table := view(run))]
        lines.append(f"\n{header.seconds:.0f} s, of which encoding {header.encoding.seconds:.0f} s")
        lines.append(f"Table: {files[0]}")
        if files[1:]:
            lines.append("Plots: " + " ".join(map(str, files[1:])))
        return "\n".join(lines)


def _provenance(header: Record) -> str:
    """When, where and with which versions the run was made, for the end of `results.md`."""
    encoding = header.encoding
    machine = header.machine
    memory = "not known"
    if machine.peak_gb is not None:
        memory = f"{machine.peak_gb:.1f} GB"
    encoded = f"{encoding.sentences:,} unique sentences"
    if encoding.nli_rows:
        encoded += f" and those of {encoding.nli_rows:,} NLI rows"
    if encoding.note:
        encoded += f"; {encoding.note}"
    return "\n".join(
        [
            f"Made on {header.date} at commit {header.commit} by `{header.command}`",
            f"in {header.seconds:.0f} s, of which encoding {encoding.seconds:.0f} s ({encoded}).",
            f"Machine: {machine.cores} cores of {machine.cpu}, JAX on {machine.devices}, peak memory {memory}.",
            f"Versions: {', '.join(f'{name} {version}' for name, version in header.versions.items())}.",
        ]
    )
