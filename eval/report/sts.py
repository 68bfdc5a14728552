"""Views of a run of `eval.sts`: its tables, and `results.md` with the plots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from eval import published
from eval.aggregates import scores_of
from eval.report import views
from eval.report.plots import plot_scores, plot_similarity, plot_spectrum
from eval.report.table import SIGNIFICANT, Cell, Columns, Table, bounds, change, figure, model_name, number, table
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
PLOTS: views.Plots = {
    "score_by_k.png": (plot_scores, "Score against the dimension kept"),
    "spectrum.png": (plot_spectrum, "Eigenvalue spectrum before whitening"),
    "similarity.png": (plot_similarity, "Cosine similarities before and after whitening"),
}
_GEOMETRY: Columns = {
    "IsoScore": figure("geometry.isoscore", 3),
    "average cosine": figure("geometry.average_cosine", 3),
    "effective rank": figure("geometry.effective_rank", 1),
    "uniformity": figure("geometry.uniformity", 3),
    "alignment": figure("geometry.alignment", 3),
    "hubness": figure("geometry.hubness", 3),
}
_FITTED_ON = {"none": "", "nli": "NLI sentences"}
_COST: Columns = {
    "rows fitted": figure("n_fit", 0),
    "fit s": figure("fit_seconds"),
    "score s": lambda row: number(row.seconds - row.fit_seconds),
    "file MB": lambda row: number(row.bytes / 1e6),
}


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
    names = scored(header)
    scores = {name: [scores_of(row, header.aggregate)[name] for row in run.rows] for name in names}
    undefined = any(map(math.isnan, itertools.chain(*scores.values())))
    notes = [f"– {UNDEFINED}."] * undefined + _transductive(run) + [SAMPLE_NOTE] * bool(header.sample)
    notes += header.warnings
    settings = views.setting_columns(run)
    figures = {name: lambda row, name=name: number(scores_of(row, header.aggregate)[name]) for name in names}
    columns = {**settings, **figures}
    return table(
        run.rows, columns, 2, _caption(run), group=["pooling"], best=scores, notes=notes, key_columns=len(settings)
    )


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
        "BERT-base, published": lambda row: _of_bert_base(row, run),
    }
    return table(run.rows, columns, 4, _caption(run), notes=_transductive(run))


def _of_bert_base(row: Record, run: Run) -> str:
    """The average that others publish for BERT-base under a row's pooling and whitening, whitened to a third of it."""
    setting = {"model": "bert-base-uncased", "pooling": row.pooling, "whitening": row.whitening}
    setting |= {"k": "256", "aggregate": run.header.aggregate}
    if row.whitening == "none":
        setting["k"] = "768"
    for entry in published.read():
        if setting.items() <= entry.setting.items() and set(run.header.tasks) <= set(entry.figures):
            return number(fmean(entry.figures[task] for task in run.header.tasks))
    return ""


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


def interval_table(run: Run) -> Table | None:
    """Confidence intervals of every score, or None if the run has none."""
    header = run.header
    if not header.resamples or not run.rows:
        return None
    caption = (
        f"{header.level:.0%} bootstrap intervals ({header.resamples:,} resamples of the pairs within each "
        f"subset, percentile method), aggregate {header.aggregate}."
    )
    figures = {task: lambda row, task=task: bounds(row.tasks[task]) for task in header.tasks}
    return _by_setting(run, run.rows, figures, caption, group=["pooling"])


def difference_table(run: Run) -> Table | None:
    """The difference of each setting to the raw vectors of its pooling, with its significance.

    None for a run without bootstrap, or without raw rows to compare with.
    """
    return _differences(run, "versus_raw", f"the raw vectors of the same pooling, {run.header.aggregate}")


def words_table(run: Run) -> Table | None:
    """The difference of each setting to TF-IDF fitted on the same texts; None for a run without that baseline."""
    baseline = "TF-IDF whose idf is counted on the texts that the whitening was fitted on"
    return _differences(run, "versus_words", baseline)


def _differences(run: Run, field: str, baseline: str) -> Table | None:
    header = run.header
    rows = [row for row in run.rows if row[field] is not None]
    if not rows:
        return None
    caption = (
        f"Difference to {baseline}. {SIGNIFICANT}: its {header.level:.0%} interval leaves out 0 (paired bootstrap, "
        f"{header.resamples:,} resamples of the pairs within each subset)."
    )

    def difference(row: Record, name: str) -> Record:
        estimate: Record = row[field][name]
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


def geometry_table(run: Run) -> Table | None:
    """The geometry of the vectors of every row, or None if none was measured."""
    geometry = next((row.geometry for row in run.rows if row.geometry), None)
    if geometry is None:
        return None
    caption = (
        f"Geometry of the vectors of {geometry.n:,} test sentences of {geometry.task}. IsoScore: 1 is equal in all "
        "directions. Effective rank: of the centred vectors. Uniformity and alignment (pairs scored 4 and more): "
        "smaller is better. Hubness: skewness of the 10-occurrence."
    )
    return _table([row for row in run.rows if row.geometry], _GEOMETRY, caption)


def ranking_table(run: Run) -> Table | None:
    """MRR of the partners of similar pairs, and the mean over the tasks; None if partners were not searched for."""
    tasks = run.header.tasks
    rows = [row for row in run.rows if all(row.tasks[task].ranking for task in tasks)]
    if not rows:
        return None
    caption = (
        "MRR × 100 of the nearest sentence that people score 4 or more with a sentence, among all other test sentences "
        "of the task; then means over the tasks of MRR, Hits@1 and Hits@3. As in EvalRank (Wang et al. 2022)."
    )

    def mean(row: Record, key: str) -> str:
        return number(sum(row.tasks[task].ranking[key] for task in tasks) / len(tasks))

    figures: dict[str, Cell] = {task: lambda row, task=task: number(row.tasks[task].ranking.mrr) for task in tasks}
    means = {"MRR": "mrr", "Hits@1": "hits_at_1", "Hits@3": "hits_at_3"}
    figures |= {head: lambda row, key=key: mean(row, key) for head, key in means.items()}
    return _by_setting(run, rows, figures, caption)


def cost_table(run: Run) -> Table | None:
    """Rows of the fit, seconds and the size of the fitted method, or None if the run compares no methods."""
    if all(row.beta is not None for row in run.rows):
        return None
    caption = (
        "Cost over all tasks: rows fitted on, seconds of fitting (compiling included), seconds of comparing "
        "and scoring the test pairs, and the size in MB of one fitted method's file."
    )
    return _table(run.rows, _COST, caption)


def _table(rows: Sequence[Record], figures: Columns, caption: str) -> Table:
    setting: Columns = {"setting": lambda row: row.whitening + knobs(row)}
    return table(rows, {"pooling": "pooling", **setting, "k": "k", **figures}, 3, caption, group=["pooling"])


TABLES = {
    view.__name__: view
    for view in (
        sts_table,
        average_table,
        difference_table,
        words_table,
        geometry_table,
        ranking_table,
        cost_table,
        published_table,
        interval_table,
    )
}
VIEWS = views.Views(
    {
        "Scores": sts_table,
        "Against the raw vectors": difference_table,
        "Against words alone": words_table,
        "Geometry": geometry_table,
        "Ranks of similar pairs": ranking_table,
        "Cost": cost_table,
        "Published": published_table,
        "Intervals": interval_table,
    },
    PLOTS,
    unprinted=("Intervals",),
)
