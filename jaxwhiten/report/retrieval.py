"""What a run of `eval.retrieval` looks like: its tables, two plots, `results.md` and `report.html`."""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxwhiten import io
from jaxwhiten.report import page
from jaxwhiten.report.run import REAL, Row, Run, mark
from jaxwhiten.report.style import COLOURS, STYLE, new_figure, save_figure, scale_amounts
from jaxwhiten.report.table import Table

TRANSDUCTIVE_NOTE = (
    "† transductive: the whitening was fitted on the documents and queries searched (never on which belong together)."
)
_MISSING = "–"
_MARKERS = "osD^vPX*"
_COUNTS = {
    "rows": "rows read",
    "malformed_rows": "malformed rows left out",
    "empty_texts": "empty texts, encoded as a full stop",
    "rows_with_another_text_of_a_document": "rows with another text of a document's id",
    "rows_with_another_text_of_a_query": "rows with another text of a query's id",
    "queries_without_gold": "queries without gold, searched but not scored",
}


def _number(value: float | None, digits: int) -> str:
    return _MISSING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def _show_knobs(run: Run) -> bool:
    return len({(row["beta"], row["gamma"]) for row in run.rows if row["whitening"] != "none"}) > 1


def _setting_columns(run: Run) -> list[str]:
    return ["pooling", "whitening", "k", *(["β", "γ"] if _show_knobs(run) else []), "index"]


def _setting(run: Run, row: Row) -> list[str]:
    knobs = [] if row["whitening"] == "none" else [f"{row['beta']:g}", f"{row['gamma']:g}"]
    sign = " †" if row["transductive"] else ""
    shown = (knobs or ["", ""]) if _show_knobs(run) else []
    return [row["pooling"], row["whitening"] + sign, str(row["k"]), *shown, row["backend"]]


def _table(run: Run, figures: Sequence[tuple[str, Any, int]], caption: str, notes: Sequence[str] = ()) -> Table:
    """A table of settings and figures, each (column, how to get it from a row, digits)."""
    columns = _setting_columns(run)

    def cell(value: float | str | None, digits: int) -> str:
        return value if isinstance(value, str) else _number(value, digits)

    cells = [[*_setting(run, row), *(cell(value(row), digits) for _, value, digits in figures)] for row in run.rows]
    groups = [(row["pooling"], row["whitening"]) for row in run.rows]
    return Table([*columns, *(name for name, _, _ in figures)], cells, len(columns), caption, notes, groups)


def quality_table(run: Run) -> Table:
    """What is found: the paper's MRR@10 and other measures, and how much of the exact result the index gives.

    Args:
      run: A run of `eval.retrieval`, complete or not.

    Returns:
      The table; the best values of each column are marked.
    """
    data, protocol = run.header["dataset"], run.header["protocol"]
    names = ("mrr_at_10", "recall_at_1", "recall_at_10", "recall_at_100", "ndcg_at_10")
    heads = ("MRR@10", "recall@1", "recall@10", "recall@100", "nDCG@10")
    figures: list[tuple[str, Any, int]] = [
        (head, operator.itemgetter(name), 4) for head, name in zip(heads, names, strict=True)
    ]
    if any("mrr_interval" in row for row in run.rows):
        figures.insert(1, ("its interval", _interval, 4))
        figures.insert(2, ("vs. raw", _versus_raw, 4))
    figures.append(("of exact@10", operator.itemgetter("index_recall_at_10"), 4))
    caption = (
        f"{data['name']}: {data['documents']:,} documents, {data['queries']:,} queries, of which "
        f"{data['queries'] - data['counts']['queries_without_gold']:,} have gold. {run.header['model']}, at most "
        f"{protocol['max_length']} tokens. Means over the queries with gold; target: {protocol['target']}; of "
        f"exact@10: {protocol['index_recall']}."
    )
    if len(figures) > len(names) + 1:
        caption += (
            f" Intervals: 95% bootstrap over queries; {REAL}: the interval of the paired difference to the raw vectors "
            "of the same pooling and index leaves out 0."
        )
    notes = [TRANSDUCTIVE_NOTE] if any(row["transductive"] for row in run.rows) else []
    table = _table(run, figures, caption, [*notes, *run.header["warnings"]])
    heads_of = [table.columns.index(head) for head in heads]
    best = {
        (number, column)
        for column, name in zip(heads_of, names, strict=True)
        for number, row in enumerate(run.rows)
        if len(run.rows) > 1 and row[name] == max(r[name] for r in run.rows)
    }
    return Table(
        table.columns, table.rows, table.text_columns, table.caption, table.notes, table.groups, frozenset(best)
    )


def _interval(row: Row) -> str:
    ends = row.get("mrr_interval")
    return _number(None, 4) if ends is None else f"{_number(ends['low'], 4)}–{_number(ends['high'], 4)}"


