"""Codes and whitenings fitted on few documents, with and without shrinkage of the covariance.

`python -m eval.few_rows [--config configs/few_rows.py] [--config.key=value ...]`

For each search and number of rows: the share of float32's first ten documents that a code finds, the share of the
variance that it expects to lose and that documents outside the fit do lose; and the MRR@10 of whitened vectors. Writes
`run.jsonl`, a table and a plot to the folder `out`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

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
from eval.report.table import SIGNIFICANT, Table, mark, number
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, fractions, integers, words
from jaxwhiten import Moments, Whitening, metrics, scoring
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import EmbeddingStore

FIRST = 10
SHRINKAGES = (None, "oas")
_MANY = 10**9
_FIGURES = ("bytes", "share", "distortion", "lost", "fit_seconds", "mrr_at_10", "versus_raw")


def evaluator(config: FewRows) -> Iterator[Run]:
    """The run after each search."""
    counts = integers("rows", config.rows)
    sizes = integers("bytes", config.bytes)
    gammas = fractions("gamma", config.gamma) if config.gamma else ()
    make_folder(Path(config.out))
    encoder = load_encoder(config, config.pooling).without_code()
    store = EmbeddingStore(config.cache or None)
    run = Run(
        common.make_header(
            "eval.few_rows",
            f"Fits on few rows: {encoder.name}",
            config,
            encoder,
            common.encoding(0.0, 0, note="not timed"),
            protocol={
                "rows": "documents drawn at random; all are searched",
                "share": f"of the first {FIRST} documents by float32 vectors, among the first {FIRST} by decoded ones",
                "lost": f"share of the variance of {config.held_out} documents outside the fit",
                "whitened": f"MRR@{FIRST} x 100 of all columns, scaled to unit length",
            },
        )
    )
    yield run
    for name in words("datasets", config.datasets):
        data = load_search(name, config.data_dir or None)
        _, asked, gold = measure.sample_queries(data, config.queries)
        vectors = {
            role: jaxwhiten.normalize(np.asarray(store.encode(encoder.view.in_role(role), list(texts))))
            for role, texts in (("document", data.documents), ("query", asked))
        }
        documents, queries = vectors["document"], vectors["query"]
        order = np.random.default_rng(config.seed).permutation(len(documents))
        for count in counts:
            if count < len(documents):
                rows = documents[order[: count or None]]
                unseen = documents[order[-config.held_out :]] if count else None
                with Notes().collect("", ""):  # few rows are what is measured
                    found = [*coded(rows, unseen, documents, queries, sizes, config)]
                    found += whitened(rows, documents, queries, gold, gammas, config)
                empty = NO_WHITENING | dict.fromkeys(_FIGURES) | {"dataset": Path(data.name).name}
                run.rows.extend(Record(empty | row) for row in found)
                say(f"{data.name}: fits on {len(rows):,} documents")
        yield run


def coded(
    rows: np.ndarray,
    unseen: np.ndarray | None,
    documents: np.ndarray,
    queries: np.ndarray,
    sizes: Sequence[int],
    config: FewRows,
) -> Iterator[dict]:
    """A row for each size, without and with shrinkage."""
    moments = Moments.of(rows)
    nearest = [*scoring.best(queries @ documents.T, FIRST)]
    center = documents.mean(axis=0)
    for size in sizes:
        shares = []
        for shrinkage in SHRINKAGES:
            started = time.perf_counter()
            code = SpectrumCode(bytes=size).fit(moments if shrinkage else of_many(moments))
            seconds = time.perf_counter() - started
            decoded = jaxwhiten.normalize(code.transform(documents))
            shares.append(metrics.recalls(scoring.best(queries @ decoded.T, FIRST), nearest, FIRST))
            lost = None
            if unseen is not None:
                lost = float(((code.transform(unseen) - unseen) ** 2).sum() / ((unseen - center) ** 2).sum())
            yield {
                "n_fit": len(rows),
                "bytes": size,
                "shrinkage": shrinkage or "none",
                "share": float(shares[-1].mean()),
                "versus": compared(shares, config),
                "distortion": code.distortion_,
                "lost": lost,
                "fit_seconds": seconds,
            }


def whitened(
    rows: np.ndarray,
    documents: np.ndarray,
    queries: np.ndarray,
    gold: metrics.Gold,
    gammas: Sequence[float],
    config: FewRows,
) -> Iterator[dict]:
    """A row for unchanged vectors, then for each γ, without and with shrinkage."""

    def ranks(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return metrics.reciprocal_ranks(scoring.best(y @ x.T, FIRST), gold, FIRST)

    raw = ranks(documents, queries)
    for gamma in gammas:
        scores = []
        for shrinkage in SHRINKAGES:
            whitening = Whitening(gamma=gamma, shrinkage=shrinkage).fit(rows)
            scores.append(ranks(*(jaxwhiten.normalize(whitening.transform(part)) for part in (documents, queries))))
            yield {
                "gamma": gamma,
                "n_fit": len(rows),
                "shrinkage": shrinkage or "none",
                "mrr_at_10": float(scores[-1].mean()),
                "versus": compared(scores, config),
                "versus_raw": estimate(100 * (scores[-1] - raw), config.bootstrap, config.seed),
            }


def compared(values: Sequence[np.ndarray], config: FewRows) -> Record | None:
    """The last values less the first, × 100; None for the first."""
    if len(values) < 2:
        return None
    return estimate(100 * (values[-1] - values[0]), config.bootstrap, config.seed)


def of_many(moments: Moments) -> Moments:
    """The same mean and covariance as of very many rows, whose covariance is not shrunk."""
    return Moments(moments.n * _MANY, moments.mean, moments.M2 * _MANY)


def _cells(run: Run, of: str) -> dict[tuple[str, float], dict[int, tuple[Record, Record]]]:
    """By data and bytes, or data and γ: for each number of rows the rows without and with shrinkage."""
    cells: dict[tuple[str, float], dict[int, tuple[Record, Record]]] = {}
    rows = [row for row in run.rows if row[of] is not None]
    for without, shrunk in zip(rows[::2], rows[1::2], strict=True):
        cells.setdefault((without.dataset, without[of]), {})[without.n_fit] = without, shrunk
    return cells


def _table(run: Run, of: str, value: str, caption: str) -> Table | None:
    """A line for each search and size, or γ, and a column for each number of rows."""
    cells = _cells(run, of)
    asked = integers("rows", run.header.arguments["rows"])
    counts = sorted(filter(None, asked))
    body = []
    for (data, setting), by_rows in cells.items():
        every = max(by_rows)
        pairs = [by_rows.get(count) for count in counts] + [by_rows[every] if 0 in asked else None]
        shown = (
            " → ".join(number(100 * row[value], 1) for row in pair) + mark(pair[1].versus) if pair else ""
            for pair in pairs
        )
        body.append([data, f"{setting:g}", *shown])
    if not body:
        return None
    heads = ["data", {"gamma": "γ"}.get(of, of), *(f"{count:,} rows" for count in counts), "all rows"]
    caption += f" Without shrinkage → with it; {SIGNIFICANT}: the interval of the difference leaves out 0."
    return Table(heads, body, 2, caption, groups=[line[0] for line in body], merged=True)


def _pair(value: str, without: Record, shrunk: Record) -> str:
    return f"{number(100 * without[value], 1)} → {number(100 * shrunk[value], 1)}{mark(shrunk.versus)}".strip()


def codes_table(run: Run) -> Table | None:
    """The share of float32's first documents that codes find."""
    return _table(run, "bytes", "share", f"Codes: share of float32's first {FIRST}, x 100.")


