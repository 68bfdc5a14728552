"""`evaluate`: the forms of an encoder's vectors, scored on one's own data beside lexical baselines."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import blocks, normalize
from jaxwhiten.codes import Code, Int8, UBinary
from jaxwhiten.codes.fit import Fit, fit
from jaxwhiten.datasets import Pairs, RetrievalData
from jaxwhiten.datasets.splits import independent
from jaxwhiten.encoding import Encoder
from jaxwhiten.encoding.encoder import settings_of
from jaxwhiten.head import Head, Normalize, Whiten
from jaxwhiten.options import Rule, check_options
from jaxwhiten.scoring.data import ScoredPairs, Unjudged, read
from jaxwhiten.scoring.measures import NO_CHANGE, Measured, of_labels, of_pairs, of_queries, of_ranks
from jaxwhiten.scoring.result import ERROR, HYBRID, RAW, SHARE, WHITENED, Evaluation, Row
from jaxwhiten.scoring.words import BM25, TFIDF, cosines, count, nearest, weigh
from jaxwhiten.search import build_index
from jaxwhiten.terminal import counted
from jaxwhiten.text import Texts
from jaxwhiten.types import Fields, Float, Int, Json, RowsLike
from jaxwhiten.views import View
from jaxwhiten.whitening import Moments, Whitening

Encode = Callable[[Encoder, list[str], str | None], np.ndarray]
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


class Form(NamedTuple):
    """A form of the vectors, or a lexical baseline, and what was found by it."""

    name: str
    dimensions: int
    bytes: int | None
    found: np.ndarray  # the similarity of each pair, or the first documents of each query


class _Way(NamedTuple):
    """How texts are compared: by vectors, and by the code that those of documents get."""

    name: str
    sides: Sequence[np.ndarray]  # vectors, of pairs or of documents and queries
    code: Code | None = None
    own: bool = False  # whether it is that of the encoder with its own head


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
    own = encoder.view
    options: Json = {"corpus": corpus, "bytes": sizes, "k": ks, "whitening": whitening, "versus": versus}
    options |= {"searched": isinstance(parsed, RetrievalData), "vectors": isinstance(parsed, ScoredPairs)}
    options |= {"unjudged": not judged, "fitted": own.head.whitening, "encoder": encoder.name}
    check_options(_RULES, options)
    if isinstance(parsed, RetrievalData) and corpus is not None:
        parsed = parsed.with_corpus(corpus)
    details = str(settings_of(encoder).similarity_fn_name), own.space, resamples, seed
    if isinstance(parsed, ScoredPairs):
        found = encoder.similarity_pairwise(parsed.first, parsed.second)
        forms = [Form(RAW, *_size(own.columns, own.code), found)]
        units = np.arange(len(parsed.gold))
        rows = _rows(forms, _measured_pairs(forms, parsed.gold, units, resamples, seed))
        return Evaluation("", {"pairs": len(parsed.gold)}, rows, 0, "", *details)
    encode = encode or encoded
    scored = _scored(parsed, encoder, encode)
    forms = list[Form]()
    hybrid = list[Form]()
    number = 0
    for way in _ways(own, scored, sizes, ks, whitening, judged=judged):
        number = len(forms) if way.own else number
        size = _size(way.sides[0].shape[1], way.code)
        found, *by_hybrid = scored.compare(way)
        forms.append(Form(way.name, *size, found))
        hybrid += [Form(HYBRID, *size, found) for found in by_hybrid]
    fitted = f"fitted on {scored.fitted_on}" if len(forms) > 1 + number else ""
    forms += hybrid
    other = None
    if versus is not None:
        other = len(forms)
        size = _size(versus.view.columns, versus.view.code)
        forms.append(Form(Path(versus.name).name, *size, compared(versus, scored.data, encode)))
    if judged:
        forms += by_words(scored.data)
    rows = _rows(forms, scored.measured(forms, resamples, seed), number, other)
    if not judged:  # float32 vectors find all that they find
        rows = dataclasses.replace(rows[0], intervals=dict.fromkeys((SHARE, ERROR), NO_CHANGE.interval)), *rows[1:]
    only_relevant = isinstance(parsed, RetrievalData) and parsed.only_relevant
    return Evaluation(scored.name, scored.counts, rows, number, fitted, *details, other, only_relevant)


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
    scored = _scored(data, encoder, encode)
    found: np.ndarray = scored.compare(_Way("", _finished(encoder.view.head, scored), encoder.view.code))[0]
    return found


def _size(dimensions: int, code: Code | None) -> tuple[int, int]:
    """The dimensions and the bytes of a form's vectors."""
    return dimensions, 4 * dimensions if code is None else code.nbytes


def _finished(head: Head, scored: Any) -> Sequence[np.ndarray]:
    """The vectors of a head, before a code, of raw ones."""
    return [head.without_code().finished(x, scored.raw.view.head) for x in scored.sides]


