"""Views of a run of `eval.static`: sizes compared with the peer, and the contribution of each step."""

from __future__ import annotations

from collections.abc import Sequence

from eval.report import views
from eval.report.table import SIGNIFICANT, Columns, Table, bounds, change, figure, number, table
from eval.runs import Record, Run

_COLUMNS: Columns = {
    "teacher": "model",
    "method": "method",
    "k": "k",
    "STS": figure("sts"),
    "dev": figure("dev"),
    "MRR@10": lambda row: number(None if row.mrr_at_10 is None else 100 * row.mrr_at_10),
    "sentences/s": figure("sentences_per_second", 0),
    "MB": figure("megabytes", 1),
    "difference": lambda row: change(row.versus),
    "interval": lambda row: bounds(row.versus, signed=True) if row.versus else "",
}


def _table(run: Run, rows: Sequence[Record], note: str, without: Sequence[str] = ()) -> Table | None:
    if not rows:
        return None
    header = run.header
    caption = (
        f"STS: mean of {', '.join(header.tasks)} (wmean), test pairs; dev: {header.protocol['dev']}. {note}"
        f" {SIGNIFICANT}: its {header.level:.0%} interval leaves out 0 (paired bootstrap over pairs)."
    )
    columns = {head: cell for head, cell in _COLUMNS.items() if head not in without}
    return table(rows, columns, 2, caption, group=["model"], key_columns=3)


def sizes_table(run: Run) -> Table | None:
    """Every method at every size, with its difference to model2vec."""
    header = run.header
    note = (
        f"Difference: of STS to model2vec at the same dimensions; of tables in fewer bytes to float32. MRR@10 x 100:"
        f" {header.dataset.name}. sentences/s: {header.protocol['timed']}. Corpus: {header.protocol['corpus']}."
    )
    return _table(run, [row for row in run.rows if row.sentences_per_second or row.mrr_at_10], note)


def steps_table(run: Run) -> Table | None:
    """The contribution of each step: only this step is changed."""
    rows = [row for row in run.rows if row.mrr_at_10 is None]
    bases = {row.base for row in rows}
    note = f"Difference: to the method {', '.join(sorted(filter(None, bases)))} of the same teacher and dimensions."
    return _table(run, rows, note, without=("MRR@10", "sentences/s", "MB"))


TABLES = {"sizes_table": sizes_table, "steps_table": steps_table}
VIEWS = views.Views({"Sizes": sizes_table, "Steps": steps_table}, {})
