"""Tables of a run of `eval.sts` about more than scores: the geometry of the vectors, and what each setting costs."""

from __future__ import annotations

from typing import Any

from jaxwhiten.report.run import Run, has_knobs
from jaxwhiten.report.table import Table

_MISSING = "–"
_MEASURES = {
    "isoscore": "IsoScore",
    "average_cosine": "average cosine",
    "effective_rank": "effective rank",
    "uniformity": "uniformity",
    "alignment": "alignment",
    "hubness": "hubness",
}


def geometry_table(run: Run) -> Table | None:
    """The geometry of the vectors behind every row, or None where none was measured."""
    measured = [row for row in run.rows if "geometry" in row]
    if not measured:
        return None
    cells = [
        [
            *_setting(row),
            *(_number(row["geometry"].get(name), 1 if name == "effective_rank" else 3) for name in _MEASURES),
        ]
        for row in measured
    ]
    about = measured[0]["geometry"]
    caption = (
        f"Geometry of the vectors of {about['n']:,} test sentences of {about['task']}. IsoScore: 1 is equal in all "
        "directions. Effective rank: of the centred vectors. Uniformity and alignment (pairs scored 4 and more): "
        "smaller is better. Hubness: skewness of the 10-occurrence. Methods without vectors of their own have no row."
    )
    return Table(["pooling", "setting", "k", *_MEASURES.values()], cells, 3, caption, groups=_groups(measured))


def cost_table(run: Run) -> Table | None:
    """Rows fitted on, seconds and the size of the fitted method, or None where the run compares no methods."""
    rows = [row for row in run.rows if "bytes" in row]
    if all(row["beta"] is not None for row in rows):
        return None
    cells = [
        [
            *_setting(row),
            f"{row['n_fit']:,}",
            _number(row["fit_seconds"], 2),
            _number(row["seconds"] - row["fit_seconds"], 2),
            _number(row["bytes"] / 1e6, 2),
        ]
        for row in rows
    ]
    caption = (
        "Cost over all tasks: rows fitted on, seconds of fitting (compiling included), seconds of comparing "
        "and scoring the test pairs, and the size in MB of one fitted method's file."
    )
    columns = ["pooling", "setting", "k", "rows fitted", "fit s", "score s", "file MB"]
    return Table(columns, cells, 3, caption, groups=_groups(rows))


def _setting(row: dict[str, Any]) -> list[str]:
    knobs = f", β={row['beta']:g}, γ={row['gamma']:g}" if has_knobs(row) else ""
    return [row["pooling"], row["whitening"] + knobs, str(row["k"])]


def _groups(rows: list[dict[str, Any]]) -> list[str]:
    return [row["pooling"] for row in rows]


def _number(value: float | None, digits: int) -> str:
    return _MISSING if value is None or value != value else f"{value:.{digits}f}"