def _scored(data: Any, encoder: Encoder, encode: Encode) -> Any:
    kinds: dict[type, Any] = {RetrievalData: _Search, Unjudged: _Loss, Pairs: _Pairs}
    return kinds[type(data)](data, encoder.with_view(encoder.view.unfitted), encode)


def by_words(data: Pairs | RetrievalData) -> Iterator[Form]:
    """The lexical baselines, compared as in `compared`.

    >>> pairs = read((["a dog", "rain"], ["a dog", "A cat."], [5.0, 0.0]))
    >>> [form.name for form in by_words(pairs)]
    ['TF-IDF', 'BM25']
    """
    if isinstance(data, RetrievalData):
        counts = count([*data.documents, *data.queries])
        n = len(data.documents)
    else:
        texts, left, right = _numbered(data)
        counts = count(texts)
        n = len(texts)
    for name in (TFIDF, BM25):
        queries, documents = weigh(name, counts, counts[:n])
        if isinstance(data, RetrievalData):
            found = data.others(nearest(queries[n:], documents[:n], _deep(data)))
        else:
            found = cosines(documents, left, right)
        yield Form(name, counts.shape[1], None, found)


def _deep(data: RetrievalData) -> int:
    """How many results are ranked, so that enough remain without a query's own document."""
    return min(_DEEP + bool(data.own_documents), len(data.documents))


