"""`evaluate`: the forms of an encoder's vectors, scored on one's own data beside lexical baselines."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Int8, UBinary
from jaxwhiten.codes.fit import fit
from jaxwhiten.datasets import Pairs, RetrievalData
from jaxwhiten.datasets.splits import independent
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.metrics import (
    binary_scores,
    discounted_gains,
    precision_parts,
    recalls,
    reciprocal_ranks,
    spearman,
    spearman_parts,
)
from jaxwhiten.metrics.bootstrap import (
    by_unit,
    chosen_intervals,
    mean_resamples,
    score_interval,
    spearman_resamples,
    unit_draws,
)
from jaxwhiten.options import Rule, check_options
from jaxwhiten.scoring.data import ScoredPairs, Unjudged, read
from jaxwhiten.scoring.result import ERROR, HYBRID, NO_CHANGE, RAW, SHARE, WHITENED, Change, Evaluation, Row
from jaxwhiten.scoring.words import BM25, TFIDF, cosines, count, nearest, weigh
from jaxwhiten.search import build_index
from jaxwhiten.terminal import counted
from jaxwhiten.text import Texts
from jaxwhiten.types import Float, Int, Json, RowsLike
from jaxwhiten.whitening import Moments

Encode = Callable[[Encoder, list[str], str | None], np.ndarray]
Form = tuple[str, int, int | None, Any]  # name, dimensions, bytes, and what is scored
# Of each form, by measure, its score and its resamples; the number of units that were resampled; and what each adds to
# the first measure of each form.
_Measured = tuple[list[dict[str, float]], list[dict[str, np.ndarray]], int, np.ndarray]
_DEEP = 100  # results per query
_FIRST = 10  # and of those of float32 that codes should find
_HELD = 1 << 24  # cosines held at once
_RULES = (
    Rule(
        ("corpus",),
        "A corpus is searched: omit it for pairs, or pass queries and documents.",
        without=("searched",),
    ),
    Rule(
        ("k", "versus"),
        "Without judgments, codes are compared with the vectors that they store: omit {given}, or pass judgments.",
        beside=("unjudged",),
    ),
    Rule(
        ("bytes", "k", "whitening", "versus"),
        "Vectors are compared unchanged: pass sentences to score `bytes`, `k` or `versus`.",
        beside=("vectors",),
    ),
    Rule(
        ("k", "whitening"),
        "{encoder}: already includes a whitening, scored unchanged: omit `k` and its options.",
        beside=("fitted",),
    ),
)
BACKEND = "jax" if importlib.util.find_spec("faiss") is None else "faiss-flat"  # they rank alike


def evaluate(
    encoder: Encoder,
    data: RowsLike,
    *,
    queries: Texts | None = None,
    bytes: int | Sequence[int] = (),
    k: int | Sequence[int] = (),
    versus: Encoder | None = None,
    columns: Sequence[str] = (),
    corpus: Iterable[str] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    encode: Encode | None = None,
    **whitening: Any,
) -> Evaluation:
    """Scores an encoder on your own data: its vectors raw, with its own whitening and code, and in fewer bytes.

    TF-IDF and BM25 are scored with them. Similarities of pairs are correlated with their scores; if these are two
    labels, scored by average precision and ROC AUC. Searches are scored by nDCG@10, whose gains are the grades of the
    judgments, and MRR@10 and recall of all that are relevant; a hybrid search of the same index has a row, too.

    Texts need no judgments: of the first ten documents by float32 vectors, the share that codes find, and how far their
    scores are off. The codes are those of `Encoder.shrink`, next to int8 and binary ones of the same vectors.

    >>> encoder, pairs = Encoder.from_pretrained("jaxwhiten-tiny"), load_sts("sts_sample").splits["test"]
    >>> round(evaluate(encoder, pairs, resamples=100).score, 1)  # Spearman × 100
    34.2

    Args:
      encoder: The encoder. Pairs are compared by its similarity, searches by cosine.
      data: Scored pairs: a table (.csv, .tsv, .jsonl, .parquet), `jaxwhiten.load_sts(...).splits[...]`,
        `(sentences_a, sentences_b, scores)`, rows of two sentences and a score, or `ScoredPairs`, whose vectors are
        compared directly. Queries and documents: a table with the columns `query` and `document` (or `positive`), a
        BEIR folder, or `RetrievalData`. Either also as a DataFrame, an Arrow table or a dict of columns. Or documents
        without judgments: a list of texts.
      queries: Texts that search such documents. Without them, 300 documents are held out, and search the others: they
        are like documents, and find more than queries do.
      bytes: Sizes of codes to fit on the sentences or documents; int8 and binary vectors are scored, too.
      k: Dimensions of whitenings to fit on them, 0 for all; for an encoder without a whitening.
      versus: Another encoder, scored with its own head; the verdict compares it with `encoder`, its head included.
      columns: Names of both sentences and of the score in a table of pairs.
      corpus: More documents to search, for a table whose documents are all relevant to some query.
      resamples, seed: Number and seed of the bootstrap's resamples.
      encode: A function of encoder, texts and role that is called instead of `Encoder.encode`, for example to use a
        cache.
      **whitening: Parameters of `jaxwhiten.Whitening`, such as `gamma`; its `n_components` is k.

    Returns:
      The scores of every form with their intervals; `print` shows a table with a verdict.

    Raises:
      InputError: There are fewer than two different scores, an item is not a sentence, or the encoder already includes
        a whitening.
      DataError: A file is missing or damaged; the message names file and line.

    References:
      Reimers, Beyer & Gurevych 2016, "Task-Oriented Intrinsic Evaluation of Semantic Textual Similarity", section 5.
      Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models".
    """
    parsed = read(data, columns, queries)
    judged = not isinstance(parsed, Unjudged)
    components = whitening.pop("n_components", None) if judged else None  # k wins, as in `Encoder.whiten`
    k = k or components or ()
    sizes, ks = ([value] if isinstance(value, int) else list(value) for value in (bytes, k))
    options: Json = {"corpus": corpus, "bytes": sizes, "k": ks, "whitening": whitening, "versus": versus}
    kinds = {"searched": RetrievalData, "vectors": ScoredPairs, "unjudged": Unjudged}
    options |= {name: isinstance(parsed, kind) for name, kind in kinds.items()}
    check_options(_RULES, {**options, "fitted": encoder.view.head.whitening, "encoder": encoder.name})
    if isinstance(parsed, RetrievalData) and corpus is not None:
        parsed = parsed.with_corpus(corpus)
    details = str(settings_of(encoder).similarity_fn_name), encoder.view.space, resamples, seed
    if isinstance(parsed, ScoredPairs):
        forms: list[Form] = [(RAW, *_size(encoder), encoder.similarity_pairwise(parsed.first, parsed.second))]
        units = np.arange(len(parsed.gold))
        rows = _rows(forms, *_correlations(forms, parsed.gold, units, resamples, seed))
        return Evaluation("", {"pairs": len(parsed.gold)}, rows, 0, "", *details)
    encode = encode or encoded
    raw = _unfitted(encoder)
    scored = _scored(parsed, raw, encode)
    ways = list(_ways(encoder, raw, scored.vectors, sizes, ks, whitening, judged=judged))
    forms = [(name, *_size(way), scored.compare(way)) for name, way in ways]
    own_row = max((i for i, (_, way) in enumerate(ways) if way.view.head is encoder.view.head), default=0)
    other = None
    if isinstance(scored, _Search) and (found := scored.compare(encoder, hybrid=True)).max() >= 0:  # with FTS5
        forms.append((HYBRID, *_size(encoder), found))
    if versus is not None:
        other = len(forms)
        forms.append((Path(versus.name).name, *_size(versus), compared(versus, scored.data, encode)))
    if judged:
        forms += by_words(scored.data)
    values, drawn, n, parts = scored.measured(forms, resamples, seed)
    rows = _rows(forms, values, drawn, n, parts, own_row, other)
    if not judged:  # float32 vectors find all that they find
        rows = dataclasses.replace(rows[0], intervals=dict.fromkeys((SHARE, ERROR), NO_CHANGE.interval)), *rows[1:]
    fitted = f"fitted on {scored.fitted_on}" if len(ways) > 1 + own_row else ""
    only_relevant = isinstance(parsed, RetrievalData) and parsed.only_relevant
    return Evaluation(scored.name, scored.counts, rows, own_row, fitted, *details, other, only_relevant)


def encoded(encoder: Encoder, texts: list[str], role: str | None, **how: Any) -> np.ndarray:
    """The vectors of texts, with the prompt of a `"query"` or a `"document"`, or the default one.

    >>> encoded(Encoder.from_pretrained("jaxwhiten-tiny"), ["a dog"], "query").shape
    (1, 256)
    """
    return encoder.view.in_role(role)(texts, **how)


def compared(encoder: Encoder, data: Pairs | RetrievalData, encode: Encode = encoded) -> np.ndarray:
    """The similarity of each pair, or the nearest documents of each query, by an encoder with its own head.

    >>> pairs = read((["a dog", "rain"], ["a dog", "A cat."], [5.0, 0.0]))
    >>> compared(Encoder.from_pretrained("jaxwhiten-tiny"), pairs).shape
    (2,)
    """
    found: np.ndarray = _scored(data, _unfitted(encoder), encode).compare(encoder)
    return found


def _unfitted(encoder: Encoder) -> Encoder:
    return encoder.with_view(encoder.view.unfitted)


def _scored(data: Any, raw: Encoder, encode: Encode) -> Any:
    kinds: dict[type, Any] = {RetrievalData: _Search, Unjudged: _Loss, Pairs: _Pairs}
    return kinds[type(data)](data, raw, encode)


def by_words(data: Pairs | RetrievalData) -> Iterator[Form]:
    """The lexical baselines, compared as in `compared`.

    >>> pairs = read((["a dog", "rain"], ["a dog", "A cat."], [5.0, 0.0]))
    >>> [name for name, *_ in by_words(pairs)]
    ['TF-IDF', 'BM25']
    """
    if isinstance(data, RetrievalData):
        counts = count([*data.documents, *data.queries])
        n = len(data.documents)
        for name in (TFIDF, BM25):
            queries, documents = weigh(name, counts, counts[:n])
            yield name, counts.shape[1], None, data.others(nearest(queries[n:], documents[:n], _deep(data)))
    else:
        texts, first, right = _distinct(data)
        counts = count(texts)
        for name in (TFIDF, BM25):
            yield name, counts.shape[1], None, cosines(weigh(name, counts, counts)[1], first, right)


def _deep(data: RetrievalData) -> int:
    """How many results are ranked, so that enough remain without a query's own document."""
    return min(_DEEP + bool(data.own_documents), len(data.documents))


