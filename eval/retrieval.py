"""Retrieval with an encoder, raw and whitened: quality, time and memory of every setting on every index.

`python -m eval.retrieval [--config configs/quora.py] [--config.key=value ...]`

Texts are encoded once and kept in the cache, so that a run that was killed goes on where it stopped. Writes
`results.json`, `run.json`, `results.md` and plots to the folder `out`. With `--distributed` several processes encode,
each its share, and the first one searches and writes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from eval import measure
from eval.common import machine, make_folder, now, say, versions
from eval.encoding import expand_poolings, first_plain, nli_moments, pooling_names, show_progress
from eval.published import retrieval as published
from eval.settings import choices, fractions, integers
from jaxwhiten import Encoder, Moments, Whitening, metrics, report
from jaxwhiten.commands.launch import run
from jaxwhiten.datasets import load_nli
from jaxwhiten.datasets.named import load_retrieval
from jaxwhiten.datasets.retrieval import RetrievalData
from jaxwhiten.encoding.store import EmbeddingStore, text_fingerprint
from jaxwhiten.errors import InputError
from jaxwhiten.metrics import bootstrap
from jaxwhiten.report import retrieval as views
from jaxwhiten.runtime import distributed
from jaxwhiten.search import BACKENDS, Index, build_index, encoding_of, search_text

WHITENINGS = ("none", "target", "nli")
LEVEL = 0.95  # of the intervals
FIRST, DEEP = 10, 100  # results of the timed search, and of the one that quality is measured on

Row = dict[str, Any]


@dataclass(frozen=True)
class Vectors:
    """Raw vectors of documents and queries under one pooling."""

    documents: np.ndarray
    queries: np.ndarray


@dataclass(frozen=True)
class Protocol:
    """How much is searched, besides the whole."""

    exact: np.ndarray  # queries that are searched exactly, too
    single: np.ndarray  # queries that are searched one by one
    options: Mapping[str, Mapping[str, Any]]  # of each backend


def main(config: ConfigDict) -> None:
    started = time.perf_counter()
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it announces how it was loaded
    poolings = pooling_names(config.poolings)
    whitenings = choices("whitening", config.whitening, WHITENINGS)
    backends = choices("backends", config.backends, tuple(BACKENDS))
    knobs = list(itertools.product(fractions("beta", config.beta), fractions("gamma", config.gamma)))
    out = Path(config.out)
    if distributed.is_writer():
        make_folder(out)

    # Data and model are read, and every setting checked, before anything slow starts.
    data_dir = config.data_dir or None
    data = load_retrieval(config.dataset, data_dir)
    nli = load_nli(data_dir, two_way="keep") if "nli" in whitenings else None
    encoder = Encoder.from_pretrained(
        config.model,
        pooling=first_plain(poolings),
        max_length=config.max_length,
        dtype=config.dtype,
        revision=config.revision or None,
    )
    poolings = expand_poolings(poolings, encoder, [*data.documents, *data.queries])
    ks = {pooling: _dimensions(integers("ks", config.ks), encoder, pooling) for pooling in poolings}
    protocol = Protocol(
        measure.sample_rows(len(data.queries), config.exact_queries),
        measure.sample_rows(len(data.queries), config.single_queries),
        {name: _options(name, config) for name in backends},
    )

    say(f"{data.name}: {len(data.documents):,} documents, {len(data.queries):,} queries")
    encoding = time.perf_counter()
    vectors = encode(encoder, data, poolings, config.cache)
    of_nli = nli_moments(encoder, nli, poolings, config.batch_size or None) if nli is not None else {}
    encoding = time.perf_counter() - encoding
    if not distributed.is_writer():
        return

    result = report.Run(_header(config, encoder, data, protocol, encoding))
    views.remove_views(out)
    raw_ranks: dict[tuple[str, str], np.ndarray] = {}
    kept: dict[bool, tuple[Row, Index]] = {}  # the best raw and the best whitened index, for the examples
    for pooling, whitening in itertools.product(poolings, whitenings):
        fitted = fit(whitening, vectors[pooling], of_nli.get(pooling), result.header["warnings"])
        # Without whitening there is one setting, at the full dimension.
        settings = [((0.0, 0.0), encoder.width(pooling))] if fitted is None else itertools.product(knobs, ks[pooling])
        for (beta, gamma), k in settings:
            setting = {"model": encoder.name, "pooling": pooling, "whitening": whitening, "k": k}
            setting |= {"beta": beta, "gamma": gamma, "transductive": whitening == "target"}
            inside = None
            if fitted is not None:
                with told(result.header["warnings"], f"{pooling}, {whitening}"):
                    inside = fitted.with_params(n_components=k, beta=beta, gamma=gamma)
            for row, index, ranks in score(setting, inside, vectors[pooling], data, encoder, protocol):
                raw = raw_ranks.setdefault((pooling, row["backend"]), ranks) if fitted is None else None
                against = raw_ranks.get((pooling, row["backend"])) if raw is None else None
                row |= intervals(ranks, against, config.bootstrap, config.seed)
                result.rows.append(row)
                best = kept.get(fitted is not None)
                if config.examples and (best is None or best[0]["mrr_at_10"] < row["mrr_at_10"]):
                    kept[fitted is not None] = row, index
                tell(result.header["warnings"], (f"{index.backend}: {note}" for note in index.notes))
                result.save(out)

    result.header["published"] = published.compare(result.rows, result.header["dataset"])
    result.header["examples"] = _examples(config.examples, kept.values(), encoder)
    result.header["seconds"] = time.perf_counter() - started
    result.header["machine"] = machine()
    result.header["complete"] = True
    result.save(out)
    print(views.as_text(result, views.write_retrieval(result, out)))


def encode(encoder: Encoder, data: RetrievalData, poolings: Sequence[str], cache: str) -> dict[str, Vectors]:
    """Raw vectors of documents and queries; every unique text is encoded once, in one pass for all poolings.

    Args:
      encoder: The encoder.
      data: Documents and queries.
      poolings: Poolings wanted.
      cache: Folder of the embedding store; empty for the default one.
    """
    number = {text: i for i, text in enumerate(dict.fromkeys(itertools.chain(data.documents, data.queries)))}
    texts = list(number)
    distributed.check_same("model and texts", [encoder.fingerprint, text_fingerprint(texts)])
    own = EmbeddingStore(cache or None).encode(
        encoder, distributed.share(texts), pooling=tuple(poolings), show_progress=show_progress()
    )
    found = {pooling: distributed.gather_rows(array) for pooling, array in own.items()}
    documents = np.fromiter((number[text] for text in data.documents), np.int64)
    queries = np.fromiter((number[text] for text in data.queries), np.int64)
    return {pooling: Vectors(array[documents], array[queries]) for pooling, array in found.items()}


def tell(notes: list[str], more: Iterable[str]) -> None:
    """Adds notes that are new."""
    notes += [note for note in dict.fromkeys(more) if note not in notes]


@contextlib.contextmanager
def told(notes: list[str], what: str) -> Iterator[None]:
    """Turns warnings into notes that begin with `what`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    tell(notes, (f"{what}: {warning.message}" for warning in caught))


