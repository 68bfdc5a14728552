"""Quality of search against bytes per vector: every code of the documents, compared with float32 and each other.

`python -m eval.codes [--config configs/codes.py] [--config.key=value ...]`

Queries stay float32 and documents are coded; a code at the end of the model is ignored. Vectors have unit length, and
for each number in `gamma` they are whitened by that γ first. Codes are fitted on the documents. With several `seeds`
the scores of a spectrum code are means over as many sets of codebooks. Writes `run.jsonl`, `results.md` and a plot to
the folder `out`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxwhiten
from configs import launch
from configs.settings import Codes
from eval import common, measure
from eval.common import Notes, load_encoder, make_folder, say
from eval.comparators import COMPARATORS, Comparator
from eval.driver import driven
from eval.intervals import estimate
from eval.report.codes import TABLES, VIEWS
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, choices, fractions, integers, words
from jaxwhiten import Encoder, Moments, Whitening, metrics, scoring
from jaxwhiten.codes import CODES, Code, SpectrumCode, make_code
from jaxwhiten.datasets import RetrievalData
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import InputError
from jaxwhiten.search import Index, build_index
from jaxwhiten.whitening import choose_gamma

RAW = "float32"
SPECTRUM = "spectrum"
FIRST = 10
DEEP = 100


@dataclass(frozen=True)
class Searched:
    """Raw vectors of a search, and its data and gold."""

    data: RetrievalData
    documents: np.ndarray
    queries: np.ndarray
    gold: metrics.Gold


class Scored(NamedTuple):
    """The first results of a code, the reciprocal ranks of queries, and those after rescoring."""

    ids: np.ndarray
    ranks: np.ndarray
    rescored: np.ndarray | None


@dataclass(frozen=True)
class Fit:
    """A fit on the documents: γ of the whitening before the code, None for unchanged vectors.

    `whitening` is that of γ; without one it only turns the vectors to their principal axes, for `Comparator`.
    """

    gamma: float | None
    whitening: Whitening

    @classmethod
    def of(cls, documents: np.ndarray, gamma: float | None) -> Fit:
        with Notes().collect("", ""):  # few rows are expected: small k and γ are compared
            if gamma is None:
                moments = Moments().update(jaxwhiten.normalize(documents))
                return cls(gamma, Whitening.from_moments(moments, beta=0.0, gamma=0.0))
            return cls(gamma, Whitening.from_moments(Moments().update(documents), gamma=gamma))

    def prepare(self, name: str, x: np.ndarray) -> np.ndarray:
        """Raw vectors as a code gets them: of unit length, and whitened if γ is given and the code follows from it."""
        if self.gamma is not None and name == SPECTRUM:
            x = self.whitening.transform(x)
        return jaxwhiten.normalize(x)

    def code(self, name: str, size: int, documents: np.ndarray, seed: int = 0) -> Code:
        """A code that needs no training, fitted."""
        if name != SPECTRUM:
            return make_code(name).fit(self.prepare(name, documents))
        code = SpectrumCode(bytes=size)
        code._seed = seed
        return code.fit(self.prepare(name, documents) if self.gamma is None else self.whitening)


def evaluator(config: Codes) -> Iterator[Run]:
    """The run after each code."""
    names = choices("codes", config.codes, (*CODES, *COMPARATORS))
    names = tuple(sorted(names, key=lambda name: name != SPECTRUM))  # the others are compared with it
    sizes = sorted(integers("bytes", config.bytes))
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    encoder = load_encoder(config, config.pooling)
    encoder = encoder.with_view(encoder.view.uncoded)
    gammas = whitenings(config.gamma, encoder.view.tuned)
    started = time.perf_counter()
    searched = encode(config, encoder, data)
    seconds = time.perf_counter() - started
    say(f"{data.name}: {len(searched.documents):,} documents, {len(searched.queries):,} queries")

    run = Run(make_header(config, encoder, searched, seconds))
    yield run
    raw: Scored | None = None
    seen: set[tuple[float | None, str, int]] = set()
    for gamma in gammas:
        fit = Fit.of(searched.documents, gamma)
        spectra: dict[int, np.ndarray] = {}
        for name, size in [*[(RAW, 0)] * (raw is None), *settings(names, sizes)]:
            try:
                row, scored = measured(name, size, fit, searched, encoder, config, raw)
            except InputError as error:
                say(f"{name}, {size} bytes: left out ({error})")
                continue
            if (key := (row["gamma"], name, row["bytes"])) in seen:  # several sizes of RaBitQ give the same bytes
                continue
            seen.add(key)
            raw = raw or scored
            if name == SPECTRUM:
                spectra[row["bytes"]] = scored.ranks
            peer = None if name in (SPECTRUM, RAW) else at_equal_bytes(row["bytes"], spectra)
            run.rows.append(Record(row | intervals(scored, raw, peer, config)))
            say(f"{name}, {row['bytes']} bytes: MRR@10 {row['mrr_at_10']:.4f}")
            yield run


def encode(config: Codes, encoder: Encoder, data: RetrievalData) -> Searched:
    """All vectors; queries are limited to those with gold, as many as the config asks for."""
    store = EmbeddingStore(config.cache or None)
    rows, queries, gold = measure.sample_queries(data, config.queries)
    vectors = (
        np.asarray(store.encode(encoder.view.in_role(role), side))
        for side, role in ((data.documents, "document"), (queries, "query"))
    )
    return Searched(data.of(rows), *vectors, gold)


def whitenings(value: object, tuned: bool) -> tuple[float | None, ...]:
    """The γ of each whitening before the codes; None for none, which `auto` takes for a fine-tuned encoder."""
    gammas: list[float | None] = []
    for word in words("gamma", value):
        if word == "none" or (word == "auto" and tuned):
            gammas.append(None)
        elif word == "auto":
            gammas.append(choose_gamma(Moments(), tuned).gamma)
        else:
            gammas += fractions("gamma", word)
    return tuple(dict.fromkeys(gammas))


def settings(names: tuple[str, ...], sizes: list[int]) -> Iterator[tuple[str, int]]:
    """Every code at every size; codes of one size at that size."""
    for name in names:
        yield from ((name, size) for size in ([0] if name in CODES and name != SPECTRUM else sizes))


def measured(
    name: str, size: int, fit: Fit, searched: Searched, encoder: Encoder, config: Codes, raw: Scored | None
) -> tuple[dict[str, Any], Scored]:
    """A row's fields, and the scores of each query; `raw` is what float32 scored."""
    started = time.perf_counter()
    index, queries, count = coded(name, size, fit, searched)
    built = time.perf_counter() - started
    hits = [first(index, queries, searched)]
    for seed in range(1, config.seeds if name == SPECTRUM else 1):
        hits.append(first(*coded(name, size, fit, searched, seed)[:2], searched))
    scores = [scoring.of_ranks(ids, searched.gold) for ids in hits]
    ranks = np.mean([of_seed["mrr_at_10"] for of_seed in scores], axis=0)
    rescored = None
    if config.rescore and name != RAW:
        rescored = scoring.of_ranks(reordered(hits[0][:, : config.rescore], searched), searched.gold)["mrr_at_10"]
    row: dict[str, Any] = NO_WHITENING | {
        "model": encoder.name,
        "pooling": encoder.view.head.name,
        "whitening": "none" if name == RAW else "documents",
        "k": queries.shape[1],
        "gamma": fit.gamma if name in (SPECTRUM, *COMPARATORS) else None,
        "n_fit": 0 if name == RAW else len(searched.documents),
        "transductive": False,
        "code": name,
        "bytes": count,
        "mrr_at_10": float(ranks.mean()),
        **{name: _mean(of_seed[name] for of_seed in scores) for name in ("recall_at_10", "ndcg_at_10")},
        "float32_recall_at_10": None,
        "rescored_mrr_at_10": None if rescored is None else float(rescored.mean()),
        "build_us": 1e6 * built / index.size,
        "distortion": None,  # the share of the variance that a spectrum code expects to lose
        "bound": None,  # Shannon's, for any code of as many bytes
    }
    if raw is not None:
        nearest = list(raw.ids[:, :FIRST])
        row["float32_recall_at_10"] = _mean(metrics.recalls(ids, nearest, FIRST) for ids in hits)
    if name == SPECTRUM:
        code = fit.code(name, size, searched.documents)
        row |= {"distortion": code.distortion_, "bound": code.bound_}
    return row, Scored(hits[0], ranks, rescored)


