"""What a run of `eval.static` looks like: sizes beside the peer, and what each step is worth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from jaxwhiten.report import views
from jaxwhiten.report.results import SIGNIFICANT, StaticRow
from jaxwhiten.report.run import StaticRun
from jaxwhiten.report.table import Table, number

_FIGURES: views.Figures = {
    "STS": (attrgetter("sts"), 2),
    "dev": (attrgetter("dev"), 2),
    "MRR@10": (lambda row: None if row.mrr_at_10 is None else 100 * row.mrr_at_10, 2),
    "sentences/s": (attrgetter("sentences_per_second"), 0),
    "MB": (attrgetter("megabytes"), 1),
}


def _table(run: StaticRun, rows: Sequence[StaticRow], heads: Sequence[str], what: str) -> Table | None:
    if not rows:
        return None
    figures = {head: _FIGURES[head] for head in heads}
    cells = []
    for row in rows:
        ends = row.versus
        change = "" if ends is None else number(ends.value, signed=True) + ends.mark
        interval = "" if ends is None else f"{number(ends.low, signed=True)} to {number(ends.high, signed=True)}"
        cells.append([row.model, row.method, str(row.k), *views.figure_cells(row, figures), change, interval])
    header = run.header
    caption = (
        f"STS: mean of {', '.join(header.tasks)} (wmean), test pairs; dev: {header.protocol.dev}. {what}"
        f" {SIGNIFICANT}: its {header.level:.0%} interval leaves out 0 (paired bootstrap over pairs)."
    )
    columns = ["teacher", "method", "k", *heads, "difference", "interval"]
    return Table(columns, cells, 2, caption, groups=[row.model for row in rows], key_columns=3)


def sizes_table(run: StaticRun) -> Table | None:
    """Every method at every size, with its difference to model2vec."""
    header = run.header
    what = (
        f"Difference: of STS to model2vec at the same dimensions; of tables in fewer bytes to float32. MRR@10 x 100:"
        f" {header.dataset.name}. sentences/s: {header.protocol.timed}. Corpus: {header.protocol.corpus}."
    )
    return _table(run, [row for row in run.rows if row.sentences_per_second or row.mrr_at_10], list(_FIGURES), what)


def steps_table(run: StaticRun) -> Table | None:
    """What each step is worth: it is changed, and all others left as they are."""
    rows = [row for row in run.rows if row.mrr_at_10 is None]
    bases = {row.base for row in rows}
    what = f"Difference: to the method {', '.join(sorted(filter(None, bases)))} of the same teacher and dimensions."
    return _table(run, rows, ["STS", "dev"], what)


_TABLES: views.Tables = {"Sizes": sizes_table, "Steps": steps_table}


def write_static(run: StaticRun, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md` and `report.html` of a run of `eval.static`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written.
    """
    return views.write_views(run, Path(folder), _TABLES, {}, run.header.dataset.name)


def as_text(run: StaticRun, files: Sequence[Path]) -> str:
    """What the program prints when it is done: the tables, and the names of the files written."""
    return views.closing_text(run, _TABLES.values(), files)