def fit(whitening: str, vectors: Vectors, nli: Moments | None, notes: list[str]) -> Whitening | None:
    """The whitening of one setting; `target` is fitted on documents and queries. Warnings are added to `notes`."""
    if whitening == "none":
        return None
    with told(notes, whitening):
        moments = nli
        if whitening == "target":
            moments = Moments().update(vectors.documents).update(vectors.queries)
        return Whitening.from_moments(moments)


def score(
    setting: Mapping[str, Any],
    whitening: Whitening | None,
    vectors: Vectors,
    data: RetrievalData,
    encoder: Encoder,
    protocol: Protocol,
) -> Iterator[tuple[Row, Index, np.ndarray]]:
    """One row of results for each backend, and the index.

    Args:
      setting: What the row starts with.
      whitening: Put inside the index; None for raw vectors.
      vectors: Raw vectors.
      data: Texts and gold.
      encoder: Makes the single queries' vectors.
      protocol: Samples and options.

    Yields:
      The row, the index it was measured on, and the reciprocal rank of each query with gold.
    """
    first, deep = min(FIRST, len(data.documents)), min(DEEP, len(data.documents))
    exact: dict[str, measure.Exact] = {}
    for backend, options in protocol.options.items():
        index = build_index(
            vectors.documents,
            backend,
            whitening=whitening,
            encoding=encoding_of(encoder, setting["pooling"]),
            documents=data.documents,
            **options,
        )
        prepared = index.prepare(vectors.queries)
        _, ids = index.search(prepared, deep, prepared=True)
        seconds = measure.batched_seconds(index, prepared, first, prepared=True)
        seconds_raw = measure.batched_seconds(index, vectors.queries, first, prepared=False)
        # The exact reference is another implementation than the one under test.
        reference = "faiss-flat" if backend == "jax" and _installed("faiss") else "jax"
        if reference not in exact:
            stored = index.prepare(vectors.documents)
            exact[reference] = measure.Exact(stored, prepared[protocol.exact], first, reference)
        ranks = metrics.reciprocal_ranks(ids, data.gold, FIRST)
        row = {
            **setting,
            "n_fit": 0 if whitening is None else whitening.n_samples_seen_,
            "backend": backend,
            "options": index.options,
            "mrr_at_10": float(ranks.mean()) if len(ranks) else math.nan,
            **{f"recall_at_{k}": metrics.recall_at_k(ids, data.gold, k) for k in (1, 10, 100)},
            "ndcg_at_10": metrics.ndcg_at_k(ids, data.gold, 10),
            "index_recall_at_10": exact[reference].recall(ids[protocol.exact][:, :first]),
            "time_ms": 1000 * seconds / len(prepared),
            "time_with_whitening_ms": 1000 * seconds_raw / len(prepared),
            "queries_per_second": len(prepared) / seconds,
            "single_ms": measure.vector_latency(index, vectors.queries[protocol.single], first),
            "single_text_ms": measure.text_latency(index, encoder, [data.queries[i] for i in protocol.single], first),
            "memory_gib": index.vector_gib,
            "index_bytes": index.nbytes,
            "build_seconds": index.build_seconds,
            "peak_rss_gb": machine()["peak_rss_gb"],
        }
        say(
            f"{setting['pooling']}, {setting['whitening']}, k={setting['k']}, {backend}: MRR@10 {row['mrr_at_10']:.4f},"
            f" {row['time_ms']:.4f} ms a query"
        )
        yield row, index, ranks


