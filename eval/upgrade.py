"""Another encoder over an existing index: the quality of staying, mapping, fusing, embedding on read or everything.

`python -m eval.upgrade [--config configs/upgrade.py] [--config.key=value ...]`

For every ordered pair of encoders: the old one unchanged (stay); old documents mapped to the space of the new encoder's
queries (map); the sum of both scores (fuse); the old encoder's first documents scored by the new one, which embeds a
document once it is among the first of a query (on read); all documents embedded (everything). Writes `run.jsonl` to the
folder `out`, and prints a table and an advice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import jaxwhiten
from configs import launch
from configs.settings import Upgrade
from eval import common, measure
from eval.common import make_folder, say
from eval.driver import driven
from eval.intervals import estimate
from eval.methods import MAP_KINDS, EncoderMap
from eval.report import Table
from eval.report.table import SIGNIFICANT, mark
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, choices, integers, words
from jaxwhiten import Encoder, Whitening, metrics, scoring
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import InputError, optional

PEER = "isotrieve-ridge"
FIRST = 10
ENOUGH = 0.995  # of the MRR@10 of everything
STAY = "stay"
MAP = "map"
FUSE = "fuse"
ON_READ = "on read"
EVERYTHING = "everything"


@dataclass(frozen=True)
class Side:
    """Vectors of the documents and the queries by one encoder."""

    label: str
    pooling: str
    whitened: bool
    encoder: Encoder
    documents: np.ndarray
    queries: np.ndarray


def evaluator(config: Upgrade) -> Iterator[Run]:
    """The run after each pair of encoders."""
    kinds = choices("kinds", config.kinds, (*MAP_KINDS, PEER))
    counts = integers("pairs", config.pairs)
    candidates = integers("candidates", config.candidates)
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    _, queries, gold = measure.sample_queries(data, config.queries)
    store = EmbeddingStore(config.cache or None)
    encoding = time.perf_counter()
    sides = [encoded(spec, config, store, data.documents, queries) for spec in words("encoders", config.encoders)]
    if len(sides) < 2:
        raise InputError("config.encoders: names one encoder; an upgrade is from one to another.")
    texts = len(sides) * (len(data.documents) + len(queries))
    encoding_record = common.encoding(time.perf_counter() - encoding, texts, note="what is in the cache is read")
    say(f"{data.name}: {len(data.documents):,} documents, {len(queries):,} queries")
    header = common.make_header(
        "eval.upgrade",
        f"Upgrades on {data.name}",
        config,
        sides[0].encoder,
        encoding_record,
        dataset=common.dataset(data, len(queries)),
        protocol={
            "quality": f"MRR@{FIRST} x 100 of {len(queries):,} queries with gold",
            "pairs": "documents drawn at random, under both encoders",
            "fuse": f"cosines of the old encoder and of the map ({config.fuse}), each scaled by query, added",
        },
        advice=Record(),
    )
    run = Run(header)
    for old, new in itertools.permutations(sides, 2):
        rows = measured(old, new, gold, kinds, counts, candidates, config)
        run.rows.extend(rows)
        pair = f"{old.label} → {new.label}"
        run.header.advice[pair] = advice(rows)
        say(f"{pair}: {run.header.advice[pair]}")
        yield run


def closing(run: Run) -> str:
    """The table, and the advice for each pair of encoders."""
    advised = (f"{pair}: {text}" for pair, text in run.header.advice.items())
    return "\n".join([upgrade_table(run).text(), *advised])


def encoded(
    spec: str, config: Upgrade, store: EmbeddingStore, documents: Sequence[str], queries: Sequence[str]
) -> Side:
    """The vectors by an encoder that the config names."""
    model, pooling, *flags = spec.split()
    if flags not in ([], ["whitened"]):
        raise InputError(f"config.encoders: {spec!r} is not MODEL POOLING or MODEL POOLING whitened.")
    encoder = Encoder.from_pretrained(
        model,
        pooling=pooling,
        bare=True,
        max_length=config.max_length or None,
        dtype=config.dtype,
        engine=config.engine,
    ).without_code()
    vectors = [np.asarray(store.encode(encoder, list(texts))) for texts in (documents, queries)]
    label = Path(model).name
    if flags:
        whitening = Whitening().fit(vectors[0])
        vectors = [whitening.transform(part) for part in vectors]
        label += ", whitened"
    return Side(label, pooling, bool(flags), encoder, *map(jaxwhiten.normalize, vectors))


def measured(
    old: Side,
    new: Side,
    gold: metrics.Gold,
    kinds: Sequence[str],
    counts: Sequence[int],
    candidates: Sequence[int],
    config: Upgrade,
) -> list[Record]:
    """Every way from one encoder to another."""
    stay, full = [ranked(side.queries @ side.documents.T) for side in (old, new)]
    ranks = {name: metrics.reciprocal_ranks(ids, gold, FIRST) for name, ids in ((STAY, stay), (EVERYTHING, full))}

    def row(method: str, reciprocal: np.ndarray, n_fit: int = 0, **fields: object) -> Record:
        def versus(base: str) -> Record | None:
            if method == base:
                return None
            return estimate(100 * (reciprocal - ranks[base]), config.bootstrap, config.seed)

        return Record(
            NO_WHITENING | {"candidates": None, "old_recall": None, "embedded": None} | fields,
            model=old.label,
            pooling=old.pooling,
            whitening="documents" if old.whitened else "none",
            k=old.documents.shape[1],
            n_fit=n_fit,
            transductive=False,
            new=new.label,
            method=method,
            mrr_at_10=float(reciprocal.mean()),
            versus_stay=versus(STAY),
            versus_everything=versus(EVERYTHING),
        )

    rows = [row(STAY, ranks[STAY], embedded=0.0)]
    order = np.random.default_rng(config.seed).permutation(len(old.documents))
    for count, kind in itertools.product(sorted({min(count, len(order)) for count in counts}), kinds):
        pairs = order[:count]
        documents, queries = mapped(kind, old, new, pairs)
        scores = queries @ documents.T
        rows.append(row(f"{MAP}, {kind}", metrics.reciprocal_ranks(ranked(scores), gold, FIRST), count))
        if kind == config.fuse:
            fused = standard(scores) + standard(old.queries @ old.documents.T)
            rows.append(row(FUSE, metrics.reciprocal_ranks(ranked(fused), gold, FIRST), count))
    for count in candidates:
        first = ranked(old.queries @ old.documents.T, count)
        rows.append(
            row(
                ON_READ,
                metrics.reciprocal_ranks(reranked(first, new), gold, FIRST),
                candidates=count,
                old_recall=metrics.recalls(first, gold, count).mean(),
                embedded=len(np.unique(first)) / len(old.queries),
            )
        )
    full_cost = len(old.documents) / len(old.queries)
    return [*rows, row(EVERYTHING, ranks[EVERYTHING], embedded=full_cost)]


def mapped(kind: str, old: Side, new: Side, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Old documents and new queries in one space, at unit length, by a map fitted on some of the documents."""
    x = old.documents[pairs]
    y = new.documents[pairs]
    if kind == PEER:
        peer = optional("isotrieve.mapping.linear", "bench-more", f"The map {kind}", package="isotrieve").RidgeMapping()
        return jaxwhiten.normalize(peer.fit(x, y).transform(old.documents).astype(np.float32)), new.queries
    encoder_map = EncoderMap(kind=kind).fit(x, y)
    parts = encoder_map.transform(old.documents), encoder_map.transform_target(new.queries)
    return jaxwhiten.normalize(parts[0]), jaxwhiten.normalize(parts[1])