def _versus_raw(row: Row) -> str:
    found = row.get("versus_raw")
    if found is None:
        return _number(None, 4)
    return f"{found['value']:+.4f}{mark(found)}"


def cost_table(run: Run) -> Table:
    """What it takes: time of batched and of single searches, memory, and building."""
    protocol = run.header["protocol"]
    figures = [
        ("ms/query", lambda row: row["time_ms"], 4),
        ("+whitening", lambda row: row["time_with_whitening_ms"], 4),
        ("queries/s", lambda row: row["queries_per_second"], 0),
        ("p50 ms", lambda row: row["single_ms"]["p50"], 2),
        ("p99 ms", lambda row: row["single_ms"]["p99"], 2),
        ("p50 text", lambda row: row["single_text_ms"]["p50"], 2),
        ("p99 text", lambda row: row["single_text_ms"]["p99"], 2),
        ("GiB", lambda row: row["memory_gib"], 4),
        ("index MB", lambda row: row["index_bytes"] / 1e6, 2),
        ("build s", lambda row: row["build_seconds"], 2),
        ("peak GB", lambda row: row["peak_rss_gb"], 2),
    ]
    caption = (
        f"ms/query: {protocol['time']}; +whitening: {protocol['time_with_whitening']}. p50, p99: {protocol['single']}, "
        "from raw vectors, and (text) encoding included. "
        f"GiB: {protocol['memory']}; index MB: the serialised index; peak GB: memory of the whole run so far."
    )
    return _table(run, figures, caption)


def published_table(run: Run) -> Table | None:
    """Published figures and this run's, or None where no row is the same setting."""
    cells, groups, sources = [], [], []
    for number, match in enumerate(run.header.get("published", [])):
        sign = " †" if match["transductive"] else ""
        setting = f"{match['pooling']}, {match['whitening']}{sign}, k={match['k']}, {match['backend']}"
        for who in ("published", "ours"):
            figures = match[who]
            label = match["source"] if who == "published" else "this run"
            numbers = (_number(figures[name], 4) for name in ("mrr_at_10", "time_ms", "memory_gib"))
            cells.append([setting if who == "published" else "", label, *numbers])
            groups.append(number)
        sources.append(f"{match['source']}: {match['citation']}, on {match['machine']}")
    if not cells:
        return None
    caption = "Published figures of the same settings; times are of other machines."
    return Table(["setting", "", "MRR@10", "ms/query", "GiB"], cells, 2, caption, list(dict.fromkeys(sources)), groups)