def whitenings_table(run: Run) -> Table | None:
    """The scores of whitened vectors."""
    return _table(run, "gamma", "mrr_at_10", f"Whitened vectors: MRR@{FIRST} x 100.")


def distortion_table(*runs: Run) -> Table:
    """What a code expects to lose over what documents outside the fit lose: the range over data and sizes."""
    body = []
    for run in runs:
        pairs = [pair for by_rows in _cells(run, "bytes").values() for pair in by_rows.values()]
        for count in sorted({shrunk.n_fit for _, shrunk in pairs if shrunk.lost is not None}):
            ratios = [[row.distortion / row.lost for row in pair] for pair in pairs if pair[0].n_fit == count]
            ranges = (f"{min(side):.2f}–{max(side):.2f}" for side in zip(*ratios, strict=True))
            body.append([run.header.model, f"{count:,}", *ranges])
    return Table(["encoder", "rows", "without shrinkage", "with it"], body, 1, merged=True)


def draw(run: Run, path: Path) -> Path | None:
    """A panel for each size: the share found against the number of rows, dashed without shrinkage."""
    cells = _cells(run, "bytes")
    if not cells:
        return None
    sizes = sorted({size for _, size in cells})
    names = list(dict.fromkeys(name for name, _ in cells))
    with new_figure(path, 9.0, 3.4) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(sizes), sharey=True))
        for (name, size), by_rows in cells.items():
            panel = panels[sizes.index(size)]
            for side, style in enumerate(("--", "-")):
                panel.plot(
                    list(by_rows),
                    [pair[side].share for pair in by_rows.values()],
                    style,
                    lw=1.2 if style == "--" else 1.8,
                    color=COLOURS[names.index(name)],
                    label=name if style == "-" and size == sizes[0] else None,
                )
            panel.set(title=f"{size} bytes", xscale="log", xlabel="texts of the fit")
        panels[0].set_ylabel(f"share of float32's first {FIRST}")
        panels[0].legend(title="dashed: without shrinkage", fontsize=7, title_fontsize=7)
    return path


TABLES = {"codes_table": codes_table, "whitenings_table": whitenings_table, "distortion_table": distortion_table}
VIEWS = Views(
    {"Codes": codes_table, "Whitenings": whitenings_table},
    {"share_by_rows.png": (draw, "Share of float32's first documents against rows of the fit")},
)
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/few_rows.py", FewRows)
