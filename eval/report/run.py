"""A run of an evaluation and its folder: the one place that converts results to JSON and back.

`results.json` is a list of rows, one per setting. `run.json` is the header: protocol, versions, machine.
`figures.safetensors` holds the arrays behind the plots. Tables and plots are views of these files and can be
made again. In JSON an undefined score is null; a field that is None by default is omitted when it is None.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from eval.report import results
from jaxwhiten import io, records
from jaxwhiten.errors import FormatError

_RESULTS, _HEADER, _FIGURES = "results.json", "run.json", "figures.safetensors"
_REMEDY = "Run the evaluation again."
_KINDS: dict[str, tuple[type[results.Header], type[results.Row]]] = {
    results.STSHeader.program: (results.STSHeader, results.STSRow),
    results.RetrievalHeader.program: (results.RetrievalHeader, results.RetrievalRow),
    results.CodesHeader.program: (results.CodesHeader, results.CodeRow),
    results.StaticHeader.program: (results.StaticHeader, results.StaticRow),
    results.UpgradeHeader.program: (results.UpgradeHeader, results.UpgradeRow),
}

HeaderT = TypeVar("HeaderT", bound=results.Header)
RowT = TypeVar("RowT", bound=results.Row)


@dataclass(frozen=True)
class Run(Generic[HeaderT, RowT]):
    """All results of an evaluation: rows, the header that describes them, and the arrays behind the plots by name."""

    header: HeaderT
    rows: list[RowT] = field(default_factory=list)
    figures: dict[str, np.ndarray] = field(default_factory=dict)

    def with_header(self, **changes: Any) -> Run[HeaderT, RowT]:
        """The same rows and figures under a changed header."""
        return dataclasses.replace(self, header=dataclasses.replace(self.header, **changes))

    def parameters(self) -> list[dict[str, str]]:
        """The parameters of the whitenings in the rows, each combination once."""
        found = [row.parameters for row in self.rows if row.has_knobs]
        return [parameters for i, parameters in enumerate(found) if parameters not in found[:i]]

    def save(self, folder: io.PathLike) -> None:
        """Writes the three files, each atomically."""
        folder = Path(folder)
        io.write_json(folder / _RESULTS, records.to_json(self.rows))
        io.write_json(folder / _HEADER, records.to_json(self.header))
        if self.figures:
            io.save_tensors(folder / _FIGURES, self.figures, kind="figures", header={})
        else:
            (folder / _FIGURES).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: io.PathLike) -> Run[Any, Any]:
        """Reads a folder written by `save`.

        Raises:
          FormatError: A file is missing, damaged, or written by another version or program.
        """
        folder = Path(folder)
        found = records.read(folder / _HEADER, dict[str, Any], _REMEDY)
        if "program" not in found:
            raise FormatError(f"{folder / _HEADER}: not the header of a run; was it written by an evaluation?")
        program, version = found["program"], found.get("format_version")
        if program not in _KINDS or version != results.FORMAT_VERSION:
            raise FormatError(
                f"{folder / _HEADER}: format version {version} of {program!r}; this jaxwhiten reads version "
                f"{results.FORMAT_VERSION} of {' and '.join(_KINDS)}. Run the evaluation again."
            )
        header_type, row_type = _KINDS[program]
        header = records.from_json(header_type, found, folder / _HEADER, _REMEDY)
        rows = records.read(folder / _RESULTS, list[row_type], _REMEDY)  # type: ignore[valid-type]
        file = folder / _FIGURES
        return cls(header, rows, io.load_tensors(file, kind="figures")[0] if file.is_file() else {})


STSRun = Run[results.STSHeader, results.STSRow]
RetrievalRun = Run[results.RetrievalHeader, results.RetrievalRow]
CodesRun = Run[results.CodesHeader, results.CodeRow]
StaticRun = Run[results.StaticHeader, results.StaticRow]