def intervals(ranks: np.ndarray, raw: np.ndarray | None, resamples: int, seed: int) -> Row:
    """The bootstrap interval of the MRR and, given the raw row's ranks, the paired difference to it and its interval.

    Args:
      ranks: Reciprocal ranks of the queries with gold.
      raw: Those of the raw vectors of the same pooling and backend.
      resamples: How many; 0 for no intervals.
      seed: Of the resamples.
    """
    if not resamples or not len(ranks):
        return {}
    found: Row = {"mrr_interval": bootstrap.bootstrap_mean(ranks, resamples, seed, LEVEL)._asdict()}
    if raw is not None:
        ends = bootstrap.bootstrap_mean(ranks - raw, resamples, seed, LEVEL)._asdict()
        found["versus_raw"] = {"value": float((ranks - raw).mean()), **ends}
    return found


def _options(backend: str, config: ConfigDict) -> dict[str, Any]:
    """The options of a backend that the config names."""
    known = BACKENDS[backend].default_options[backend]
    return {name: config[name] for name in ("nlist", "nprobe") if name in known}


def _dimensions(ks: Sequence[int], encoder: Encoder, pooling: str) -> list[int]:
    """The dimensions asked for, 0 read as the full one, largest first."""
    width = encoder.width(pooling)
    for k in ks:
        if k > width:
            raise InputError(f"config.ks: {k} is more than the {width} dimensions of {encoder.name}, {pooling}.")
    return sorted({k or width for k in ks}, reverse=True)


def _installed(package: str) -> bool:
    try:
        __import__(package)
    except ImportError:
        return False
    return True


def _examples(queries: Sequence[str], kept: Iterable[tuple[Row, Index]], encoder: Encoder) -> list[Row]:
    """The first results of a few queries from each index kept."""
    found = []
    for row, index in kept if queries else ():
        setting = {name: row[name] for name in ("pooling", "whitening", "k", "backend", "transductive")}
        hits = search_text(index, encoder, list(queries), min(3, index.size))
        found += [
            {**setting, "query": query, "hits": [hit._asdict() for hit in of_query]}
            for query, of_query in zip(queries, hits, strict=True)
        ]
    return found


def _header(
    config: ConfigDict, encoder: Encoder, data: RetrievalData, protocol: Protocol, seconds: float
) -> dict[str, Any]:
    """What `run.json` says about the rows."""
    dataset = {"name": data.name, "documents": len(data.documents), "queries": len(data.queries)}
    return {
        "program": "eval.retrieval",
        "title": f"Retrieval on {data.name}: {encoder.name}",
        "complete": False,
        "date": now(),
        "model": encoder.name,
        "fingerprint": encoder.fingerprint,
        "dimension": encoder.dimension,
        "dtype": encoder.dtype,
        "dataset": {**dataset, "counts": dict(data.counts), "conflicts": list(data.conflicts)},
        "protocol": {
            "max_length": encoder.max_length,
            "quality": f"first {DEEP} results of all queries; means over the queries with gold",
            "time": f"one batched search for {FIRST} results of all queries, already whitened, over their number",
            "time_with_whitening": "the same from raw vectors, whitened inside the index",
            "index_recall": f"against exact search for {len(protocol.exact):,} queries, ties counted as found",
            "single": f"{len(protocol.single):,} queries one after another",
            "memory": "documents × k × 4 bytes / 2^30",
            "target": "fitted on documents and queries",
        },
        "seed": config.seed,
        "encoding": {"seconds": seconds, "note": "0 where the vectors were in the cache"},
        "machine": machine(),
        "versions": versions() | {name: metadata.version(name) for name in _faiss_packages()},
        "config": config.to_dict(),
        "warnings": [],
    }


def _faiss_packages() -> list[str]:
    return [d for d in ("faiss-cpu", "faiss-gpu") if any(True for _ in metadata.distributions(name=d))]


if __name__ == "__main__":
    run(main, "configs/quora.py")
