"""Retrieval with an encoder, raw and whitened: quality, time and memory of every setting on every index.

`python -m eval.retrieval [--config configs/retrieval.py] [--config.key=value ...]`

Texts are encoded once and kept in the cache, so that a killed run resumes where it stopped. Writes
`run.jsonl` and `results.md` to the folder `out`. With `--distributed` several processes encode,
each its share, and the first one searches and writes.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs import launch
from configs.settings import Retrieval
from eval import common, measure
from eval.common import Notes, Settings, load_encoder, say
from eval.driver import driven
from eval.encoding import encode, expand_poolings, first_plain, nli_moments
from eval.faiss_indexes import OPTIONS, FaissIndex
from eval.intervals import estimate
from eval.machine import peak_memory
from eval.report.retrieval import TABLES, VIEWS
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import RAW, choices, row_fields, setting_name
from jaxwhiten import CrossEncoder, Encoder, Moments, Whitening
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.runtime import distributed
from jaxwhiten.scoring import of_ranks
from jaxwhiten.search import Index, build_index

BACKENDS = ("faiss-flat", "jax", *OPTIONS)
DOCUMENTS = "documents"  # a fit that sees no query, as an index is built
# results of the timed search, and of the one that quality is measured on
FIRST = 10
DEEP = 100


@dataclass(frozen=True)
class Vectors:
    """Raw vectors of documents and queries under one pooling."""

    model: str
    pooling: str
    documents: np.ndarray
    queries: np.ndarray


@dataclass(frozen=True)
class Searches:
    """The data of a search, the config, and the rows of queries for its parts."""

    data: RetrievalData
    config: Retrieval
    exact: np.ndarray  # queries that are searched exactly, too
    single: np.ndarray  # queries that are searched one by one
    backends: tuple[str, ...]
    reranker: CrossEncoder | None = None

    @classmethod
    def of(cls, config: Retrieval, data: RetrievalData) -> Searches:
        """What a config asks for."""
        return cls(
            data,
            config,
            measure.sample_rows(len(data.queries), config.exact_queries),
            measure.sample_rows(len(data.queries), config.single_queries),
            choices("backends", config.backends, BACKENDS),
            CrossEncoder.from_pretrained(config.rerank) if config.rerank else None,
        )

    def index(self, backend: str, documents: np.ndarray, whitening: Whitening | None) -> Index | FaissIndex:
        """The index of a backend, with the options that the config names."""
        if backend not in OPTIONS:
            return build_index(documents, backend, whitening=whitening)
        options = {name: getattr(self.config, name) for name in OPTIONS[backend]}
        return FaissIndex(documents, backend, whitening=whitening, **options)


def evaluator(config: Retrieval) -> Iterator[Run]:
    """The run after each setting and index."""
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it announces how it was loaded
    settings = Settings.read(config, extra=(DOCUMENTS,))

    # Data and model are read, and every setting checked, before anything slow starts.
    data = load_search(config.dataset, settings.data_dir)
    nli = settings.load_nli()
    encoder = load_encoder(config, first_plain(settings.poolings))
    poolings = expand_poolings(settings.poolings, encoder, [*data.documents, *data.queries])
    ks = {pooling: settings.dimensions(encoder, pooling) for pooling in poolings}
    searches = Searches.of(config, data)

    # Each unique text is encoded once, for all poolings in one forward pass.
    say(f"{data.name}: {len(data.documents):,} documents, {len(data.queries):,} queries")
    encoding = time.perf_counter()
    number = {text: i for i, text in enumerate(dict.fromkeys(itertools.chain(data.documents, data.queries)))}
    store = EmbeddingStore(config.cache or None)
    raw = encode(encoder, list(number), poolings, store=store)
    moments = {}
    if nli is not None:
        moments = nli_moments(encoder, nli, poolings, config.batch_size or None)
    seconds = time.perf_counter() - encoding
    encoded_in = common.encoding(seconds, len(number), nli, note="what is in the cache is not encoded again")
    if not distributed.is_writer():
        return

    run = Run(make_header(config, encoder, searches, encoded_in))
    yield run
    documents, queries = ([number[text] for text in side] for side in (data.documents, data.queries))
    bases: dict[tuple[str, str], np.ndarray] = {}  # reciprocal ranks of raw vectors, by pooling and index
    notes = Notes()
    for pooling in poolings:
        vectors = Vectors(encoder.name, pooling, raw[pooling][documents], raw[pooling][queries])
        for whitening in settings.whitenings:
            for setting, fitted in whitened(whitening, vectors, moments.get(pooling), settings, ks[pooling], notes):
                for row, index, ranks in score(setting, fitted, vectors, searches):
                    base = bases.get((pooling, row.backend))
                    run.rows.append(Record(row | intervals(ranks, base, config.bootstrap, config.seed)))
                    if whitening == "none":
                        bases[pooling, row.backend] = ranks
                    for note in index.notes:
                        notes.add(note, row.backend, pooling)
                    run = run.with_header(warnings=notes.texts())
                    yield run


def whitened(
    whitening: str, vectors: Vectors, nli: Moments | None, settings: Settings, ks: Sequence[int], notes: Notes
) -> Iterator[tuple[dict[str, Any], Whitening | None]]:
    """The fields of every setting of a pooling and a whitening, with the map for the index.

    `target` is fitted on documents and queries, `documents` on the documents alone. Without whitening there is one
    setting at the full dimension.
    """
    setting = {"model": vectors.model, "pooling": vectors.pooling, "whitening": whitening}
    setting |= {"transductive": whitening == "target"}
    if whitening == "none":
        yield setting | {"k": vectors.documents.shape[1], **row_fields(RAW), "n_fit": 0}, None
        return
    with notes.collect(whitening, vectors.pooling):
        fitted_on = nli if whitening == "nli" else Moments().update(vectors.documents)
        if whitening == "target":
            fitted_on.update(vectors.queries)
        gamma = max(parameters["gamma"] for parameters in settings.parameters)
        fitted = Whitening.from_moments(fitted_on, n_components=max(ks), gamma=gamma)
    for parameters, k in itertools.product(settings.parameters, ks):
        with notes.collect(whitening, vectors.pooling):
            basis = fitted.with_params(n_components=k, **parameters)
        yield setting | {"k": k, **row_fields(parameters), "n_fit": int(basis.n_samples_seen_)}, basis


def score(
    setting: Mapping[str, Any], whitening: Whitening | None, vectors: Vectors, searches: Searches
) -> Iterator[tuple[Record, Index | FaissIndex, np.ndarray]]:
    """For each backend a row of results, its index, and the reciprocal rank of each query with gold."""
    data = searches.data
    first = min(FIRST, len(data.documents))
    deep = min(max(DEEP, searches.config.rerank_depth) + bool(data.own_documents), len(data.documents))
    exact: dict[str, measure.Exact] = {}
    for backend in searches.backends:
        index = searches.index(backend, vectors.documents, whitening)
        ids = data.others(index.search(vectors.queries, deep)[1])
        seconds = measure.batched_seconds(index, vectors.queries, first)
        # The exact reference is another implementation than the one under test.
        reference = "faiss-flat" if backend == "jax" and importlib.util.find_spec("faiss") else "jax"
        if reference not in exact:
            stored = index.prepare(vectors.documents)
            exact[reference] = measure.Exact(stored, index.prepare(vectors.queries[searches.exact]), first, reference)
        one_by_one = vectors.queries[searches.single][:, None]
        single = measure.single_milliseconds(lambda query, index=index: index.search(query, first), one_by_one)
        scores = of_ranks(ids, data.gold)
        row = Record(
            dict(setting) | {name: float(values.mean()) for name, values in scores.items()},
            mrr_interval=None,
            versus_raw=None,
            backend=backend,
            options=Record(index.options),
            index_recall_at_10=exact[reference].recall(ids[searches.exact][:, :first]),
            time_ms=1000 * seconds / len(vectors.queries),
            queries_per_second=len(vectors.queries) / seconds,
            single_p50_ms=single[0],
            single_p99_ms=single[1],
            memory_gib=index.size * 4 * index.dimension / 2**30,
            index_bytes=index.nbytes,
            build_seconds=index.build_seconds,
            peak_rss_gb=peak_memory(),
            reranked=rerank(ids, searches, searches.reranker) if searches.reranker else None,
        )
        say(f"{setting_name(row)}, {backend}: MRR@10 {row.mrr_at_10:.4f}, {row.time_ms:.4f} ms per query")
        yield row, index, scores["mrr_at_10"]


def rerank(ids: np.ndarray, searches: Searches, reranker: CrossEncoder) -> Record:
    """The first results of queries with gold, in their order and in the cross-encoder's order."""
    scored, queries, gold = measure.sample_queries(searches.data, searches.config.rerank_queries)
    candidates = ids[scored, : searches.config.rerank_depth]
    documents = searches.data.documents
    reranker.rerank(queries[:20], documents, candidates[:20])  # nothing is compiled while the clock runs
    start = time.perf_counter()
    _, ordered = reranker.rerank(queries, documents, candidates)
    seconds = time.perf_counter() - start
    names = ("mrr_at_10", "ndcg_at_10")
    before, after = (of_ranks(x, gold) for x in (candidates, ordered))
    gain = {name: estimate(after[name] - before[name], searches.config.bootstrap, 0) for name in names}
    return Record(
        model=reranker.name,
        depth=candidates.shape[1],
        queries=len(queries),
        before=Record({name: float(before[name].mean()) for name in names}),
        after=Record({name: float(after[name].mean()) for name in names}),
        gain=Record(gain),
        ms=1000 * seconds / len(queries),
    )