def reranked(first: np.ndarray, new: Side) -> np.ndarray:
    """The best `FIRST` of each query's documents by the new encoder, [queries, FIRST]."""
    scores = [new.documents[ids] @ query for ids, query in zip(first, new.queries, strict=True)]
    return np.take_along_axis(first, ranked(np.array(scores), FIRST), axis=1)


def ranked(scores: np.ndarray, k: int = 100) -> np.ndarray:
    """The first k columns of each row, best first."""
    return scoring.best(scores, min(k, scores.shape[1]))


def standard(scores: np.ndarray) -> np.ndarray:
    """Each row with mean 0 and standard deviation 1."""
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


def advice(rows: Sequence[Record]) -> str:
    """The advice, in a sentence."""
    full = rows[-1]
    reads = [row for row in rows if row.method == ON_READ]
    gain = full.versus_stay
    if gain is None or gain.low <= 0:
        return "Stay: re-embedding everything brings no significant gain."
    for read in reads:
        if read.mrr_at_10 >= ENOUGH * full.mrr_at_10:
            return f"Embed on read, {read.candidates} candidates: as good as everything ({gain.value:+.1f} points)."
    part = reads and reads[-1].versus_stay
    if part and part.low > 0 and part.value > gain.value / 2:
        most = reads[-1]
        return (
            f"Embed on read, then fill: {most.candidates} candidates gain {part.value:+.1f} points of"
            f" {gain.value:+.1f}, because the old encoder finds {most.old_recall or 0:.0%} of the relevant documents."
        )
    return f"Embed everything ({gain.value:+.1f} points): the old encoder finds too little of what is wanted."


def _pairs(runs: Sequence[Run]) -> list[tuple[str, str, list[Record]]]:
    """The rows of each search and pair of encoders."""
    by_pair: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        for row in run.rows:
            by_pair.setdefault((run.header.dataset.name, f"{row.model} → {row.new}"), []).append(row)
    return [(*names, rows) for names, rows in by_pair.items()]


def _points(row: Record) -> str:
    return f"{100 * row.mrr_at_10:.2f}{mark(row.versus_stay)}".strip()


def upgrade_table(*runs: Run) -> Table:
    """Each way from one encoder to another, with maps from the most pairs; the old index's recall, and advice."""
    cells = []
    heads = list[str]()
    for data, pair, rows in _pairs(runs):
        largest = max(row.n_fit for row in rows)
        ways = {row.method: row for row in rows if row.n_fit in (0, largest) and not row.candidates}
        reads = [row for row in rows if row.candidates]
        methods = [name for name in ways if name != "everything" and "isotrieve" not in name] + ["everything"]
        heads = ["data", "old → new", *methods[:-1], *(f"on read, {row.candidates}" for row in reads), methods[-1]]
        heads += [f"old recall@{row.candidates}" for row in reads[-1:]]
        heads += [f"texts per query, {row.candidates}" for row in reads[-1:]] + ["advice"]
        run = next(run for run in runs if run.header.dataset.name == data)
        costs = [f"{row.old_recall or 0:.3f}" for row in reads[-1:]]
        costs += [f"{row.embedded or 0:.1f}" for row in reads[-1:]]
        figures = [_points(row) for row in (*(ways[name] for name in methods[:-1]), *reads, ways[methods[-1]])]
        cells.append([data, pair, *figures, *costs, run.header.advice[pair].partition(":")[0].partition(" (")[0]])
    caption = f"MRR@10 x 100. {SIGNIFICANT}: its difference to staying has an interval that leaves out 0."
    return Table(heads, cells, 2, caption)


TABLES = {"upgrade_table": upgrade_table}
main = driven(evaluator, closing=closing)

if __name__ == "__main__":
    launch.run(main, "configs/upgrade.py", Upgrade)
