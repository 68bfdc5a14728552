"""Codes fitted on few documents, with and without shrinkage of the covariance.

`python -m eval.few_rows [--config configs/few_rows.py] [--config.key=value ...]`

For each number of rows and size of a code: the share of float32's first ten documents that it finds. Writes
`run.jsonl`, a table and a plot to the folder `out`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

import jaxwhiten
from configs import launch
from configs.settings import FewRows
from eval import common, measure
from eval.common import Notes, load_encoder, make_folder, say
from eval.driver import driven
from eval.intervals import estimate
from eval.plotting import COLOURS, new_figure
from eval.report import Views
from eval.report.table import Table, number
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, integers
from jaxwhiten import Moments, metrics, scoring
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import EmbeddingStore

FIRST = 10
_MANY = 10**9  # rows of moments whose covariance is not shrunk


def evaluator(config: FewRows) -> Iterator[Run]:
    """The run after each number of rows."""
    counts = integers("rows", config.rows)
    sizes = integers("bytes", config.bytes)
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    encoder = load_encoder(config, config.pooling).without_code()
    name = Path(data.name).name
    run = Run(
        common.make_header(
            "eval.few_rows",
            f"Fits on few rows of {name}: {encoder.name}",
            config,
            encoder,
            common.encoding(0.0, 0, note="not timed"),
            protocol={
                "rows": "documents drawn at random; all are searched",
                "share": f"of the first {FIRST} documents by float32 vectors, among the first {FIRST} by decoded ones",
            },
        )
    )
    yield run
    store = EmbeddingStore(config.cache or None)
    _, asked, _ = measure.sample_queries(data, config.queries)
    documents, queries = (
        jaxwhiten.normalize(np.asarray(store.encode(encoder.view.in_role(role), list(texts))))
        for role, texts in (("document", data.documents), ("query", asked))
    )
    order = np.random.default_rng(config.seed).permutation(len(documents))
    nearest = [*scoring.best(queries @ documents.T, FIRST)]
    for count in counts:
        moments = Moments.of(documents[order[: count or None]])
        many = Moments(moments.n * _MANY, moments.mean, moments.M2 * _MANY)
        for size in sizes:
            shares = []
            for shrinkage, fitted in (("none", many), ("nonlinear", moments)):
                with Notes().collect("", ""):  # few rows are what is measured
                    code = SpectrumCode(bytes=size).fit(fitted)
                decoded = jaxwhiten.normalize(code.transform(documents))
                shares.append(metrics.recalls(scoring.best(queries @ decoded.T, FIRST), nearest, FIRST))
                versus = estimate(100 * (shares[1] - shares[0]), config.bootstrap, config.seed) if shares[1:] else None
                row = {"dataset": name, "n_fit": moments.n, "bytes": size, "shrinkage": shrinkage, "versus": versus}
                run.rows.append(Record(NO_WHITENING | row, share=float(shares[-1].mean())))
        say(f"{name}: fits on {moments.n:,} documents")
        yield run


def _pairs(runs: Sequence[Run]) -> dict[tuple[str, int], list[list[tuple[Record, Record]]]]:
    """By encoder and bytes: for each number of rows, the rows of all runs without and with shrinkage."""
    cells: dict[tuple[str, int], list[list[tuple[Record, Record]]]] = {}
    for run in runs:
        found: dict[int, list[tuple[Record, Record]]] = {}
        rows = [row for row in run.rows if row.bytes is not None]
        for without, shrunk in zip(rows[::2], rows[1::2], strict=True):
            found.setdefault(without.bytes, []).append((without, shrunk))
        for size, pairs in found.items():
            cells.setdefault((str(run.header.model).rpartition("/")[2], size), []).append(pairs)
    return {key: [list(pairs) for pairs in zip(*found, strict=False)] for key, found in cells.items()}


def _means(pairs: Sequence[tuple[Record, Record]], value: str) -> list[float]:
    return [fmean(row[value] for row in side) for side in zip(*pairs, strict=True)]


def codes_table(*runs: Run) -> Table | None:
    """The share of float32's first documents that codes find, × 100, without and with shrinkage: means over the runs.

    A line for each encoder and size, and a column for each number of rows.
    """
    body = [
        [name, f"{size}", *(" → ".join(number(100 * mean, 1) for mean in _means(pairs, "share")) for pairs in by_rows)]
        for (name, size), by_rows in _pairs(runs).items()
    ]
    if not body:
        return None
    counts = integers("rows", runs[0].header.arguments["rows"])
    heads = ["encoder", "bytes", *(f"{count:,} rows" if count else "all" for count in counts)]
    return Table(heads, body, 2, groups=[line[0] for line in body], merged=True)


def draw(*runs: Run, path: Path) -> Path | None:
    """A panel for each encoder: the share found against the number of rows, a mean over its runs; dashed without."""
    cells = _pairs(runs)
    if not cells:
        return None
    names = list(dict.fromkeys(name for name, _ in cells))
    sizes = sorted({size for _, size in cells}, reverse=True)
    with new_figure(path, 4.2 * len(names), 3.6) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
        for (name, size), by_rows in cells.items():
            counts = [_means(pairs, "n_fit")[0] for pairs in by_rows]
            shares = np.array([_means(pairs, "share") for pairs in by_rows])
            colour = COLOURS[sizes.index(size)]
            panel = panels[names.index(name)]
            panel.plot(counts, shares[:, 0], "--", lw=1.2, color=colour)
            panel.plot(counts, shares[:, 1], "-o", lw=1.8, ms=3, color=colour, label=f"{size} bytes")
        for name, panel in zip(names, panels, strict=True):
            panel.set(title=name, xscale="log", xlabel="texts that the code is fitted on")
        panels[0].set_ylabel(f"share of float32's first {FIRST}")
        panels[0].legend(title="dashed: without shrinkage", fontsize=8, title_fontsize=8)
    return path


TABLES = {"codes_table": codes_table}
VIEWS = Views({"Codes": codes_table}, {"share_by_rows.png": (draw, "Share of float32's first against rows of the fit")})
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/few_rows.py", FewRows)
