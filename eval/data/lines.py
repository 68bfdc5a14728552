"""Lines of small text files, and tables whose quotation marks may be text."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxwhiten.datasets import Table, numbered_lines, read_table, split_name
from jaxwhiten.errors import DataError
from jaxwhiten.io import PathLike


def read_lines(path: PathLike) -> list[str]:
    """All lines of a text file, plain or compressed; DataError with file and line if one is not clean text."""
    return [line for _, line in numbered_lines(path)]


def read_columns(path: PathLike, columns: Mapping[str, str], skip_bad_rows: bool = False) -> Table:
    """`read_table`; in a TSV file that is not valid with quoted cells, quotation marks are text, as in AllNLI's."""
    if split_name(path)[1] not in (".tsv", ".txt"):
        return read_table(path, columns, skip_bad_rows=skip_bad_rows)
    try:
        return read_table(path, columns)
    except DataError:
        lines = ((line, text.split("\t")) for line, text in numbered_lines(path) if text)
        _, header = next(lines, (1, [""]))
        if not {*columns.values()} <= {*header}:
            raise
    rows = list(lines)
    bad = [line for line, row in rows if len(row) != len(header)]
    if bad and not skip_bad_rows:
        raise DataError(f"{path}, line {bad[0]}: expected {len(header)} columns.")
    rows = [(line, row) for line, row in rows if len(row) == len(header)]
    values = {name: [row[header.index(column)] for _, row in rows] for name, column in columns.items()}
    return Table(values, Path(path), np.array([line for line, _ in rows], np.int64), len(bad))