def _plot(run: Run, path: Path, x: Any, label: str) -> Path | None:
    import matplotlib

    rows = [row for row in run.rows if row["mrr_at_10"] is not None and math.isfinite(row["mrr_at_10"])]
    if not rows:
        return None
    lines = list(dict.fromkeys((row["pooling"], row["whitening"], row["beta"], row["gamma"]) for row in rows))
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 4.6)
        axis = figure.subplots()
        for line, backend in itertools.product(lines, backends):
            of_line = [
                row
                for row in rows
                if (row["pooling"], row["whitening"], row["beta"], row["gamma"]) == line and row["backend"] == backend
            ]
            points = sorted((x(row), row["mrr_at_10"], row["k"]) for row in of_line)
            if not points:
                continue
            colour, marker = COLOURS[lines.index(line) % len(COLOURS)], _MARKERS[backends.index(backend) % 8]
            axis.plot(*list(zip(*points, strict=True))[:2], color=colour, marker=marker, ms=5, lw=1.2)
            for across, up, k in points:
                axis.annotate(f"{k}", (across, up), xytext=(3, 4), textcoords="offset points", fontsize=7)
        axis.set(xlabel=label, ylabel="MRR@10", title=run.header["title"])
        axis.margins(0.1)
        scale_amounts(axis)
        from matplotlib.lines import Line2D

        names = [
            f"{p}, {w}" + (f", β={b:g}, γ={g:g}" if _show_knobs(run) and w != "none" else "") for p, w, b, g in lines
        ]
        handles = [Line2D([], [], color=COLOURS[i % 8], lw=1.6, label=name) for i, name in enumerate(names)]
        handles += [
            Line2D([], [], color="#555555", marker=_MARKERS[i % 8], ms=5, lw=0, label=backend)
            for i, backend in enumerate(backends)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        return save_figure(figure, path)


def plot_memory(run: Run, path: str | os.PathLike[str]) -> Path | None:
    """MRR@10 against the size of the serialised index; numbers beside the points are k.

    Args:
      run: A run of `eval.retrieval`.
      path: PNG file to write.

    Returns:
      The path, or None where no query has gold.
    """
    return _plot(run, Path(path), lambda row: row["index_bytes"] / 1e6, "serialised index, MB")


def plot_time(run: Run, path: str | os.PathLike[str]) -> Path | None:
    """MRR@10 against the time of a query in a batched search; arguments and result as `plot_memory`."""
    return _plot(run, Path(path), lambda row: row["time_ms"], "batched search, ms a query")


PLOTS = {
    "quality_by_memory.png": (plot_memory, "Quality against memory"),
    "quality_by_time.png": (plot_time, "Quality against time"),
}


def examples_text(run: Run) -> str:
    """The example searches: each query with its first results, before and after whitening."""
    examples = run.header.get("examples", [])
    lines = []
    for query in dict.fromkeys(example["query"] for example in examples):
        lines += ["", f"“{query}”"]
        for example in (example for example in examples if example["query"] == query):
            raw = example["whitening"] == "none"
            lines.append(f"  {'not whitened' if raw else 'whitened (' + example['whitening'] + ')'}, k={example['k']}:")
            lines += [f"    {hit['score']:.3f}  {_short(hit['text'] or str(hit['id']))}" for hit in example["hits"]]
    return "\n".join(lines).strip("\n")


def _short(text: str, length: int = 100) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def write_retrieval(run: Run, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes `results.md`, `report.html` and the plots of a run of `eval.retrieval`.

    Args:
      run: The run.
      folder: Where to write; the folder `run.save` wrote to, as a rule.

    Returns:
      The files written, `results.md` and `report.html` first.
    """
    folder = Path(folder)
    plots = {name: path for name, (draw, _) in PLOTS.items() if (path := draw(run, folder / name))}
    tables = (quality_table(run), cost_table(run), published_table(run))
    parts = [f"# {run.header['title']}", *(table.markdown() for table in tables if table)]
    parts += [f"![{PLOTS[name][1]}]({name})" for name in plots]
    if examples := examples_text(run):
        parts += ["## Example searches", f"```text\n{examples}\n```"]
    parts += [_data(run), _provenance(run)]
    io.write_text(folder / "results.md", "\n\n".join(parts) + "\n")
    return [folder / "results.md", _write_page(run, folder, plots), *plots.values()]


def _write_page(run: Run, folder: Path, plots: Mapping[str, Path]) -> Path:
    header, pictures = run.header, [page.picture(path, PLOTS[name][1]) for name, path in plots.items()]
    quality = quality_table(Run({**header, "warnings": []}, run.rows))  # the warnings stand above all tables
    sections = [
        page.section("Quality", page.tables(quality), *pictures),
        page.section("Time and memory", page.tables(cost_table(run))),
        page.section("Published", page.tables(published_table(run))),
        page.section("Example searches", page.verbatim(examples_text(run))),
        page.section("Data", page.verbatim(_data(run))),
        *page.made(header),
    ]
    lead = [f"{header['model']} · {header['dataset']['name']} · {header['date']}"]
    return page.write_page(folder / page.PAGE, header["title"], lead, sections, header["warnings"])


def as_text(run: Run, files: Sequence[Path]) -> str:
    """What the program prints when it is done.

    Args:
      run: The run.
      files: What was written.

    Returns:
      Tables, example searches and the names of the files.
    """
    tables = (quality_table(run), cost_table(run), published_table(run))
    parts = ["\n" + table.text() for table in tables if table]
    if examples := examples_text(run):
        parts.append("\n" + examples)
    parts.append(f"\n{run.header['seconds']:.0f} s, of which encoding {run.header['encoding']['seconds']:.0f} s")
    parts += [f"Table: {files[0]}", f"Page: {files[1]}", "Plots: " + " ".join(map(str, files[2:]))]
    return "\n".join(parts)


def _data(run: Run) -> str:
    counts, conflicts = run.header["dataset"]["counts"], run.header["dataset"]["conflicts"]
    told = [f"{value:,} {_COUNTS.get(name, name.replace('_', ' '))}" for name, value in counts.items()]
    lines = [f"Data: {'; '.join(told)}."]
    lines += [f"Another text for one id, the first was kept: {conflict}." for conflict in conflicts]
    return "\n".join(lines)


def _provenance(run: Run) -> str:
    header = run.header
    machine, versions = header["machine"], header["versions"]
    lines = [
        f"Made on {header['date']} by `{header['program']}` in {header['seconds']:.0f} s, of which encoding "
        f"{header['encoding']['seconds']:.0f} s (what is in the cache is not encoded again).",
        f"Machine: {machine['cores']} cores, {machine['devices']} {machine['device_kind']} device(s); peak memory "
        f"{machine['peak_rss_gb']:.1f} GB. Versions: {', '.join(f'{k} {v}' for k, v in versions.items())}.",
    ]
    return "\n".join(lines)


def remove_views(folder: str | os.PathLike[str]) -> None:
    """Removes the tables and plots of an earlier run, so that none of them stands beside newer results."""
    for name in ("results.md", page.PAGE, *PLOTS):
        Path(folder, name).unlink(missing_ok=True)