def intervals(ranks: np.ndarray, raw: np.ndarray | None, resamples: int, seed: int) -> dict[str, Record]:
    """The MRR with its bootstrap interval and, given the ranks of the raw row, the paired difference."""
    if not resamples or not len(ranks):
        return {}
    compared = {"mrr_interval": ranks} | ({} if raw is None else {"versus_raw": ranks - raw})
    return {name: estimate(values, resamples, seed) for name, values in compared.items()}


def make_header(config: Retrieval, encoder: Encoder, searches: Searches, encoding: Record) -> Record:
    """The header of the run."""
    data = searches.data
    return common.make_header(
        "eval.retrieval",
        f"Retrieval on {data.name}: {encoder.name}",
        config,
        encoder,
        encoding,
        dataset=common.dataset(data, len(data.queries)),
        protocol={
            "max_length": encoder.max_length,
            "quality": f"first {DEEP} results of all queries; means over the queries with gold",
            "time": f"one batched search for {FIRST} results of all queries, already whitened, over their number",
            "index_recall": f"against exact search for {len(searches.exact):,} queries, ties counted as found",
            "single": f"{len(searches.single):,} queries one after another",
            "memory": "documents × k × 4 bytes / 2^30",
            "target": f"fitted on documents and queries; {DOCUMENTS}: fitted on these alone",
        },
    )


__all__ = ["TABLES", "VIEWS", "evaluator", "main"]
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/retrieval.py", Retrieval)
