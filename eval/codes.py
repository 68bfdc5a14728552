"""Quality of search against bytes per vector: every code of the documents, compared with float32 and each other.

`python -m eval.codes [--config configs/codes.py] [--config.key=value ...]`

Queries stay float32 and documents are coded; a code at the end of the model is ignored. Vectors have unit length, and
for each number in `gamma` they are whitened by that γ first. Codes are fitted on the documents and, if `outside` names
text, on sentences of that text, without seeing the documents.
With `classify`, pairs of decoded vectors are classified, too. With several `seeds` the scores of a spectrum code are
means over as many sets of codebooks. Writes `run.jsonl`, `results.md` and a plot to the folder `out`.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import jaxwhiten
from configs import launch
from configs.settings import Codes
from eval import classification, common, measure
from eval.common import Notes, load_encoder, make_folder, say
from eval.comparators import COMPARATORS, Comparator
from eval.data import STS_TASKS, load_sts
from eval.driver import driven
from eval.intervals import estimate, resampled, with_ends
from eval.report.codes import TABLES, VIEWS, plot_codes
from eval.runs import Record, Run
from eval.searches import load_search
from eval.settings import NO_WHITENING, choices, fractions, integers, optional_choices, words
from eval.tasks import TaskIndex, index_sentences
from jaxwhiten import Encoder, Moments, Whitening, metrics, scoring
from jaxwhiten.codes import CODES, Code, SpectrumCode, make_code
from jaxwhiten.datasets import Corpus, RetrievalData, corpus_files
from jaxwhiten.encoding import EmbeddingStore
from jaxwhiten.errors import InputError
from jaxwhiten.search import Index, build_index
from jaxwhiten.whitening import choose_gamma

TRAINED = COMPARATORS
RAW = "float32"
FIRST = 10
DEEP = 100
AGGREGATE = "wmean"  # of STS tasks
# Of a row that is compared with others; differences are x 100, and None where there is nothing to compare with.
COMPARED = (
    "versus_raw",  # of the MRR@10, to float32 vectors
    "versus_spectrum",  # to the spectrum code of this fit with as many bytes, or the next more
    "rescored_versus_raw",  # of the first results, rescored by float16 vectors, to float32 vectors
    "sts_versus_raw",
    "accuracy",  # of classified pairs by task, in per cent
    "accuracy_versus_raw",
    "distortion",  # the expected share of the variance that a spectrum code loses
    "bound",  # Shannon's, for any code of as many bytes
)


@dataclass(frozen=True)
class Searched:
    """Raw vectors of a search with its gold, the documents for rescoring, and vectors of STS sentences and of pairs."""

    data: RetrievalData
    documents: np.ndarray
    copies: np.ndarray
    queries: np.ndarray
    gold: metrics.Gold
    tasks: tuple[TaskIndex, ...]
    sentences: np.ndarray
    pair_tasks: tuple[classification.PairTask, ...]
    pairs: np.ndarray


@dataclass(frozen=True)
class Scored:
    """The scores of a code: reciprocal ranks of queries, by task cosines of STS pairs, and correct classes (0 or 1)."""

    ids: np.ndarray  # of the first results
    ranks: np.ndarray
    rescored: np.ndarray | None  # the ranks after rescoring
    cosines: Mapping[str, np.ndarray]
    correct: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Fit:
    """The data of a fit: its name, its rows, and γ of the whitening before the code; None for unchanged vectors.

    `whitening` is that of γ; without one it only turns the vectors to their principal axes, for `Comparator`.
    """

    name: str
    rows: np.ndarray
    gamma: float | None
    whitening: Whitening

    def prepare(self, name: str, x: np.ndarray) -> np.ndarray:
        """Raw vectors as a code gets them: of unit length, and whitened if γ is given and the code follows from it."""
        if self.gamma is not None and name == "spectrum":
            x = self.whitening.transform(x)
        return jaxwhiten.normalize(x)


def evaluator(config: Codes) -> Iterator[Run]:
    """The run after each code."""
    names = choices("codes", config.codes, (*CODES, *TRAINED))
    names = tuple(sorted(names, key=lambda name: name != "spectrum"))  # the others are compared with it
    sizes = sorted(integers("bytes", config.bytes))
    lsq_sizes = sorted(set(sizes) & set(integers("lsq_bytes", config.lsq_bytes)))
    tasks = optional_choices("tasks", config.tasks, STS_TASKS)
    classify = optional_choices("classify", config.classify, classification.TASKS)
    make_folder(Path(config.out))
    data = load_search(config.dataset, config.data_dir or None)
    encoder = load_encoder(config, config.pooling).without_code()
    gammas = whitenings(config.gamma, encoder.tuned)
    outside = []
    if config.outside:
        outside = first_sentences(config.outside, config.outside_rows)

    store = EmbeddingStore(config.cache or None)
    encoding = time.perf_counter()
    searched = encode(config, encoder, store, data, tasks, classify)
    say(f"{data.name}: {len(searched.documents):,} documents, {len(searched.queries):,} queries")
    fitted_on = {"documents": searched.documents}
    if outside:
        fitted_on["outside"] = store.encode(encoder, outside)
    encoded = (searched.documents, searched.queries, searched.sentences, searched.pairs, outside)
    seconds = time.perf_counter() - encoding
    texts = sum(map(len, encoded))
    encoded_in = common.encoding(seconds, texts, note="what is in the cache is read")

    run = Run(make_header(config, encoder, searched, encoded_in, len(outside)))
    yield run
    raw: Scored | None = None
    spectra: dict[tuple[str, float | None], dict[int, np.ndarray]] = {}
    seen: set = set()
    for fit in fits(fitted_on, gammas):
        for name, size in settings(names, sizes, lsq_sizes, first=raw is None):
            result = measured(name, size, fit, searched, encoder, config, seen, raw)
            if result is None:
                continue
            row, scored = result
            raw = raw or scored
            of_spectrum = spectra.setdefault((fit.name, fit.gamma), {})
            if name == "spectrum":
                of_spectrum[row["bytes"]] = scored.ranks
            peer = None
            if name not in ("spectrum", RAW):
                peer = at_equal_bytes(row["bytes"], of_spectrum)
            estimates = {}
            if config.bootstrap:
                estimates = intervals(scored, raw, peer, searched.tasks, config)
            run.rows.append(Record(dict.fromkeys(COMPARED) | row | estimates))
            say(f"{fit.name}, {name}, {row['bytes']} bytes: MRR@10 {row['mrr_at_10']:.4f}")
            yield run


def encode(
    config: Codes,
    encoder: Encoder,
    store: EmbeddingStore,
    data: RetrievalData,
    tasks: tuple[str, ...],
    classify: tuple[str, ...],
) -> Searched:
    """All vectors; queries are limited to those with gold, as many as the config asks for."""
    folder = config.data_dir or None
    rows, sampled, gold = measure.sample_queries(data, config.queries)
    data = data.of(rows)
    sentences, indices = index_sentences([load_sts(name, folder) for name in tasks], test_only=True)
    in_pairs, pair_tasks = classification.load_tasks(classify, folder)
    documents, queries = (
        store.encode(encoder.view.in_role(role), side)
        for side, role in ((data.documents, "document"), (sampled, "query"))
    )
    none = np.zeros((0, encoder.dimension), np.float32)
    vectors, pairs = (store.encode(encoder, texts) if texts else none for texts in (sentences, in_pairs))
    copies = jaxwhiten.normalize(documents).astype(np.float16)
    return Searched(data, documents, copies, queries, gold, tuple(indices), vectors, pair_tasks, pairs)


def first_sentences(path: str, rows: int) -> list[str]:
    """The first sentence of each passage, for `rows` passages or all there are."""
    passages = Corpus(corpus_files(path)).passages()
    return [passage.partition(". ")[0] for passage in itertools.islice(passages, rows)]


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


def fits(fitted_on: Mapping[str, np.ndarray], gammas: Sequence[float | None]) -> Iterator[Fit]:
    """The fits on each set of rows, with every γ."""
    for name, rows in fitted_on.items():
        unchanged, raw = (Moments().update(x) for x in (jaxwhiten.normalize(rows), rows))
        for gamma in gammas:
            with Notes().collect("", ""):  # few rows are expected: small k and γ are compared
                if gamma is None:
                    whitening = Whitening.from_moments(unchanged, beta=0.0, gamma=0.0)
                else:
                    whitening = Whitening.from_moments(raw, gamma=gamma)
                yield Fit(name, rows, gamma, whitening)


def settings(names: tuple[str, ...], sizes: list[int], lsq_sizes: list[int], first: bool) -> Iterator[tuple[str, int]]:
    """Every code at every size, LSQ at its own sizes, and the raw vectors once; codes of one size at that size."""
    if first:
        yield RAW, 0
    for name in names:
        if name == "lsq":
            sizes_of_code = lsq_sizes
        elif name in CODES and name != "spectrum":
            sizes_of_code = [0]
        else:
            sizes_of_code = sizes
        yield from ((name, size) for size in sizes_of_code)


def measured(
    name: str,
    size: int,
    fit: Fit,
    searched: Searched,
    encoder: Encoder,
    config: Codes,
    seen: set,
    raw: Scored | None,
) -> tuple[dict[str, Any], Scored] | None:
    """A row's fields, and the scores of each query and each pair; None if there is no such code of that size.

    `seen` has the codes already measured, because several sizes of RaBitQ, for instance, give the same bytes. `raw` is
    what float32 scored.
    """
    started = time.perf_counter()
    try:
        index, queries, count = coded(name, size, fit, searched)
    except InputError as error:
        say(f"{fit.name}, {name}, {size} bytes: left out ({error})")
        return None
    gamma = None
    if name in ("spectrum", *TRAINED):
        gamma = fit.gamma
    if (key := (fit.name, gamma, name, count)) in seen:
        return None
    seen.add(key)
    built = time.perf_counter() - started
    hits = [first(index, queries, searched)]
    if name == "spectrum":
        for seed in range(1, config.seeds):
            index, queries, _ = coded(name, size, fit, searched, seed)
            hits.append(first(index, queries, searched))
    scored = scores(name, size, fit, searched, hits, config.rescore)
    row = NO_WHITENING | {
        "model": encoder.name,
        "pooling": encoder.pooling,
        "whitening": fit.name,
        "k": queries.shape[1],
        "gamma": gamma,
        "n_fit": len(fit.rows),
        "transductive": False,
        "code": name,
        "bytes": count,
        "mrr_at_10": float(scored.ranks.mean()),
        "recall_at_10": float(np.mean([metrics.recalls(ids, searched.gold, FIRST).mean() for ids in hits])),
        "ndcg_at_10": float(np.mean([metrics.discounted_gains(ids, searched.gold, FIRST).mean() for ids in hits])),
        "float32_recall_at_10": None,
        "rescored_mrr_at_10": None,
        "sts": None,
        "build_us": 1e6 * built / index.size,
    }
    if name == RAW:
        row |= {"whitening": "none", "n_fit": 0}
    if raw is not None:
        nearest = list(raw.ids[:, :FIRST])
        row["float32_recall_at_10"] = float(np.mean([metrics.recalls(ids, nearest, FIRST).mean() for ids in hits]))
    if scored.rescored is not None:
        row["rescored_mrr_at_10"] = float(scored.rescored.mean())
    if scored.cosines:
        row["sts"] = float(np.mean([task.score(scored.cosines[task.name]) for task in searched.tasks]))
    if name == "spectrum":
        row |= of_the_code(size, fit)
    return row, scored


def scores(name: str, size: int, fit: Fit, searched: Searched, hits: Sequence[np.ndarray], rescore: int) -> Scored:
    """The scores of a code: of the search means over the seeds, whose first results are `hits`, others of one seed."""
    ranks = np.mean([metrics.reciprocal_ranks(ids, searched.gold, FIRST) for ids in hits], axis=0)
    scored = Scored(hits[0], ranks, None, {}, {})
    if rescore and name != RAW:
        reordered = rescored(hits[0][:, :rescore], searched)
        scored = replace(scored, rescored=metrics.reciprocal_ranks(reordered, searched.gold, FIRST))
    if searched.tasks and name not in TRAINED:
        x = both_sides(name, size, fit, searched.sentences)
        scored = replace(scored, cosines={task.name: task.similarity(x) for task in searched.tasks})
    if searched.pair_tasks and name not in TRAINED:
        x = both_sides(name, size, fit, searched.pairs)
        scored = replace(scored, correct={task.name: classification.correct(x, task) for task in searched.pair_tasks})
    return scored


def first(index: Index | Comparator, queries: np.ndarray, searched: Searched) -> np.ndarray:
    """The first results of each query, without its own document."""
    return searched.data.others(index.search(queries, min(DEEP + 1, index.size), prepared=True)[1])[:, :DEEP]


def coded(
    name: str, size: int, fit: Fit, searched: Searched, seed: int = 0
) -> tuple[Index | Comparator, np.ndarray, int]:
    """An exact index of the coded documents, the queries for it, and the bytes per document."""
    documents = searched.documents
    queries = searched.queries
    if name == RAW:
        index = build_index(documents, "faiss-flat")
        return index, index.prepare(queries), documents.shape[1] * 4
    if name in COMPARATORS:
        comparator = Comparator(name, size, fit.rows, fit.whitening, documents)
        return comparator, comparator.prepare(queries), comparator.bytes
    code = computed(name, size, fit, seed)
    index = build_index(fit.prepare(name, documents), "faiss-flat", codes=code)
    return index, fit.prepare(name, queries), code.nbytes


@functools.lru_cache(maxsize=8)  # the seeds of one size
def computed(name: str, size: int, fit: Fit, seed: int = 0) -> Code:
    """A code that needs no training, fitted."""
    if name != "spectrum":
        return make_code(name).fit(fit.prepare(name, fit.rows))
    code = SpectrumCode(bytes=size)
    code._seed = seed
    if fit.gamma is None:
        return code.fit(fit.prepare(name, fit.rows))
    return code.fit(fit.whitening)


def of_the_code(size: int, fit: Fit) -> dict[str, float]:
    """The distortion that a spectrum code expects, and the bound of it."""
    code = computed("spectrum", size, fit)
    return {"distortion": code.distortion_, "bound": code.bound_}


def rescored(ids: np.ndarray, searched: Searched) -> np.ndarray:
    """The first results, reordered by their float16 vectors."""
    queries = jaxwhiten.normalize(searched.queries)
    scores = np.stack(
        [searched.copies[candidates].astype(np.float32) @ query for candidates, query in zip(ids, queries, strict=True)]
    )
    return np.take_along_axis(ids, scoring.best(scores, scores.shape[1]), axis=1)


def both_sides(name: str, size: int, fit: Fit, vectors: np.ndarray) -> np.ndarray:
    """The vectors as a comparison sees them if neither side stays float32."""
    if name == RAW:
        return vectors
    code = computed(name, size, fit)
    return code.transform(fit.prepare(name, vectors))


def at_equal_bytes(size: int, of_spectrum: Mapping[int, np.ndarray]) -> np.ndarray | None:
    """Scores of queries by the spectrum code with as many bytes, or the next more; None if there is no such code."""
    return of_spectrum.get(min((code_size for code_size in of_spectrum if code_size >= size), default=size))


def intervals(
    scored: Scored, raw: Scored, spectrum: np.ndarray | None, tasks: Sequence[TaskIndex], config: Codes
) -> dict[str, Record | None]:
    """Paired differences to float32 and to a spectrum code, and accuracies, with intervals, all × 100."""

    def points(values: np.ndarray) -> Record:
        return estimate(100 * values, config.bootstrap, config.seed)

    def difference(ranks: np.ndarray | None, base: np.ndarray | None) -> Record | None:
        if ranks is None or base is None:
            return None
        return points(ranks - base)

    fields: dict[str, Record | None] = {
        "accuracy": Record({name: points(right) for name, right in scored.correct.items()}) or None
    }
    if scored is not raw:
        fields["versus_raw"] = points(scored.ranks - raw.ranks)
        fields["rescored_versus_raw"] = difference(scored.rescored, raw.ranks)
        fields["versus_spectrum"] = difference(scored.ranks, spectrum)
        changed = {name: points(right - raw.correct[name]) for name, right in scored.correct.items()}
        fields["accuracy_versus_raw"] = Record(changed) or None
        if scored.cosines:
            samples, base = resampled((scored.cosines, raw.cosines), tasks, AGGREGATE, config)["average"]
            scores = (task.score(scored.cosines[task.name]) - task.score(raw.cosines[task.name]) for task in tasks)
            fields["sts_versus_raw"] = with_ends(float(np.mean(list(scores))), samples - base)
    return fields


def make_header(
    config: Codes,
    encoder: Encoder,
    searched: Searched,
    encoding: Record,
    outside: int,
) -> Record:
    """The header of the run; `outside` is the number of sentences of other text."""
    data = searched.data
    queries = len(searched.queries)
    return common.make_header(
        "eval.codes",
        f"Codes on {data.name}: {encoder.name}",
        config,
        encoder,
        encoding,
        participation_ratio=encoder.encoding().get("participation_ratio"),
        dataset=common.dataset(data, queries),
        tasks=tuple(task.name for task in searched.tasks),
        protocol={
            "max_length": encoder.max_length,
            "quality": f"first {DEEP} results of {queries:,} queries with gold, in float32, against coded documents"
            + f"; spectrum: the mean over {config.seeds} seeds" * (config.seeds > 1),
            "outside": f"first sentences of {outside:,} passages" * bool(outside),
            "rescored": f"the first {config.rescore} results scored again by float16 vectors" * bool(config.rescore),
            "sts": "mean of the tasks (wmean), both sides coded" * bool(searched.tasks),
            "classified": classification.PROTOCOL * bool(config.classify),
        },
    )


__all__ = ["TABLES", "VIEWS", "evaluator", "main", "plot_codes"]
main = driven(evaluator, VIEWS)

if __name__ == "__main__":
    launch.run(main, "configs/codes.py", Codes)