def _distinct(pairs: Pairs) -> tuple[list[str], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The distinct sentences, and the number of each pair's first and second."""
    texts = list(dict.fromkeys([*pairs.sentence1, *pairs.sentence2]))
    row = {text: number for number, text in enumerate(texts)}
    first, right = (np.array([row[text] for text in side]) for side in (pairs.sentence1, pairs.sentence2))
    return texts, first, right


class _Pairs:
    """Scored pairs: every sentence is encoded once."""

    name = ""

    def __init__(self, pairs: Pairs, raw: Encoder, encode: Encode):
        texts, self.left, self.right = _distinct(pairs)
        self.data = pairs
        self.raw = raw
        self.vectors = encode(raw, texts, None)
        self.counts = {"pairs": len(pairs)}
        self.fitted_on = f"{counted(len(texts), 'sentences')}, without their scores"

    def compare(self, way: Encoder) -> Float[np.ndarray, " n"]:
        """The similarity of each pair, both sides in this form."""
        vectors = way.view.finished(self.vectors, self.raw.view)
        return way.similarity_pairwise(vectors[self.left], vectors[self.right])

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> _Measured:
        """Correlations of the similarities with the scores; pairs that share a sentence are drawn together."""
        units = independent([self.data.sentence1, self.data.sentence2])
        return _correlations(forms, self.data.score, units, resamples, seed)


class _Ranked:
    """Documents that queries search; every text is encoded once."""

    def __init__(self, documents: list[str], queries: list[str], raw: Encoder, encode: Encode):
        self.documents = documents
        self.queries = queries
        self.raw = raw
        self.vectors = encode(raw, documents, "document")
        self.query_vectors = encode(raw, queries, "query")
        self.fitted_on = counted(len(documents), "documents")

    def in_form(self, way: Encoder) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "q d"]]:
        """The vectors of documents and queries by an encoder, before its code."""
        view = way.view.uncoded
        documents, queries = (view.finished(x, self.raw.view) for x in (self.vectors, self.query_vectors))
        return np.asarray(documents), np.asarray(queries)


