"""What a run of `eval.sts` looks like: its tables, `results.md` with the plots, and `report.html`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxwhiten import io
from jaxwhiten.report import page
from jaxwhiten.report.methods import cost_table, geometry_table
from jaxwhiten.report.plots import plot_scores, plot_similarity, plot_spectrum
from jaxwhiten.report.run import REAL, Row, Run, average, has_knobs, mark
from jaxwhiten.report.table import Table

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
_MISSING = "–"


def _points(value: float | None, signed: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return _MISSING
    value = round(value, 2) + 0.0  # no "-0.00"
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def _knobs(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return sorted({(row["beta"], row["gamma"]) for row in rows if has_knobs(row)}, reverse=True)


def setting_name(row: Row, knobs: bool = False) -> str:
    """A row in words: pooling, whitening with its sign, k, and β and γ where asked for."""
    sign = " †" if row["transductive"] else ""
    tail = f", β={row['beta']:g}, γ={row['gamma']:g}" if knobs and has_knobs(row) else ""
    return f"{row['pooling']}, {row['whitening']}{sign}, k={row['k']}{tail}"


def _caption(run: Run) -> str:
    header, knobs = run.header, _knobs(run.rows)
    parts = [
        f"{'Sample, not a benchmark. ' if header['sample'] else ''}Spearman × 100, "
        f"{AGGREGATE_NAMES[header['aggregate']]}.",
        f"{header['model']}, {header['dtype']}, at most {header['protocol']['max_length']} tokens.",
    ]
    if len(knobs) == 1:
        parts.append(f"Whitening with β = {knobs[0][0]:g}, γ = {knobs[0][1]:g}.")
    seen = {row["whitening"] for row in run.rows}
    parts += [f"{name}: {text}." for name, text in header["protocol"]["whitening"].items() if name in seen]
    return " ".join(parts)


def sts_table(run: Run) -> Table:
    """The main table: rows are settings, columns the tasks and their average.

    Args:
      run: A run of `eval.sts`, complete or not.

    Returns:
      The table; transductive rows carry a sign that the notes explain.
    """
    tasks, aggregate = run.header["tasks"], run.header["aggregate"]
    show_knobs = len(_knobs(run.rows)) > 1
    columns = ["pooling", "whitening", "k", *(["β", "γ"] if show_knobs else []), *tasks]
    first_score = len(columns) - len(tasks)
    if len(tasks) > 1:
        columns.append("average")
    cells, values = [], []
    for row in run.rows:
        scores = [row["tasks"][task][aggregate] for task in tasks]
        if len(tasks) > 1:
            scores.append(average(row, tasks, aggregate))
        values.append([math.nan if score is None else score for score in scores])
        knobs = [f"{row['beta']:g}", f"{row['gamma']:g}"] if has_knobs(row) else ["", ""]
        sign = " †" if row["transductive"] else ""
        setting = [row["pooling"], row["whitening"] + sign, str(row["k"]), *(knobs if show_knobs else [])]
        cells.append([*setting, *map(_points, scores)])
    best = {
        (row, first_score + column)
        for column, scores in enumerate(zip(*values, strict=True))
        for row, score in enumerate(scores)
        if len(cells) > 1 and score == max((s for s in scores if math.isfinite(s)), default=None)
    }
    notes = [TRANSDUCTIVE_NOTE] if any(row["transductive"] for row in run.rows) else []
    notes += [SAMPLE_NOTE] if run.header["sample"] else []
    notes += run.header.get("warnings", [])
    groups = [row["pooling"] for row in run.rows]
    return Table(columns, cells, 2, _caption(run), notes, groups, frozenset(best))


def interval_table(run: Run) -> Table | None:
    """Confidence intervals of every score, or None where the run has none."""
    bootstrap = run.header.get("bootstrap")
    tasks = run.header["tasks"]
    if not bootstrap or not run.rows or "low" not in run.rows[-1]["tasks"][tasks[0]]:
        return None
    knobs = len(_knobs(run.rows)) > 1
    cells = [
        [
            setting_name(row, knobs),
            *(f"{_points(s.get('low'))}–{_points(s.get('high'))}" for s in row["tasks"].values()),
        ]
        for row in run.rows
    ]
    caption = (
        f"{bootstrap['level']:.0%} bootstrap intervals ({bootstrap['resamples']:,} resamples of the pairs within each "
        f"subset, percentile method), aggregate {run.header['aggregate']}."
    )
    return Table(["setting", *tasks], cells, 1, caption, groups=[row["pooling"] for row in run.rows])


def difference_table(run: Run) -> Table | None:
    """What each setting adds to the raw vectors of its pooling, and whether that is more than chance.

    Args:
      run: A run of `eval.sts`.

    Returns:
      The table, or None for a run without bootstrap or without raw rows beside others.
    """
    tasks, rows = run.header["tasks"], [row for row in run.rows if "versus_raw" in row]
    if not rows:
        return None
    several, knobs = len(tasks) > 1, len(_knobs(run.rows)) > 1
    cells = []
    for row in rows:
        found = row["versus_raw"]
        cells.append(
            [setting_name(row, knobs), *(_points(found[t]["value"], signed=True) + mark(found[t]) for t in tasks)]
        )
        if several:
            mean = found["average"]
            ends = f"{_points(mean['low'], signed=True)} to {_points(mean['high'], signed=True)}"
            cells[-1] += [_points(mean["value"], signed=True) + mark(mean), ends]
    bootstrap = run.header["bootstrap"]
    caption = (
        f"Difference to the raw vectors of the same pooling, {run.header['aggregate']}. {REAL}: its "
        f"{bootstrap['level']:.0%} interval leaves out 0 (paired bootstrap, {bootstrap['resamples']:,} resamples "
        "of the pairs within each subset)."
    )
    columns = ["setting", *tasks, *(["average", "its interval"] if several else [])]
    return Table(columns, cells, 1, caption, groups=[row["pooling"] for row in rows])


def published_table(run: Run) -> Table | None:
    """Published scores and how far this run is from them, or None where nothing published matches a row."""
    tasks, cells, groups, sources = run.header["tasks"], [], [], []
    for number, match in enumerate(run.header.get("published", [])):
        label = f"{match['setting']} ({match['aggregate']})"
        scores, differences = match["scores"], match["difference"]
        cells.append([label, match["source"], "published", *(_points(scores.get(task)) for task in tasks)])
        cells.append(["", "", "difference", *(_points(differences.get(task), signed=True) for task in tasks)])
        groups += [number, number]
        sources.append(f"{match['source']}: {match['citation']}")
    if not cells:
        return None
    caption = "Published scores of the same settings, and this run minus published (never in one column with ours)."
    return Table(["setting", "source", "", *tasks], cells, 3, caption, list(dict.fromkeys(sources)), groups)


PLOTS = {
    "score_by_k.png": (plot_scores, "Score against the dimension kept"),
    "spectrum.png": (plot_spectrum, "Eigenvalue spectrum before whitening"),
    "similarity.png": (plot_similarity, "Cosine similarities before and after whitening"),
}


def write_sts(run: Run, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots of a run of `eval.sts`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    folder = Path(folder)
    plots = {name: path for name, (draw, _) in PLOTS.items() if (path := draw(run, folder / name))}
    tables = [
        view(run) for view in (sts_table, difference_table, geometry_table, cost_table, published_table, interval_table)
    ]
    parts = [f"# {run.header['title']}", *(table.markdown() for table in tables if table)]
    parts += [f"![{PLOTS[name][1]}]({name})" for name in plots]
    parts.append(_provenance(run))
    io.write_text(folder / "results.md", "\n\n".join(parts) + "\n")
    return [folder / "results.md", _write_page(run, folder, plots), *plots.values()]


def _write_page(run: Run, folder: Path, plots: Mapping[str, Path]) -> Path:
    header, score_plot = run.header, plots.get("score_by_k.png")
    # The warnings stand above all tables. The other aggregates need no new scores.
    first, *others = sorted(AGGREGATE_NAMES, key=lambda name: name != header["aggregate"])
    by_aggregate = {
        name: sts_table(Run({**header, "aggregate": name, "warnings": []}, run.rows)) for name in (first, *others)
    }
    scores = page.section(
        "Scores",
        page.tables(by_aggregate[first]),
        page.folded("Under the other aggregates", page.tables(*(by_aggregate[name] for name in others))),
        page.picture(score_plot, PLOTS["score_by_k.png"][1]) if score_plot else "",
    )
    pictures = [page.picture(path, PLOTS[name][1]) for name, path in plots.items() if path != score_plot]
    sections = [
        scores,
        page.section("Against the raw vectors", page.tables(difference_table(run))),
        page.section("Intervals", page.tables(interval_table(run))),
        page.section("Geometry", page.tables(geometry_table(run)), *pictures),
        page.section("Cost", page.tables(cost_table(run))),
        page.section("Published", page.tables(published_table(run))),
        *page.made(header),
    ]
    lead = [f"{header['model']} · {', '.join(header['tasks'])} · {header['date']}"]
    return page.write_page(folder / page.PAGE, header["title"], lead, sections, header["warnings"])


def _provenance(run: Run) -> str:
    """When, where and with what the run was made, for the foot of `results.md`."""
    header = run.header
    encoding, machine, memory = header["encoding"], header["machine"], header["machine"]["peak_rss_gb"]
    nli = f" and those of {encoding['nli_rows']:,} NLI rows" if encoding["nli_rows"] else ""
    lines = [
        f"Made on {header['date']} by `{header['program']}` in {header['seconds']:.0f} s, of which encoding "
        f"{encoding['seconds']:.0f} s ({encoding['sentences']:,} unique sentences{nli}).",
        f"Machine: {machine['cores']} cores, {machine['devices']} JAX device(s) of kind {machine['device_kind']}, peak "
        f"memory {'not known' if memory is None else f'{memory:.1f} GB'}.",
        f"Versions: {', '.join(f'{name} {version}' for name, version in header['versions'].items())}.",
    ]
    return "\n".join(lines)


def remove_views(folder: str | os.PathLike[str]) -> None:
    """Removes the tables and plots of an earlier run, so that none of them stands beside newer results."""
    for name in ("results.md", page.PAGE, *PLOTS):
        Path(folder, name).unlink(missing_ok=True)