def _mean(values: Iterator[np.ndarray]) -> float:
    return float(np.mean([of_seed.mean() for of_seed in values]))


def first(index: Index | Comparator, queries: np.ndarray, searched: Searched) -> np.ndarray:
    """The first results of each query, without its own document."""
    return searched.data.others(index.search(queries, min(DEEP + 1, index.size))[1])[:, :DEEP]


def coded(
    name: str, size: int, fit: Fit, searched: Searched, seed: int = 0
) -> tuple[Index | Comparator, np.ndarray, int]:
    """An exact index of the coded documents, the queries for it, and the bytes per document."""
    documents = searched.documents
    if name == RAW:
        index = build_index(documents, "faiss-flat")
        return index, searched.queries, documents.shape[1] * 4
    if name in COMPARATORS:
        comparator = Comparator(name, size, documents, fit.whitening, documents)
        return comparator, comparator.prepare(searched.queries), comparator.bytes
    code = fit.code(name, size, documents, seed)
    index = build_index(fit.prepare(name, documents), "faiss-flat", codes=code)
    return index, fit.prepare(name, searched.queries), code.nbytes


def reordered(ids: np.ndarray, searched: Searched) -> np.ndarray:
    """The first results, in the order of their float16 vectors."""
    queries = jaxwhiten.normalize(searched.queries)
    copies = jaxwhiten.normalize(searched.documents).astype(np.float16)
    scores = [copies[row].astype(np.float32) @ query for row, query in zip(ids, queries, strict=True)]
    return np.take_along_axis(ids, scoring.best(np.stack(scores), ids.shape[1]), axis=1)


