"""A run of an evaluation as a folder: rows, header and the arrays behind the plots.

`results.json` is a list of rows, one a setting; `run.json` says what produced them: protocol, versions, machine;
`figures.safetensors` holds the arrays. Tables, plots and pages are views of these three and can be made again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten import io
from jaxwhiten.errors import FormatError

_RESULTS, _HEADER, _FIGURES = "results.json", "run.json", "figures.safetensors"

Row = dict[str, Any]


@dataclass
class Run:
    """Everything an evaluation found.

    Attributes:
      header: What produced the rows: model, tasks, aggregate, protocol, versions, machine.
      rows: One dictionary a setting.
      figures: Arrays behind the plots, by name; `header["figures"]` says what they are.
    """

    header: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    figures: dict[str, np.ndarray] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the three files, each atomically; undefined scores become null."""
        folder = Path(folder)
        io.write_json(folder / _RESULTS, _without_nan(self.rows))
        io.write_json(folder / _HEADER, _without_nan(self.header))
        if self.figures:
            io.save_tensors(folder / _FIGURES, self.figures, kind="figures", header={})
        else:
            (folder / _FIGURES).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """Reads a folder written by `save`.

        Raises:
          FormatError: A file is missing or is not what `save` writes.
        """
        folder = Path(folder)
        parts: list[Any] = []
        for name, kind in ((_HEADER, dict), (_RESULTS, list)):
            try:
                value = json.loads((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise FormatError(f"{folder / name}: cannot be read ({error}). Run the evaluation again.") from error
            if not isinstance(value, kind):
                raise FormatError(f"{folder / name}: not a {kind.__name__}; was it written by an evaluation?")
            parts.append(value)
        file = folder / _FIGURES
        header, rows = parts
        return cls(header, rows, io.load_tensors(file, kind="figures")[0] if file.is_file() else {})


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def average(row: Row, tasks: Sequence[str], aggregate: str) -> float:
    """The mean of a row's tasks under one aggregate; NaN where one of them is undefined."""
    scores = [row["tasks"][task][aggregate] for task in tasks]
    return math.nan if any(s is None or math.isnan(s) for s in scores) else sum(scores) / len(scores)


def has_knobs(row: Row) -> bool:
    """Whether a row is a whitening with β and γ, not raw vectors or another method."""
    return row["whitening"] != "none" and row["beta"] is not None


REAL = "∗"  # beside a difference that is more than chance; Markdown leaves this sign alone


def mark(difference: dict[str, float]) -> str:
    """`REAL` beside a difference whose interval leaves out 0, and a space beside others."""
    return REAL if difference["low"] > 0 or difference["high"] < 0 else " "
