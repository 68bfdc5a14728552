"""Codes and whitenings fitted on few documents, with and without shrinkage of the covariance.

`python -m eval.few_rows [--config configs/few_rows.py] [--config.key=value ...]`

For each number of rows: the share of float32's first ten documents that a code finds, the share of the variance that it
expects to lose and that documents outside the fit do lose; the same for normal vectors of the corpus' mean and
covariance, fitted on as many of them; and the MRR@10 of whitened vectors. Writes `run.jsonl`, tables and a plot to the
folder `out`.
"""

from __future__ import annotations

import time
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
from eval.settings import NO_WHITENING, fractions, integers
from jaxwhiten import Moments, Whitening, metrics, scoring
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.encoding import EmbeddingStore

FIRST = 10
SHRINKAGES = (None, "oas")
_MANY = 10**9
_FIGURES = ("bytes", "share", "distortion", "lost", "normal", "fit_seconds", "mrr_at_10", "versus_raw")


def evaluator(config: FewRows) -> Iterator[Run]:
    """The run after each number of rows."""
    counts = integers("rows", config.rows)
    sizes = integers("bytes", config.bytes)
    gammas = fractions("gamma", config.gamma) if config.gamma else ()
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
                "lost": f"share of the variance of {config.held_out} documents outside the fit",
                "normal": "distortion over lost for normal vectors of the documents' mean and covariance",
                "whitened": f"MRR@{FIRST} x 100 of all columns, scaled to unit length",
            },
        )
    )
    yield run
    store = EmbeddingStore(config.cache or None)
    _, asked, gold = measure.sample_queries(data, config.queries)
    documents, queries = (
        jaxwhiten.normalize(np.asarray(store.encode(encoder.view.in_role(role), list(texts))))
        for role, texts in (("document", data.documents), ("query", asked))
    )
    order = np.random.default_rng(config.seed).permutation(len(documents))
    for count in counts:
        rows = documents[order[: count or None]]
        unseen = documents[order[-config.held_out :]] if count else None
        with Notes().collect("", ""):  # few rows are what is measured
            found = [*coded(rows, unseen, documents, queries, sizes, config)]
            found += whitened(rows, documents, queries, gold, gammas, config)
        empty = NO_WHITENING | dict.fromkeys(_FIGURES) | {"dataset": name}
        run.rows.extend(Record(empty | row) for row in found)
        say(f"{name}: fits on {len(rows):,} documents")
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
    normal = normal_like(documents, len(rows) + config.held_out, config.seed)
    normal_moments = Moments.of(normal[: len(rows)])
    for size in sizes:
        shares = []
        for shrinkage in ("none", "nonlinear"):
            fitted = [of_many(part) if shrinkage == "none" else part for part in (moments, normal_moments)]
            started = time.perf_counter()
            code = SpectrumCode(bytes=size).fit(fitted[0])
            seconds = time.perf_counter() - started
            control = SpectrumCode(bytes=size).fit(fitted[1])
            decoded = jaxwhiten.normalize(code.transform(documents))
            shares.append(metrics.recalls(scoring.best(queries @ decoded.T, FIRST), nearest, FIRST))
            lost = None if unseen is None else loss(code, unseen, center)
            yield {
                "n_fit": len(rows),
                "bytes": size,
                "shrinkage": shrinkage,
                "share": float(shares[-1].mean()),
                "versus": compared(shares, config),
                "distortion": code.distortion_,
                "lost": lost,
                "normal": control.distortion_ / loss(control, normal[len(rows) :], center),
                "fit_seconds": seconds,
            }


