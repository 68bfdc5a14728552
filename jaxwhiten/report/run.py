"""A run of an evaluation, and the folder it is kept in: the one place where results become JSON and come back.

`results.json` is a list of rows, one per setting; `run.json` is the header: protocol, versions, machine;
`figures.safetensors` holds the arrays behind the plots. Tables, plots and pages are views of these three and can be
made again. In JSON an undefined score is null, and a field whose default is None is left out where it is None.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import FormatError
from jaxwhiten.report.results import (
    FORMAT_VERSION,
    CodeRow,
    CodesHeader,
    Header,
    RetrievalHeader,
    RetrievalRow,
    Row,
    StaticHeader,
    StaticRow,
    STSHeader,
    STSRow,
)

_RESULTS, _HEADER, _FIGURES = "results.json", "run.json", "figures.safetensors"
_KINDS: dict[str, tuple[type[Header], type[Row]]] = {
    STSHeader.program: (STSHeader, STSRow),
    RetrievalHeader.program: (RetrievalHeader, RetrievalRow),
    CodesHeader.program: (CodesHeader, CodeRow),
    StaticHeader.program: (StaticHeader, StaticRow),
}

HeaderT = TypeVar("HeaderT", bound=Header)
RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True)
class Run(Generic[HeaderT, RowT]):
    """Everything an evaluation found.

    Attributes:
      header: What produced the rows.
      rows: One per setting.
      figures: Arrays behind the plots, by name.
    """

    header: HeaderT
    rows: list[RowT] = field(default_factory=list)
    figures: dict[str, np.ndarray] = field(default_factory=dict)

    def with_header(self, **changes: Any) -> Run[HeaderT, RowT]:
        """The same rows and figures under a changed header."""
        return dataclasses.replace(self, header=dataclasses.replace(self.header, **changes))

    def knobs(self) -> list[tuple[float | None, float | None]]:
        """The pairs of β and γ in the rows, each once, the largest first."""
        return sorted({(row.beta, row.gamma) for row in self.rows if row.has_knobs}, reverse=True)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the three files, each atomically."""
        folder = Path(folder)
        io.write_json(folder / _RESULTS, _to_json(self.rows))
        io.write_json(folder / _HEADER, _to_json(self.header))
        if self.figures:
            io.save_tensors(folder / _FIGURES, self.figures, kind="figures", header={})
        else:
            (folder / _FIGURES).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run[Any, Any]:
        """Reads a folder written by `save`.

        Raises:
          FormatError: A file is missing, damaged, or written by another version or program.
        """
        folder = Path(folder)
        found = _read_json(folder / _HEADER)
        if not isinstance(found, dict) or "program" not in found:
            raise FormatError(f"{folder / _HEADER}: not the header of a run; was it written by an evaluation?")
        program, version = found["program"], found.get("format_version")
        if program not in _KINDS or version != FORMAT_VERSION:
            raise FormatError(
                f"{folder / _HEADER}: format version {version} of {program!r}; this jaxwhiten reads version "
                f"{FORMAT_VERSION} of {' and '.join(_KINDS)}. Run the evaluation again."
            )
        header_type, row_type = _KINDS[program]
        header = _from_json(header_type, found, str(folder / _HEADER))
        rows = _from_json(list[row_type], _read_json(folder / _RESULTS), str(folder / _RESULTS))  # type: ignore[valid-type]
        file = folder / _FIGURES
        return cls(header, rows, io.load_tensors(file, kind="figures")[0] if file.is_file() else {})


STSRun = Run[STSHeader, STSRow]
RetrievalRun = Run[RetrievalHeader, RetrievalRow]
CodesRun = Run[CodesHeader, CodeRow]
StaticRun = Run[StaticHeader, StaticRow]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read ({error}). Run the evaluation again.") from error


def _to_json(value: Any) -> Any:
    """Dataclasses as dictionaries; NaN and infinities, which JSON has not, as None."""
    if dataclasses.is_dataclass(value):
        pairs = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {f.name: _to_json(item) for f, item in pairs if item is not None or f.default is not None}
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(kind: Any, value: Any, where: str) -> Any:
    """What `_to_json` made of a value of type `kind`, read back; `where` is its place, for errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is types.UnionType:  # all unions here are `X | None`
        return None if value is None else _from_json(arguments[0], value, where)
    if kind is float and (value is None or isinstance(value, int | float)):
        return math.nan if value is None else float(value)
    typed = typing.is_typeddict(kind)
    if isinstance(kind, type) and (typed or dataclasses.is_dataclass(kind)) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if typed:
            required = typing.cast(Any, kind).__required_keys__
            known = {name: name in required for name in hints}
        else:
            known = {f.name: f.default is dataclasses.MISSING for f in dataclasses.fields(kind)}
        wrong = sorted({name for name, needed in known.items() if needed} - set(value) | set(value) - set(known))
        if not wrong:
            return kind(**{name: _from_json(hints[name], item, f"{where}: {name}") for name, item in value.items()})
        where = f"{where}: {', '.join(wrong)}"
    elif origin is dict and isinstance(value, dict):
        return {key: _from_json(arguments[1], item, f"{where}: {key}") for key, item in value.items()}
    elif origin in (list, tuple) and isinstance(value, list):
        return origin(_from_json(arguments[0], item, f"{where}, item {i}") for i, item in enumerate(value))
    elif origin is None and not dataclasses.is_dataclass(kind) and isinstance(value, kind):
        return value
    raise FormatError(f"{where}: not what this version of jaxwhiten writes there. Run the evaluation again.")
