"""Views of a run of `eval.sts`: its tables, and `results.md` with the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eval.aggregates import scores_of
from eval.report import views
from eval.report.plots import plot_scores
from eval.report.table import SIGNIFICANT, Cell, Columns, Table, bounds, change, model_name, number, table
from eval.runs import Record, Run
from eval.settings import combinations, knobs, setting_name
from jaxwhiten.metrics import UNDEFINED

AGGREGATE_NAMES = {
    "wmean": "mean over the subsets of a task, weighted by their pairs (wmean)",
    "mean": "unweighted mean over the subsets of a task (mean)",
    "all": "all subsets of a task concatenated (all)",
}
SAMPLE_NOTE = (
    "sts_sample is a sample written for demonstration and tests, not a benchmark: its rows can be compared with each "
    "other and with nothing else."
)
TRANSDUCTIVE_NOTE = "† transductive: fitted on the test sentences themselves (never on their scores)."
_FITTED_ON = {"none": "", "nli": "NLI sentences"}


def scored(header: Record) -> list[str]:
    """Names of the scores of a row: the tasks, and `"average"` if there are several."""
    return [*header.tasks, *["average"] * (len(header.tasks) > 1)]


def _difference(match: Record, task: str) -> float | None:
    """A run's score minus the published one, to two digits."""
    if task in match.published:
        return round(match.ours[task] - match.published[task], 2)
    return None


def _caption(run: Run) -> str:
    header = run.header
    parameters = combinations(run.rows)
    parts = ["Sample, not a benchmark."] * bool(header.sample)
    parts += [
        f"Spearman × 100, {AGGREGATE_NAMES[header.aggregate]}.",
        f"{header.model}, {header.dtype} by {header.arguments.get('engine', 'jax')},"
        f" at most {header.protocol['max_length']} tokens.",
    ]
    if len(parameters) == 1:
        parts.append(f"Whitening with {', '.join(f'{name} = {value}' for name, value in parameters[0].items())}.")
    names = {name for row in run.rows for name in (row.whitening, row.pooling)}
    explanations = header.protocol["whitening"] | header.protocol.get("words", {})
    parts += [f"{name}: {text}." for name, text in explanations.items() if name in names]
    return " ".join(parts)


def sts_table(run: Run) -> Table:
    """The main table: rows are settings, columns the tasks and their average; notes explain the marks of rows."""
    header = run.header
    scores = [scores_of(row, header.aggregate) for row in run.rows]
    undefined = any(math.isnan(score) for of_row in scores for score in of_row.values())
    notes = [f"– {UNDEFINED}."] * undefined + _transductive(run) + [SAMPLE_NOTE] * bool(header.sample)
    settings = views.setting_columns(run)
    figures = {name: lambda row, name=name: number(scores_of(row, header.aggregate)[name]) for name in scored(header)}
    keys = len(settings)
    notes += header.warnings
    return table(run.rows, {**settings, **figures}, 2, _caption(run), group=["pooling"], notes=notes, key_columns=keys)


def _transductive(run: Run) -> list[str]:
    return [TRANSDUCTIVE_NOTE] * any(row.transductive for row in run.rows)


def average_table(run: Run) -> Table:
    """One figure per row, for tables that join several runs: encoder, vectors, dimensions and the mean of the tasks."""
    columns: Columns = {
        "encoder": lambda row: model_name(row.model),
        "pooling": "pooling",
        "vectors": _vectors,
        "fitted on": lambda row: _FITTED_ON.get(row.whitening, "the test sentences") + " †" * row.transductive,
        "dimensions": "k",
        scored(run.header)[-1]: lambda row: number(scores_of(row, run.header.aggregate)["average"]),
        "interval": lambda row: bounds(row.average_interval),
    }
    return table(run.rows, columns, 4, _caption(run), notes=_transductive(run))


def _vectors(row: Record) -> str:
    """The transformation of a row's vectors as text; empty for baselines on words."""
    if row.whitening == "none" or row.beta is None:
        return {"none": "raw", "target": "", "nli": ""}.get(row.whitening, row.whitening)
    names = {", β=1, γ=1": "whitened", ", β=1, γ=0": "PCA"}
    return names.get(knobs(row), knobs(row).removeprefix(", "))


def _by_setting(run: Run, rows: Sequence[Record], figures: dict[str, Cell], caption: str, **options: Any) -> Table:
    """A line for each row, named with β and γ if these differ between rows."""
    several = len(combinations(run.rows)) > 1
    columns: Columns = {"setting": lambda row: setting_name(row) + knobs(row) * several, **figures}
    return table(rows, columns, 1, caption, **options)


def difference_table(run: Run) -> Table | None:
    """The difference of each setting to the raw vectors of its pooling, with its significance.

    None for a run without bootstrap, or without raw rows to compare with.
    """
    header = run.header
    rows = [row for row in run.rows if row.versus_raw is not None]
    if not rows:
        return None
    caption = (
        f"Difference to the raw vectors of the same pooling, {header.aggregate}. "
        f"{SIGNIFICANT}: its {header.level:.0%} interval leaves out 0 (paired bootstrap, "
        f"{header.resamples:,} resamples of the pairs within each subset)."
    )

    def difference(row: Record, name: str) -> Record:
        estimate: Record = row.versus_raw[name]
        return estimate

    names = scored(header)
    figures: dict[str, Cell] = {name: lambda row, name=name: change(difference(row, name)) for name in names}
    figures["its interval"] = lambda row: bounds(difference(row, names[-1]), signed=True)
    return _by_setting(run, rows, figures, caption, group=["pooling"])


def published_table(run: Run) -> Table | None:
    """Published scores and the differences of this run to them, or None if nothing published matches a row."""
    tasks = run.header.tasks
    matches = run.header.published
    cells = []
    for match in matches:
        label = f"{match.setting} ({match.note})"
        cells.append([label, match.source, "published", *(number(match.published.get(task)) for task in tasks)])
        cells.append(["", "", "difference", *(number(_difference(match, task), signed=True) for task in tasks)])
    if not cells:
        return None
    caption = "Published scores of the same settings, and this run minus published (never in one column with ours)."
    sources = list(dict.fromkeys(f"{match.source}: {match.citation}" for match in matches))
    groups = [i // 2 for i in range(len(cells))]
    return Table(["setting", "source", "", *tasks], cells, 3, caption, sources, groups)


TABLES = {view.__name__: view for view in (sts_table, average_table, difference_table, published_table)}
VIEWS = views.Views(
    {
        "Scores": sts_table,
        "Against the raw vectors": difference_table,
        "Published": published_table,
    },
    {"score_by_k.png": (plot_scores, "Score against the dimension kept")},
)
