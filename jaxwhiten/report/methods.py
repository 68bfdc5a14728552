"""Tables of a run of `eval.sts` about more than scores: the geometry of the vectors, and what each setting costs."""

from __future__ import annotations

from jaxwhiten.report.results import STSRow
from jaxwhiten.report.run import STSRun
from jaxwhiten.report.table import Table, number

_MEASURES = {
    "isoscore": "IsoScore",
    "average_cosine": "average cosine",
    "effective_rank": "effective rank",
    "uniformity": "uniformity",
    "alignment": "alignment",
    "hubness": "hubness",
}


def geometry_table(run: STSRun) -> Table | None:
    """The geometry of the vectors behind every row, or None where none was measured."""
    measured = [(row, row.geometry) for row in run.rows if row.geometry is not None]
    if not measured:
        return None
    cells = [
        [*_setting(row), *(number(getattr(g, name), 1 if name == "effective_rank" else 3) for name in _MEASURES)]
        for row, g in measured
    ]
    about = measured[0][1]
    caption = (
        f"Geometry of the vectors of {about.n:,} test sentences of {about.task}. IsoScore: 1 is equal in all "
        "directions. Effective rank: of the centred vectors. Uniformity and alignment (pairs scored 4 and more): "
        "smaller is better. Hubness: skewness of the 10-occurrence. Methods without vectors of their own have no row."
    )
    groups = [row.pooling for row, _ in measured]
    return Table(["pooling", "setting", "k", *_MEASURES.values()], cells, 3, caption, groups=groups)


def cost_table(run: STSRun) -> Table | None:
    """Rows fitted on, seconds and the size of the fitted method, or None where the run compares no methods."""
    if all(row.beta is not None for row in run.rows):
        return None
    cells = [
        [
            *_setting(row),
            f"{row.n_fit:,}",
            number(row.fit_seconds),
            number(row.seconds - row.fit_seconds),
            number(row.bytes / 1e6),
        ]
        for row in run.rows
    ]
    caption = (
        "Cost over all tasks: rows fitted on, seconds of fitting (compiling included), seconds of comparing "
        "and scoring the test pairs, and the size in MB of one fitted method's file."
    )
    columns = ["pooling", "setting", "k", "rows fitted", "fit s", "score s", "file MB"]
    return Table(columns, cells, 3, caption, groups=[row.pooling for row in run.rows])


def _setting(row: STSRow) -> list[str]:
    return [row.pooling, row.whitening + row.knobs, str(row.k)]