class _Search(_Ranked):
    """Queries with relevant documents."""

    def __init__(self, data: RetrievalData, raw: Encoder, encode: Encode):
        self.name = data.name
        self.data = data.with_gold()
        super().__init__(self.data.documents, self.data.queries, raw, encode)
        self.counts: dict[str, int] = {"documents": len(self.documents)}
        if count := self.data.own_documents:
            self.counts["own documents left out"] = count
        self.counts["queries"] = len(self.queries)

    def compare(self, way: Encoder, *, hybrid: bool = False) -> Int[np.ndarray, "q k"]:
        """The nearest documents of each query, as an index finds them, by words, too; only documents are coded.

        A text whose vector is zero, of which an encoder knows no word, is found by no query, and finds none.
        """
        documents, queries = self.in_form(way)
        stored = np.flatnonzero(np.any(documents, axis=1))
        nonempty = np.flatnonzero(np.any(queries, axis=1))
        ids = np.full((len(queries), _deep(self.data)), -1)
        if not len(stored) or not len(nonempty):
            return self.data.others(ids)
        texts = [self.documents[row] for row in stored] if hybrid else None
        index = build_index(documents[stored], BACKEND, codes=way.view.head.code, documents=texts)
        k = min(ids.shape[1], index.size)
        if not hybrid:
            found = index.search(queries[nonempty], k)[1]
            ids[nonempty, :k] = np.where(found >= 0, stored[found], -1)
        elif index.has_words:
            asked = [self.queries[row] for row in nonempty]
            for row, hits in zip(nonempty, index.hits(queries[nonempty], k, texts=asked), strict=True):
                ids[row, : len(hits)] = stored[np.array([hit.id for hit in hits], int)]
        return self.data.others(ids)

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> _Measured:
        """Means over the queries of every measure."""
        gold = self.data.gold
        measures = [form[-1] for form in forms]
        of_queries = {
            "ndcg_at_10": [discounted_gains(ids, gold) for ids in measures],
            "mrr_at_10": [reciprocal_ranks(ids, gold) for ids in measures],
            "recall_at_10": [recalls(ids, gold, 10) for ids in measures],
            "recall_at_100": [recalls(ids, gold, 100) for ids in measures],
        }
        return _means(of_queries, resamples, seed)


