"""What a run of `eval.sts` looks like: its tables, `results.md` with the plots, and `report.html`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from jaxwhiten.report import page, views
from jaxwhiten.report.plots import plot_scores, plot_similarity, plot_spectrum
from jaxwhiten.report.results import SIGNIFICANT, STSRow
from jaxwhiten.report.run import STSRun
from jaxwhiten.report.table import Table, best_cells, model_name, number

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
_FITTED_ON = {"nli": "NLI sentences"}
PLOTS: views.Plots = {
    "score_by_k.png": (plot_scores, "Score against the dimension kept", "Scores"),
    "spectrum.png": (plot_spectrum, "Eigenvalue spectrum before whitening", "Geometry"),
    "similarity.png": (plot_similarity, "Cosine similarities before and after whitening", "Geometry"),
}
_GEOMETRY: views.Figures = {
    "IsoScore": (attrgetter("geometry.isoscore"), 3),
    "average cosine": (attrgetter("geometry.average_cosine"), 3),
    "effective rank": (attrgetter("geometry.effective_rank"), 1),
    "uniformity": (attrgetter("geometry.uniformity"), 3),
    "alignment": (attrgetter("geometry.alignment"), 3),
    "hubness": (attrgetter("geometry.hubness"), 3),
}
_COST: views.Figures = {
    "rows fitted": (attrgetter("n_fit"), 0),
    "fit s": (attrgetter("fit_seconds"), 2),
    "score s": (lambda row: row.seconds - row.fit_seconds, 2),
    "file MB": (lambda row: row.bytes / 1e6, 2),
}


def _caption(run: STSRun) -> str:
    header, knobs = run.header, run.knobs()
    parts = [
        f"{'Sample, not a benchmark. ' if header.sample else ''}Spearman × 100, {AGGREGATE_NAMES[header.aggregate]}.",
        f"{header.model}, {header.dtype}, at most {header.protocol.max_length} tokens.",
    ]
    if len(knobs) == 1:
        parts.append(f"Whitening with β = {knobs[0][0]:g}, γ = {knobs[0][1]:g}.")
    seen = {row.whitening for row in run.rows}
    parts += [f"{name}: {text}." for name, text in header.protocol.whitening.items() if name in seen]
    return " ".join(parts)


def sts_table(run: STSRun) -> Table:
    """The main table: rows are settings, columns the tasks and their average.

    Args:
      run: A run of `eval.sts`, complete or not.

    Returns:
      The table; transductive rows carry a sign that the notes explain.
    """
    header, several = run.header, len(run.header.tasks) > 1
    values = [
        [*row.scores(header.aggregate), *([row.average(header.aggregate)] if several else [])] for row in run.rows
    ]
    heads = views.setting_columns(run)
    cells = [
        [*views.setting_cells(run, row), *map(number, scores)] for row, scores in zip(run.rows, values, strict=True)
    ]
    notes = [
        *([TRANSDUCTIVE_NOTE] if any(row.transductive for row in run.rows) else []),
        *([SAMPLE_NOTE] if header.sample else []),
        *header.warnings,
    ]
    columns = [*heads, *header.tasks, *(["average"] if several else [])]
    groups = [row.pooling for row in run.rows]
    best = best_cells(dict(enumerate(zip(*values, strict=True), len(heads))))
    return Table(columns, cells, 2, _caption(run), notes, groups, best, key_columns=len(heads))


def average_table(run: STSRun) -> Table:
    """One figure per row, for tables that join several runs: encoder, vectors, dimensions and the mean of the tasks."""
    aggregate, several = run.header.aggregate, len(run.header.tasks) > 1
    cells = []
    for row in run.rows:
        ends = row.average_interval
        interval = f"{number(ends.low)}–{number(ends.high)}" if ends else number(None)
        fitted = _FITTED_ON.get(row.whitening, "" if row.whitening == "none" else "the test sentences")
        cells.append([model_name(row.model), row.pooling, _vectors(row)])
        cells[-1] += [fitted + " †" * row.transductive, str(row.k), number(row.average(aggregate)), interval]
    figure = "average" if several else run.header.tasks[0]
    caption, notes = _caption(run), [TRANSDUCTIVE_NOTE] if any(row.transductive for row in run.rows) else []
    heads = ["encoder", "pooling", "vectors", "fitted on", "dimensions", figure, "interval"]
    return Table(heads, cells, 4, caption, notes)


def _vectors(row: STSRow) -> str:
    """What was done to the vectors of a row, in words where there are any."""
    if not row.has_knobs:
        return "raw" if row.whitening == "none" else row.whitening
    names = {(1.0, 1.0): "whitened", (1.0, 0.0): "PCA"}
    return names.get((row.beta or 0.0, row.gamma or 0.0), row.knobs.removeprefix(", "))


def gain_table(run: STSRun) -> Table:
    """What a whitening adds to each pooling: the mean of the tasks raw, whitened, and their difference.

    Of several whitenings of a pooling the first row is taken.
    """
    aggregate, cells = run.header.aggregate, []
    averages = {row.pooling: row.average(aggregate) for row in run.rows if row.whitening == "none"}
    whitened = {row.pooling: row for row in reversed(run.rows) if row.has_knobs and row.pooling in averages}
    for pooling, raw in averages.items():
        if row := whitened.get(pooling):
            gain = (row.versus_raw or {}).get("average" if len(row.tasks) > 1 else next(iter(row.tasks)))
            ends = f"{number(gain.low, signed=True)} to {number(gain.high, signed=True)}" if gain else number(None)
            after = row.average(aggregate)
            cells.append([pooling, *map(number, (raw, after)), number(after - raw, signed=True), ends])
    heads = ["pooling", "raw", "whitened", "difference", "its interval"]
    return Table(heads, cells, 1, f"Average of {len(run.header.tasks)} tasks. {_caption(run)}")


def _names(run: STSRun) -> list[str]:
    """A name for each row, with β and γ where they differ between rows."""
    show_knobs = len(run.knobs()) > 1
    return [row.name + row.knobs * show_knobs for row in run.rows]


def interval_table(run: STSRun) -> Table | None:
    """Confidence intervals of every score, or None where the run has none."""
    header = run.header
    if not header.resamples or not run.rows:
        return None
    cells = [
        [name, *(f"{number(scores.low)}–{number(scores.high)}" for scores in row.tasks.values())]
        for name, row in zip(_names(run), run.rows, strict=True)
    ]
    caption = (
        f"{header.level:.0%} bootstrap intervals ({header.resamples:,} resamples of the pairs within each "
        f"subset, percentile method), aggregate {header.aggregate}."
    )
    return Table(["setting", *header.tasks], cells, 1, caption, groups=[row.pooling for row in run.rows])


def difference_table(run: STSRun) -> Table | None:
    """What each setting adds to the raw vectors of its pooling, and whether that is more than chance.

    Args:
      run: A run of `eval.sts`.

    Returns:
      The table, or None for a run without bootstrap or without raw rows beside others.
    """
    header, several = run.header, len(run.header.tasks) > 1
    cells, groups = [], []
    for name, row in zip(_names(run), run.rows, strict=True):
        if row.versus_raw is None:
            continue
        shown = [row.versus_raw[task] for task in (*header.tasks, *(["average"] if several else []))]
        cells.append([name, *(number(found.value, signed=True) + found.mark for found in shown)])
        cells[-1].append(f"{number(shown[-1].low, signed=True)} to {number(shown[-1].high, signed=True)}")
        groups.append(row.pooling)
    if not cells:
        return None
    caption = (
        f"Difference to the raw vectors of the same pooling, {header.aggregate}. {SIGNIFICANT}: its "
        f"{header.level:.0%} interval leaves out 0 (paired bootstrap, {header.resamples:,} resamples "
        "of the pairs within each subset)."
    )
    columns = ["setting", *header.tasks, *(["average"] if several else []), "its interval"]
    return Table(columns, cells, 1, caption, groups=groups)


def published_table(run: STSRun) -> Table | None:
    """Published scores and how far this run is from them, or None where nothing published matches a row."""
    tasks, matches, cells = run.header.tasks, run.header.published, []
    for match in matches:
        label = f"{match.setting} ({match.note})"
        cells.append([label, match.source, "published", *(number(match.published.get(task)) for task in tasks)])
        cells.append(["", "", "difference", *(number(match.difference.get(task), signed=True) for task in tasks)])
    if not cells:
        return None
    caption = "Published scores of the same settings, and this run minus published (never in one column with ours)."
    sources = list(dict.fromkeys(f"{match.source}: {match.citation}" for match in matches))
    groups = [place // 2 for place in range(len(cells))]
    return Table(["setting", "source", "", *tasks], cells, 3, caption, sources, groups)


def geometry_table(run: STSRun) -> Table | None:
    """The geometry of the vectors behind every row, or None where none was measured."""
    about = next((row.geometry for row in run.rows if row.geometry), None)
    if about is None:
        return None
    caption = (
        f"Geometry of the vectors of {about.n:,} test sentences of {about.task}. IsoScore: 1 is equal in all "
        "directions. Effective rank: of the centred vectors. Uniformity and alignment (pairs scored 4 and more): "
        "smaller is better. Hubness: skewness of the 10-occurrence. Methods without vectors of their own have no row."
    )
    return _figures_table([row for row in run.rows if row.geometry], _GEOMETRY, caption)


def ranking_table(run: STSRun) -> Table | None:
    """MRR of the partners of similar pairs, and the mean over the tasks; None where they were not searched for."""
    tasks, rows = run.header.tasks, []
    for name, row in zip(_names(run), run.rows, strict=True):
        found = [row.tasks[task].ranking for task in tasks]
        known = [ranks for ranks in found if ranks is not None]
        if len(known) == len(found):
            means = [sum(map(attrgetter(key), known)) / len(known) for key in ("mrr", "hits_at_1", "hits_at_3")]
            rows.append([name, *(number(ranks.mrr) for ranks in known), *map(number, means)])
    if not rows:
        return None
    caption = (
        "MRR × 100 of the nearest sentence that people score 4 or more with a sentence, among all other test sentences "
        "of the task; then means over the tasks of MRR, Hits@1 and Hits@3. As in EvalRank (Wang et al. 2022)."
    )
    columns = ["setting", *tasks, "MRR", "Hits@1", "Hits@3"]
    return Table(columns, rows, 1, caption)


def cost_table(run: STSRun) -> Table | None:
    """Rows fitted on, seconds and the size of the fitted method, or None where the run compares no methods."""
    if all(row.beta is not None for row in run.rows):
        return None
    caption = (
        "Cost over all tasks: rows fitted on, seconds of fitting (compiling included), seconds of comparing "
        "and scoring the test pairs, and the size in MB of one fitted method's file."
    )
    return _figures_table(run.rows, _COST, caption)


def _figures_table(rows: Sequence[STSRow], figures: views.Figures, caption: str) -> Table:
    cells = [[row.pooling, row.whitening + row.knobs, str(row.k), *views.figure_cells(row, figures)] for row in rows]
    return Table(["pooling", "setting", "k", *figures], cells, 3, caption, groups=[row.pooling for row in rows])


_TABLES: views.Tables = {
    "Scores": sts_table,
    "Against the raw vectors": difference_table,
    "Geometry": geometry_table,
    "Ranks of similar pairs": ranking_table,
    "Cost": cost_table,
    "Published": published_table,
    "Intervals": interval_table,
}


def write_sts(run: STSRun, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots of a run of `eval.sts`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    # The other aggregates need no new scores.
    others = [name for name in AGGREGATE_NAMES if name != run.header.aggregate]
    tables = page.tables(*(sts_table(run.with_header(aggregate=name, warnings=())) for name in others))
    folded = {"Scores": page.folded("Under the other aggregates", tables)}
    return views.write_views(run, Path(folder), _TABLES, PLOTS, ", ".join(run.header.tasks), folded=folded)


def as_text(run: STSRun, files: Sequence[Path]) -> str:
    """What the program prints when it is done: the tables, and the names of the files written."""
    return views.closing_text(run, [table for table in _TABLES.values() if table is not interval_table], files)