def normal_like(x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Normal vectors of the mean and covariance of x."""
    root = (x - x.mean(axis=0)) / np.sqrt(len(x))
    factors = np.linalg.svd(root, full_matrices=False)[1:]
    numbers = np.random.default_rng(seed).standard_normal((count, len(factors[0]))) * factors[0]
    return (x.mean(axis=0) + numbers @ factors[1]).astype(np.float32)


def loss(code: SpectrumCode, x: np.ndarray, center: np.ndarray) -> float:
    """What a code loses of the squared distances to the center."""
    return float(((code.transform(x) - x) ** 2).sum() / ((x - center) ** 2).sum())


def whitened(
    rows: np.ndarray,
    documents: np.ndarray,
    queries: np.ndarray,
    gold: metrics.Gold,
    gammas: Sequence[float],
    config: FewRows,
) -> Iterator[dict]:
    """A row for each γ, without and with shrinkage."""

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


def _pairs(runs: Sequence[Run], of: str) -> dict[tuple[str, float], list[list[tuple[Record, Record]]]]:
    """By encoder and bytes, or γ: for each number of rows, the rows of all runs without and with shrinkage."""
    cells: dict[tuple[str, float], list[list[tuple[Record, Record]]]] = {}
    for run in runs:
        found: dict[float, list[tuple[Record, Record]]] = {}
        rows = [row for row in run.rows if row[of] is not None]
        for without, shrunk in zip(rows[::2], rows[1::2], strict=True):
            found.setdefault(without[of], []).append((without, shrunk))
        for setting, pairs in found.items():
            cells.setdefault((_named(run), setting), []).append(pairs)
    return {key: [list(pairs) for pairs in zip(*found, strict=False)] for key, found in cells.items()}


def _named(run: Run) -> str:
    return str(run.header.model).rpartition("/")[2]


def _means(pairs: Sequence[tuple[Record, Record]], value: str) -> list[float]:
    return [fmean(row[value] for row in side) for side in zip(*pairs, strict=True)]


def _table(runs: Sequence[Run], of: str, value: str) -> Table | None:
    """A line for each encoder and size, or γ, and a column for each number of rows: means over the runs."""
    body = [
        [name, f"{setting:g}", *(" → ".join(number(100 * mean, 1) for mean in _means(p, value)) for p in by_rows)]
        for (name, setting), by_rows in _pairs(runs, of).items()
    ]
    if not body:
        return None
    counts = integers("rows", runs[0].header.arguments["rows"])
    heads = ["encoder", {"gamma": "γ"}.get(of, of), *(f"{count:,} rows" if count else "all" for count in counts)]
    return Table(heads, body, 2, groups=[line[0] for line in body], merged=True)


def codes_table(*runs: Run) -> Table | None:
    """The share of float32's first documents that codes find, × 100, without and with shrinkage."""
    return _table(runs, "bytes", "share")


def whitenings_table(*runs: Run) -> Table | None:
    """The MRR × 100 of whitened vectors, without and with shrinkage."""
    return _table(runs, "gamma", "mrr_at_10")


def distortion_table(*runs: Run) -> Table | None:
    """What a code expects to lose over what vectors outside the fit do: the range over runs and sizes."""
    ratios: dict[tuple[str, int], list[list[float]]] = {}
    for (name, _), by_rows in _pairs(runs, "bytes").items():
        for pair in (pair for pairs in by_rows for pair in pairs if pair[0].lost is not None):
            ratios.setdefault((name, pair[0].n_fit), []).append(
                [*(row.distortion / row.lost for row in pair), pair[1].normal]
            )
    if not ratios:
        return None
    body = [
        [name, f"{count:,}", *(f"{min(side):.2f}–{max(side):.2f}" for side in zip(*found, strict=True))]
        for (name, count), found in sorted(ratios.items())
    ]
    heads = ["encoder", "rows", "without shrinkage", "with it", "with it, normal vectors"]
    return Table(heads, body, 1, groups=[line[0] for line in body])


def draw(*runs: Run, path: Path) -> Path | None:
    """A panel for each encoder: the share found against the number of rows, a mean over its runs; dashed without."""
    cells = _pairs(runs, "bytes")
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


TABLES = {"codes_table": codes_table, "whitenings_table": whitenings_table, "distortion_table": distortion_table}
VIEWS = Views(
    {"Codes": codes_table, "Whitenings": whitenings_table, "Expected and measured loss": distortion_table},
    {"share_by_rows.png": (draw, "Share of float32's first documents against rows of the fit")},
)
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/few_rows.py", FewRows)
