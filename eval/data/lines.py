"""Lines of small text files, and tables whose quotation marks may be text."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxwhiten.datasets import Table, numbered_lines, read_table, split_name
from jaxwhiten.datasets.readers import check_columns
from jaxwhiten.datasets.textfile import BadRows
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
        bad = BadRows(path, skip_bad_rows)
        lines = ((line, text.split("\t")) for line, text in numbered_lines(path, bad) if text)
        _, header = next(lines)
        check_columns(Path(path), header, [*columns.values()])
        places = [header.index(name) for name in columns.values()]
        rows = []
        for line, row in lines:
            if len(row) == len(header):
                rows.append((line, *(row[place] for place in places)))
            else:
                bad(line, f"{len(row)} columns, expected {len(header)}")
        values = {name: [row[place] for row in rows] for place, name in enumerate(columns, 1)}
        return Table(values, Path(path), np.array([row[0] for row in rows], np.int64), bad.count)