class _Loss(_Ranked):
    """Queries without judgments: what codes lose of the first documents by the vectors that they store."""

    name = ""

    def __init__(self, data: Unjudged, raw: Encoder, encode: Encode):
        super().__init__(data.documents, data.queries, raw, encode)
        self.query_vectors = self.query_vectors[np.any(self.query_vectors, axis=1)]  # others find nothing
        what = "held-out documents as queries" if data.held_out else "queries"
        self.counts = {"documents": len(self.documents), what: len(self.query_vectors)}
        self.exact: tuple[np.ndarray, np.ndarray] | None = None  # the first documents by, and of, the first form

    def compare(self, way: Encoder) -> Float[np.ndarray, "2 q"]:
        """Of each query, the share of the first documents that are found, and how far scores are off on average."""
        documents, queries = self.in_form(way)
        if (code := way.view.head.code) is not None:
            documents = code.decode(code.encode(documents))
        documents, queries = map(normalize, (documents, queries))
        k = min(_FIRST, len(documents))
        ids = np.empty((len(queries), k), np.int64)
        for part in blocks(len(queries), max(1, _HELD // len(documents))):
            ids[part] = np.argpartition(queries[part] @ -documents.T, k - 1, axis=1)[:, :k]
        if self.exact is None:
            self.exact = ids, documents
        first, uncoded = self.exact
        errors = np.einsum("qd,qkd->qk", queries, documents[ids] - uncoded[ids])
        found = (ids[:, :, None] == first[:, None]).any(axis=1)
        return np.stack([found.mean(axis=1), np.abs(errors).mean(axis=1)])

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> _Measured:
        """Means over the queries."""
        shares, errors = zip(*(form[-1] for form in forms), strict=True)
        return _means({SHARE: shares, ERROR: errors}, resamples, seed)


def _means(of_queries: Mapping[str, Sequence[np.ndarray]], resamples: int, seed: int) -> _Measured:
    """The means × 100 of measures of queries, in each of several forms, which share the resamples."""
    table = 100 * np.stack([np.stack(values) for values in of_queries.values()], axis=1)  # [forms, measures, queries]
    drawn = mean_resamples(table.reshape(-1, table.shape[-1]), resamples, seed).reshape(*table.shape[:2], -1)
    values = [dict(zip(of_queries, row, strict=True)) for row in table.mean(axis=2).tolist()]
    return values, [dict(zip(of_queries, row, strict=True)) for row in drawn], table.shape[-1], table[:, 0]


def _ways(
    encoder: Encoder,
    raw: Encoder,
    vectors: Float[np.ndarray, "n d"],
    sizes: Sequence[int],
    ks: Sequence[int],
    whitening: Json,
    *,
    judged: bool,
) -> Iterator[tuple[str, Encoder]]:
    """The forms of an encoder's vectors by name; whitenings and codes are fitted on raw vectors, as by `shrink`.

    The first one is of raw vectors; or, if there are no judgments, of those that are coded.
    """
    own = encoder.view.head.whitening
    moments = Moments(provenance=raw.view.provenance())
    if ks or sizes:
        moments.update(np.asarray(vectors))
    base = encoder.with_view(encoder.view.uncoded)
    fits = [fit(moments, bytes=size, **whitening) if own is None else fit(own, bytes=size) for size in sizes]
    if own is None and fits and fits[0].whitening is not None:
        base = raw.with_whitening(fits[0].whitening)
    mark = "" if base.view.head.whitening is None else WHITENED
    yield (RAW, raw) if judged else (mark or RAW, base)
    if judged and own is not None:
        yield WHITENED, base
    for k in ks:
        yield WHITENED, raw.with_view(raw.view.with_fit(fit(moments, n_components=k or None, **whitening)))
    if encoder.view.head.code is not None:
        yield "coded", encoder
    if sizes or not judged:
        x = base.view.finished(vectors, raw.view)
        yield f"{mark} int8".lstrip(), base.with_code(Int8().fit(x))
        yield f"{mark} binary".lstrip(), base.with_code(UBinary().fit(x))
    for _, code, _ in fits:
        assert code is not None
        yield f"{mark} code".lstrip(), base.with_code(code)


def _size(way: Encoder) -> tuple[int, int]:
    """The dimensions and the bytes of a form's vectors."""
    code = way.view.head.code
    if code is None:
        return way.dimension, 4 * way.dimension
    return code.n_features_in_, code.nbytes


def _correlations(
    forms: Sequence[Form], gold: Float[np.ndarray, " n"], units: Int[np.ndarray, " n"], resamples: int, seed: int
) -> _Measured:
    """Correlations of similarities with the scores, or how well they separate two labels; forms share the resamples."""
    if len(np.unique(gold)) == 2:
        return _separations(forms, gold, units, resamples, seed)
    drawn = spearman_resamples(np.stack([form[-1] for form in forms]), gold, resamples, seed, units)
    values = [{"spearman": 100 * spearman(form[-1], gold), "pearson": _pearson(form[-1], gold)} for form in forms]
    parts = by_unit(np.stack([spearman_parts(form[-1], gold) for form in forms]), units)
    return values, [{"spearman": of_form} for of_form in drawn], parts.shape[1], parts


def _separations(
    forms: Sequence[Form], gold: Float[np.ndarray, " n"], units: Int[np.ndarray, " n"], resamples: int, seed: int
) -> _Measured:
    """Average precision and ROC AUC of pairs with two labels; NaN in a resample without one of them.

    Labels are drawn with their pairs, and at most twice the units of the rarer label count: with as many pairs of each
    label in every resample, or counting all pairs, intervals of the average precision are too narrow.
    """
    names = ("average_precision", "roc_auc")
    once = np.ones((len(gold), 1), np.float32)
    blocks = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for counts in unit_draws(units, resamples, seed):
            blocks.append(np.stack([binary_scores(form[-1], gold, counts) for form in forms]))
    whole = [binary_scores(form[-1], gold, once) for form in forms]
    values = [{name: 100 * float(score[0]) for name, score in zip(names, row, strict=True)} for row in whole]
    drawn = 100 * np.concatenate(blocks, axis=2)
    rarer = min(len(np.unique(units[gold == label])) for label in np.unique(gold))
    count = min(2 * rarer, int(units.max()) + 1)
    parts = by_unit(np.stack([precision_parts(form[-1], gold) for form in forms]), units)
    return values, [dict(zip(names, of_form, strict=True)) for of_form in drawn], count, parts


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100 * float(np.corrcoef(x, y, dtype=np.float64)[0, 1])


def _rows(
    forms: Sequence[Form],
    values: Sequence[dict[str, float]],
    drawn: Sequence[dict[str, np.ndarray]],
    units: int,
    parts: Float[np.ndarray, "m u"],
    own: int = 0,
    versus: int | None = None,
) -> tuple[Row, ...]:
    """Rows with intervals, and the paired differences of the first measure to the first form and to form `own`.

    The verdict chooses one of the encoder's forms, and one of the baselines, by their scores: the intervals of the
    differences of all of them hold at once.
    """
    first = next(iter(values[0]))
    sized = [number for number, (_, _, size, _) in enumerate(forms) if size is not None and number != versus]
    words = [number for number, (_, _, size, _) in enumerate(forms) if size is None]
    chosen_from = [family for family in (sized, words, [] if versus is None else [versus]) if family]

    def changes(base: int) -> list[Change]:
        figures = [NO_CHANGE] * len(forms)
        for family in chosen_from:
            others = [number for number in family if number != base]
            samples = [drawn[number][first] - drawn[base][first] for number in others]
            intervals = chosen_intervals(np.stack(samples), units, parts[others] - parts[base]) if others else []
            for number, interval in zip(others, intervals, strict=True):
                figures[number] = Change(values[number][first] - values[base][first], interval)
        return figures

    rows = list[Row]()
    of_raw = changes(0)
    of_own = changes(own)
    for number, (name, dimensions, size, _) in enumerate(forms):
        intervals = {measure: score_interval(samples, units) for measure, samples in drawn[number].items()}
        rows.append(Row(name, dimensions, size, values[number], intervals, of_raw[number], of_own[number]))
    return tuple(rows)