def _numbered(pairs: Pairs) -> tuple[list[str], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The distinct sentences, and the number of each pair's first and second."""
    number: dict[str, int] = {}
    sides = pairs.sentence1, pairs.sentence2
    left, right = (np.array([number.setdefault(text, len(number)) for text in side]) for side in sides)
    return list(number), left, right


class _Pairs:
    """Scored pairs: every sentence is encoded once."""

    name = ""

    def __init__(self, pairs: Pairs, raw: Encoder, encode: Encode):
        texts, self.left, self.right = _numbered(pairs)
        self.data = pairs
        self.raw = raw
        self.sides = (np.asarray(encode(raw, texts, None)),)
        self.counts = {"pairs": len(pairs)}
        self.fitted_on = f"{counted(len(texts), 'sentences')}, without their scores"

    def compare(self, way: _Way) -> list[np.ndarray]:
        """The similarity of each pair, both sides in this form."""
        vectors = _stored(way)
        return [self.raw.similarity_pairwise(vectors[self.left], vectors[self.right])]

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> Measured:
        """Correlations of the similarities with the scores; pairs that share a sentence are drawn together."""
        units = independent([self.data.sentence1, self.data.sentence2])
        return _measured_pairs(forms, self.data.score, units, resamples, seed)


def _stored(way: _Way) -> Float[np.ndarray, "n d"]:
    """The vectors of the first side as their code represents them."""
    return way.sides[0] if way.code is None else way.code.decode(way.code.encode(way.sides[0]))


class _Search:
    """Queries with relevant documents: every text is encoded once."""

    def __init__(self, data: RetrievalData, raw: Encoder, encode: Encode):
        self.name = data.name
        self.raw = raw
        self.data = data = data.with_gold()
        self.sides = _encoded_sides(raw, data.documents, data.queries, encode)
        self.counts = {"documents": len(data.documents)}
        if data.own_documents:
            self.counts["own documents left out"] = data.own_documents
        self.counts["queries"] = len(data.queries)
        self.fitted_on = counted(len(data.documents), "documents")

    def compare(self, way: _Way) -> list[Int[np.ndarray, "q k"]]:
        """The nearest documents of each query, as an index finds them; those of the encoder's own form, by words, too.

        Only documents are coded. A text whose vector is zero, of which an encoder knows no word, is found by no query,
        and finds none.
        """
        documents, queries = way.sides
        stored, asked = (np.flatnonzero(np.any(x, axis=1)) for x in way.sides)
        found, hybrid = np.full((2, len(queries), _deep(self.data)), -1)
        if len(stored) and len(asked):
            texts = [self.data.documents[row] for row in stored] if way.own else None
            index = build_index(documents[stored], BACKEND, codes=way.code, documents=texts)
            k = min(found.shape[1], len(stored))
            rows = index.search(queries[asked], k)[1]
            found[asked, :k] = np.where(rows >= 0, stored[rows], -1)
            if index.has_words:
                texts = [self.data.queries[row] for row in asked]
                for row, hits in zip(asked, index.hits(queries[asked], k, texts=texts), strict=True):
                    hybrid[row, : len(hits)] = stored[np.array([hit.id for hit in hits], int)]
        return [self.data.others(ids) for ids in (found, *[hybrid] * bool(np.any(hybrid >= 0)))]

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> Measured:
        """Means over the queries of every measure."""
        values = [of_ranks(form.found, self.data.gold, depths=(10, 100)) for form in forms]
        table = {name: np.stack([of_form[name] for of_form in values]) for name in values[0]}
        return of_queries(table, resamples, seed)


def _encoded_sides(raw: Encoder, documents: list[str], queries: list[str], encode: Encode) -> list[np.ndarray]:
    sides = (documents, "document"), (queries, "query")
    return [np.asarray(encode(raw, texts, role)) for texts, role in sides]


class _Loss:
    """Queries without judgments: what codes lose of the first documents by the vectors that they store."""

    name = ""

    def __init__(self, data: Unjudged, raw: Encoder, encode: Encode):
        self.raw = raw
        documents, queries = _encoded_sides(raw, data.documents, data.queries, encode)
        self.sides = documents, queries[np.any(queries, axis=1)]  # others find nothing
        what = "held-out documents as queries" if data.held_out else "queries"
        self.counts = {"documents": len(documents), what: len(self.sides[1])}
        self.fitted_on = counted(len(documents), "documents")
        self.exact: tuple[np.ndarray, np.ndarray] | None = None  # the first documents by, and of, the first form

    def compare(self, way: _Way) -> list[Float[np.ndarray, "2 q"]]:
        """Of each query, the share of the first documents that are found, and how far scores are off on average."""
        documents, queries = map(normalize, (_stored(way), way.sides[1]))
        k = min(_FIRST, len(documents))
        ids = np.empty((len(queries), k), np.int64)
        for part in blocks(len(queries), max(1, _HELD // len(documents))):
            ids[part] = np.argpartition(queries[part] @ -documents.T, k - 1, axis=1)[:, :k]
        if self.exact is None:
            self.exact = ids, documents
        first, uncoded = self.exact
        errors = np.einsum("qd,qkd->qk", queries, documents[ids] - uncoded[ids])
        found = (ids[:, :, None] == first[:, None]).any(axis=1)
        return [np.stack([found.mean(axis=1), np.abs(errors).mean(axis=1)])]

    def measured(self, forms: Sequence[Form], resamples: int, seed: int) -> Measured:
        """Means over the queries."""
        shares, errors = np.stack([form.found for form in forms], axis=1)
        return of_queries({SHARE: shares, ERROR: errors}, resamples, seed)


def _ways(
    own: View, scored: Any, sizes: Sequence[int], ks: Sequence[int], whitening: Fields, *, judged: bool
) -> Iterator[_Way]:
    """The forms of an encoder's vectors; whitenings and codes are fitted on raw vectors, as by `shrink`.

    The first one is of raw vectors; or, if there are no judgments, of those that are coded.
    """
    raw = scored.raw.view
    own_sides = base = _finished(own.head, scored)
    known = own.head.whitening
    learned: Moments | Whitening = known or Moments()
    if known is None and (sizes or ks):
        learned = Moments(provenance={"tuned": raw.tuned}).update(scored.sides[0])

    def whitened(by: Fit) -> Sequence[np.ndarray]:
        assert by.whitening is not None
        return _finished(raw.head.then(Whiten.of(by.whitening), Normalize()), scored)

    fits = [fit(learned, bytes=size, **whitening) for size in sizes]
    mark = "" if known is None else WHITENED
    if known is None and fits and fits[0].whitening is not None:
        mark, base = WHITENED, whitened(fits[0])
    if judged:
        yield _Way(RAW, scored.sides, own=raw is own)
    if known is not None or not judged:
        yield _Way(mark or RAW, base, own=base is own_sides and own.code is None)
    for k in ks:
        yield _Way(WHITENED, whitened(fit(learned, n_components=k or None, **whitening)))
    if own.code is not None:
        yield _Way("coded", own_sides, own.code, own=True)
    codes: list[tuple[str, Code | None]] = [("code", one.code) for one in fits]
    if sizes or not judged:
        codes = [("int8", Int8().fit(base[0])), ("binary", UBinary().fit(base[0])), *codes]
    for name, code in codes:
        yield _Way(f"{mark} {name}".lstrip(), base, code)


def _measured_pairs(
    forms: Sequence[Form], gold: Float[np.ndarray, " n"], units: Int[np.ndarray, " n"], resamples: int, seed: int
) -> Measured:
    """Correlations of similarities with the scores, or how well they separate two labels."""
    measured = of_labels if len(np.unique(gold)) == 2 else of_pairs
    return measured(np.stack([form.found for form in forms]), gold, units, resamples, seed)


def _rows(forms: Sequence[Form], measured: Measured, own: int = 0, versus: int | None = None) -> tuple[Row, ...]:
    """Rows with intervals, and the paired differences of the first measure to the first form and to form `own`.

    The verdict chooses one of the encoder's forms, and one of the baselines, by their scores: the intervals of the
    differences of all of them hold at once.
    """
    others = [number for number in range(len(forms)) if number != versus]
    sized = [number for number in others if forms[number].bytes is not None]
    words = [number for number in others if forms[number].bytes is None]
    families = sized, words, [] if versus is None else [versus]
    changes = zip(measured.changes(0, families), measured.changes(own, families), strict=True)
    rows = list[Row]()
    for number, (form, of_form) in enumerate(zip(forms, changes, strict=True)):
        scores = {name: float(values[number]) for name, values in measured.scores.items()}
        rows.append(Row(*form[:3], scores, measured.intervals(number), *of_form))
    return tuple(rows)
