"""Retrieval with an encoder, raw and whitened: quality, time and memory of every setting on every index.

`python -m eval.retrieval [--config configs/retrieval.py] [--config.key=value ...]`

Texts are encoded once and kept in the cache, so that a killed run resumes where it stopped. Writes
`run.jsonl`, `results.md` and plots to the folder `out`. With `--distributed` several processes encode,
each its share, and the first one searches and writes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from configs import launch
from configs.settings import Retrieval
from eval import common, measure, published
from eval.common import Notes, Settings, load_encoder, say
from eval.driver import driven
from eval.encoding import encode, expand_poolings, first_plain, nli_moments
from eval.faiss_indexes import OPTIONS, FaissIndex
from eval.intervals import estimate
from eval.machine import peak_memory
from eval.report.retrieval import TABLES, VIEWS
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, RAW, choices, row_fields, setting_name
from eval.words import CENTRED, TFIDF, count, fits, matching_fit, weigh
from jaxwhiten import CrossEncoder, Encoder, Moments, Whitening, metrics
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.runtime import distributed
from jaxwhiten.scoring import nearest
from jaxwhiten.search import Index, build_index

BACKENDS = ("faiss-flat", "jax", *OPTIONS)
DOCUMENTS = "documents"  # a fit that sees no query, as an index is built
# results of the timed search, and of the one that quality is measured on
FIRST = 10
DEEP = 100
UNCOMPARED = dict.fromkeys(("mrr_interval", "versus_raw", "versus_words"))  # of a row without bootstrap or bases
_UNTIMED = ("time_with_whitening_ms", "single_p50_ms", "single_p99_ms", "single_text_p50_ms", "single_text_p99_ms")


@dataclass(frozen=True)
class Vectors:
    """Raw vectors of documents and queries under one pooling."""

    model: str
    pooling: str
    documents: np.ndarray
    queries: np.ndarray


@dataclass(frozen=True)
class Searches:
    """The data of a search, the rows of queries for its parts, and the options of each backend."""

    data: RetrievalData
    exact: np.ndarray  # queries that are searched exactly, too
    single: np.ndarray  # queries that are searched one by one
    options: Mapping[str, Mapping[str, Any]]
    reranker: CrossEncoder | None = None
    depth: int = DEEP
    reranked: int = 0  # queries with gold that are re-ranked; 0 for all
    resamples: int = 0

    @classmethod
    def read(cls, config: Retrieval, data: RetrievalData) -> Searches:
        """What a config asks for."""
        reranker = None
        if config.rerank:
            reranker = CrossEncoder.from_pretrained(config.rerank)
        return cls(
            data,
            measure.sample_rows(len(data.queries), config.exact_queries),
            measure.sample_rows(len(data.queries), config.single_queries),
            {name: backend_options(name, config) for name in choices("backends", config.backends, BACKENDS)},
            reranker,
            config.rerank_depth,
            config.rerank_queries,
            config.bootstrap,
        )


def evaluator(config: Retrieval) -> Iterator[Run]:
    """The run after each setting and index."""
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it announces how it was loaded
    settings = Settings.read(config, extra=(DOCUMENTS,))

    # Data and model are read, and every setting checked, before anything slow starts.
    data = load_search(config.dataset, settings.data_dir)
    nli = settings.load_nli()
    encoder = load_encoder(config, first_plain(settings.poolings))
    baseline = None
    if config.versus:
        baseline = Encoder.from_pretrained(config.versus, max_length=config.max_length or None)
    poolings = expand_poolings(settings.poolings, encoder, [*data.documents, *data.queries])
    ks = {pooling: settings.dimensions(encoder, pooling) for pooling in poolings}
    searches = Searches.read(config, data)

    # Each unique text is encoded once, for all poolings in one forward pass.
    say(f"{data.name}: {len(data.documents):,} documents, {len(data.queries):,} queries")
    encoding = time.perf_counter()
    number = {text: i for i, text in enumerate(dict.fromkeys(itertools.chain(data.documents, data.queries)))}
    store = EmbeddingStore(config.cache or None)
    raw = encode(encoder, list(number), poolings, store=store)
    texts = list(number)
    moments = {}
    if nli is not None:
        texts += nli.sentences
        moments = nli_moments(encoder, nli, poolings, config.batch_size or None)
    seconds = time.perf_counter() - encoding
    encoded_in = common.encoding(seconds, len(number), nli, note="what is in the cache is not encoded again")
    if not distributed.is_writer():
        return

    run = Run(make_header(config, encoder, searches, encoded_in, settings))
    yield run
    documents, queries = ([number[text] for text in side] for side in (data.documents, data.queries))
    bases = Bases(config)
    for row, ranks in word_rows(settings, texts, len(number), documents, queries, encoder, data):
        run.rows.append(bases.compared(row, ranks))
    if baseline is not None:
        versus = store.encode(baseline, list(number))
        _, ids = build_index(versus[documents], "jax").search(versus[queries], min(FIRST + 1, len(documents)))
        ranks = metrics.reciprocal_ranks(data.others(ids), data.gold, FIRST)
        bases.raw = dict.fromkeys(itertools.product(poolings, searches.options), ranks)
    # the best raw and the best whitened index
    notes = Notes()
    best = dict[bool, tuple[Record, Index | FaissIndex]]()
    for pooling in poolings:
        vectors = Vectors(encoder.name, pooling, raw[pooling][documents], raw[pooling][queries])
        for whitening in (*settings.whitenings, *[CENTRED] * ("centred" in settings.baselines)):
            for setting, fitted in whitened(whitening, vectors, moments.get(pooling), settings, ks[pooling], notes):
                for row, index, ranks in score(setting, fitted, vectors, encoder, searches):
                    run.rows.append(bases.compared(row, ranks))
                    is_raw = fitted is None
                    if config.examples and (is_raw not in best or best[is_raw][0].mrr_at_10 < row.mrr_at_10):
                        best[is_raw] = row, index
                    for note in index.notes:
                        notes.add(note, row.backend, pooling)
                    run = run.with_header(warnings=notes.texts())
                    yield run
    matches = published.compare_retrieval(run.rows, run.header.dataset)
    yield run.with_header(published=matches, examples=examples(config.examples, best.values(), encoder, data.documents))


@dataclass
class Bases:
    """The ranks that others are compared with: of raw vectors by pooling and index, and of TF-IDF by its fit."""

    config: Retrieval
    raw: dict[tuple[str, str], np.ndarray] = dataclasses.field(default_factory=dict)
    words: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def compared(self, row: Record, ranks: np.ndarray) -> Record:
        """The row with the interval of its MRR and its paired differences; a raw row and TF-IDF become bases."""
        key = row.pooling, row.backend
        words = None
        if row.pooling != TFIDF:
            words = matching_fit(self.words, row.whitening)
        fields = intervals(ranks, self.raw.get(key), self.config.bootstrap, self.config.seed, words)
        if row.pooling == TFIDF:
            self.words[row.whitening] = ranks
        elif row.whitening == "none":
            self.raw[key] = ranks
        return Record(row | fields)


def word_rows(
    settings: Settings,
    texts: Sequence[str],
    searched: int,
    documents: Sequence[int],
    queries: Sequence[int],
    encoder: Encoder,
    data: RetrievalData,
) -> Iterator[tuple[Record, np.ndarray]]:
    """Rows of the baselines of words, fitted like the whitenings; the first `searched` texts are searched."""
    for name in settings.words:
        counts = count(name, texts, encoder)
        fitted_on = {DOCUMENTS: documents}  # as BM25 is defined
        if name != "bm25":
            rows_by_fit = fitted_on | {"target": [*documents, *queries]}
            fitted_on = fits(settings.whitenings, rows_by_fit, searched, counts.shape[0])
        yield from score_words(name, counts, documents, queries, fitted_on, data)


def whitened(
    whitening: str, vectors: Vectors, nli: Moments | None, settings: Settings, ks: Sequence[int], notes: Notes
) -> Iterator[tuple[dict[str, Any], Whitening | None]]:
    """The fields of every setting of a pooling and a whitening, with the map for the index.

    `target` is fitted on documents and queries, `documents` on the documents alone. Without whitening, or with centring
    alone, there is one setting at the full dimension.
    """
    setting = {"model": vectors.model, "pooling": vectors.pooling, "whitening": whitening}
    setting |= {"transductive": whitening in ("target", CENTRED)}
    if whitening == "none":
        yield setting | {"k": vectors.documents.shape[1], **row_fields(RAW), "n_fit": 0}, None
        return
    if whitening == CENTRED:
        basis = Whitening(gamma=0.0).fit(np.concatenate([vectors.documents, vectors.queries]))
        fields = {"k": basis.kernel[0].shape[1], **NO_WHITENING, "n_fit": int(basis.n_samples_seen_)}
        yield setting | fields, basis
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
    setting: Mapping[str, Any], whitening: Whitening | None, vectors: Vectors, encoder: Encoder, searches: Searches
) -> Iterator[tuple[Record, Index | FaissIndex, np.ndarray]]:
    """For each backend a row of results, its index, and the reciprocal rank of each query with gold."""
    data = searches.data
    n_documents = len(searches.data.documents)
    first = min(FIRST, n_documents)
    deep = min(max(DEEP, searches.depth) + (data.own is not None), n_documents)
    exact: dict[str, measure.Exact] = {}
    view = encoder.with_pooling(vectors.pooling).without_code().queries
    for backend, options in searches.options.items():
        build = FaissIndex if backend in OPTIONS else build_index
        index = build(vectors.documents, backend, whitening=whitening, **options)
        prepared = index.prepare(vectors.queries)
        ids = data.others(index.search(prepared, deep, prepared=True)[1])
        seconds = measure.batched_seconds(index, prepared, first, prepared=True)
        seconds_raw = measure.batched_seconds(index, vectors.queries, first, prepared=False)
        # The exact reference is another implementation than the one under test.
        reference = "jax"
        if backend == "jax" and importlib.util.find_spec("faiss"):
            reference = "faiss-flat"
        if reference not in exact:
            stored = index.prepare(vectors.documents)
            exact[reference] = measure.Exact(stored, prepared[searches.exact], first, reference)
        one_by_one = vectors.queries[searches.single][:, None]
        single = measure.single_milliseconds(lambda query, index=index: index.search(query, first), one_by_one)
        single_text = measure.single_milliseconds(
            lambda i, index=index: index.search(view([data.queries[i]]), first), searches.single
        )
        ranks = metrics.reciprocal_ranks(ids, data.gold, FIRST)
        reranked = None
        if searches.reranker is not None:
            reranked = rerank(ids, searches)
        row = Record(
            dict(setting) | UNCOMPARED | quality(ids, ranks, data.gold),
            backend=backend,
            options=Record(index.options),
            index_recall_at_10=exact[reference].recall(ids[searches.exact][:, :first]),
            time_ms=1000 * seconds / len(prepared),
            time_with_whitening_ms=1000 * seconds_raw / len(prepared),
            queries_per_second=len(prepared) / seconds,
            single_p50_ms=single[0],
            single_p99_ms=single[1],
            single_text_p50_ms=single_text[0],
            single_text_p99_ms=single_text[1],
            memory_gib=index.size * 4 * index.dimension / 2**30,
            index_bytes=index.nbytes,
            build_seconds=index.build_seconds,
            peak_rss_gb=peak_memory(),
            reranked=reranked,
        )
        say(f"{setting_name(row)}, {backend}: MRR@10 {row.mrr_at_10:.4f}, {row.time_ms:.4f} ms per query")
        yield row, index, ranks


def score_words(
    name: str,
    counts: csr_matrix,
    documents: Sequence[int],
    queries: Sequence[int],
    fitted_on: Mapping[str, Sequence[int]],
    data: RetrievalData,
) -> Iterator[tuple[Record, np.ndarray]]:
    """For each fit a row of a baseline of `eval.words`, and the reciprocal rank of each query with gold.

    Documents, queries and texts of the fit are rows of the counts. No query is searched alone.
    """
    for whitening, rows in fitted_on.items():
        started = time.perf_counter()
        as_queries, as_documents = weigh(name, counts, counts[rows])
        stored = as_documents[documents]
        query_vectors = as_queries[queries]
        built = time.perf_counter()
        ids = data.others(nearest(query_vectors, stored, min(DEEP + 1, len(documents))))[:, :DEEP]
        seconds = time.perf_counter() - built
        size = stored.data.nbytes + stored.indices.nbytes + stored.indptr.nbytes
        ranks = metrics.reciprocal_ranks(ids, data.gold, FIRST)
        row = Record(
            NO_WHITENING | UNCOMPARED | quality(ids, ranks, data.gold) | dict.fromkeys(_UNTIMED, math.nan),
            model="words",
            pooling=name,
            whitening=whitening,
            k=counts.shape[1],
            n_fit=len(rows),
            transductive=whitening == "target",
            backend="sparse",
            options=Record(),
            index_recall_at_10=1.0,
            time_ms=1000 * seconds / len(queries),
            queries_per_second=len(queries) / seconds,
            memory_gib=size / 2**30,
            index_bytes=size,
            build_seconds=built - started,
            peak_rss_gb=peak_memory(),
            reranked=None,
        )
        say(f"{setting_name(row)}: MRR@10 {row.mrr_at_10:.4f}")
        yield row, ranks


def quality(ids: np.ndarray, ranks: np.ndarray, gold: metrics.Gold) -> dict[str, float]:
    """The quality figures of a row."""
    mrr = math.nan
    if len(ranks):
        mrr = float(ranks.mean())
    return {
        "mrr_at_10": mrr,
        **{f"recall_at_{k}": metrics.recalls(ids, gold, k).mean() for k in (1, 10, 100)},
        "ndcg_at_10": metrics.discounted_gains(ids, gold, 10).mean(),
    }


def rerank(ids: np.ndarray, searches: Searches) -> Record:
    """The first results of queries with gold, in their order and in the cross-encoder's order."""
    scored, queries, gold = measure.sample_queries(searches.data, searches.reranked)
    candidates = ids[scored, : searches.depth]
    documents = searches.data.documents
    searches.reranker.rerank(queries[:20], documents, candidates[:20])  # nothing is compiled while the clock runs
    start = time.perf_counter()
    _, ordered = searches.reranker.rerank(queries, documents, candidates)
    seconds = time.perf_counter() - start
    measures = {"mrr_at_10": metrics.reciprocal_ranks, "ndcg_at_10": metrics.discounted_gains}
    before, after = ({name: score(x, gold, FIRST) for name, score in measures.items()} for x in (candidates, ordered))
    means = [Record({name: float(score.mean()) for name, score in figures.items()}) for figures in (before, after)]
    gain = {name: estimate(after[name] - values, searches.resamples, 0) for name, values in before.items()}
    return Record(
        model=searches.reranker.name,
        depth=candidates.shape[1],
        queries=len(queries),
        before=means[0],
        after=means[1],
        gain=Record(gain),
        ms=1000 * seconds / len(queries),
    )