def at_equal_bytes(size: int, spectra: dict[int, np.ndarray]) -> np.ndarray | None:
    """Scores of queries by the spectrum code with as many bytes, or the next more; None if there is no such code."""
    return spectra.get(min((code_size for code_size in spectra if code_size >= size), default=size))


def intervals(scored: Scored, raw: Scored, peer: np.ndarray | None, config: Codes) -> dict[str, Record | None]:
    """Paired differences to float32 and to a spectrum code, with intervals, × 100."""

    def difference(ranks: np.ndarray | None, base: np.ndarray | None) -> Record | None:
        if ranks is None or base is None or scored is raw or not config.bootstrap:
            return None
        return estimate(100 * (ranks - base), config.bootstrap, config.seed)

    return {
        "versus_raw": difference(scored.ranks, raw.ranks),
        "rescored_versus_raw": difference(scored.rescored, raw.ranks),
        "versus_spectrum": difference(scored.ranks, peer),
    }


def make_header(config: Codes, encoder: Encoder, searched: Searched, seconds: float) -> Record:
    """The header of the run."""
    data = searched.data
    queries = len(searched.queries)
    return common.make_header(
        "eval.codes",
        f"Codes on {data.name}: {encoder.name}",
        config,
        encoder,
        common.encoding(seconds, len(data.documents) + queries, note="what is in the cache is read"),
        participation_ratio=encoder.view.provenance().get("participation_ratio"),
        dataset=common.dataset(data, queries),
        protocol={
            "max_length": encoder.max_length,
            "quality": f"first {DEEP} results of {queries:,} queries with gold, in float32, against coded documents"
            + f"; spectrum: the mean over {config.seeds} seeds" * (config.seeds > 1),
            "rescored": f"the first {config.rescore} results scored again by float16 vectors" * bool(config.rescore),
        },
    )


__all__: Sequence[str] = ["TABLES", "VIEWS", "evaluator", "main"]
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/codes.py", Codes)