def intervals(
    ranks: np.ndarray, raw: np.ndarray | None, resamples: int, seed: int, words: np.ndarray | None = None
) -> dict[str, Record]:
    """The MRR with its bootstrap interval and, given the ranks of the raw row or of TF-IDF, the paired differences."""
    if not resamples or not len(ranks):
        return {}
    bases = {"versus_raw": raw, "versus_words": words}
    compared = {"mrr_interval": ranks} | {name: ranks - base for name, base in bases.items() if base is not None}
    return {name: estimate(values, resamples, seed) for name, values in compared.items()}


def backend_options(backend: str, config: Retrieval) -> dict[str, Any]:
    """The options of a backend that the config names."""
    return {name: getattr(config, name) for name in OPTIONS.get(backend, ())}


def examples(
    queries: Sequence[str],
    best: Iterable[tuple[Record, Index | FaissIndex]],
    encoder: Encoder,
    documents: Sequence[str],
) -> list[Record]:
    """The first results of a few queries from each kept index."""
    if not queries:
        return []
    records = []
    for row, index in best:
        view = encoder.with_pooling(row.pooling).without_code().queries
        scores, ids = index.search(view(list(queries)), min(3, index.size))
        for query, *of_query in zip(queries, ids.tolist(), scores.tolist(), strict=True):
            setting = {name: row[name] for name in ("pooling", "whitening", "k", "backend")}
            hits = [Record(id=id, score=score, text=documents[id]) for id, score in zip(*of_query, strict=True)]
            records.append(Record(setting, query=query, hits=hits))
    return records


def make_header(
    config: Retrieval, encoder: Encoder, searches: Searches, encoding: Record, settings: Settings
) -> Record:
    """The header of the run."""
    data = searches.data
    return common.make_header(
        "eval.retrieval",
        f"Retrieval on {data.name}: {encoder.name}",
        config,
        encoder,
        encoding,
        dataset=common.dataset(data, len(data.queries)),
        examples=(),
        protocol={
            "max_length": encoder.max_length,
            "quality": f"first {DEEP} results of all queries; means over the queries with gold",
            "time": f"one batched search for {FIRST} results of all queries, already whitened, over their number",
            "time_with_whitening": "the same from raw vectors, whitened inside the index",
            "index_recall": f"against exact search for {len(searches.exact):,} queries, ties counted as found",
            "single": f"{len(searches.single):,} queries one after another",
            "memory": "documents × k × 4 bytes / 2^30",
            "target": f"fitted on documents and queries; {DOCUMENTS}: fitted on these alone",
            **settings.protocol,
        },
    )


__all__ = ["TABLES", "VIEWS", "evaluator", "main"]
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/retrieval.py", Retrieval)
