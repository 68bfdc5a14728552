"""Retrieval data: documents, queries and the relevant documents of each query, from pairs or a BEIR folder.

References:
  Su et al. 2021 (BERT-whitening), section 4.4: the Quora protocol that `from_pairs` follows.
  Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxwhiten.datasets.columns import SEARCHES
from jaxwhiten.datasets.splits import sentence_key
from jaxwhiten.datasets.sts import read_kind
from jaxwhiten.datasets.tables import Table, read_header, read_table, table_rows
from jaxwhiten.errors import DataError, NonFiniteError, warn
from jaxwhiten.io import PathLike
from jaxwhiten.metrics.scores import Gold
from jaxwhiten.terminal import brief, counted, note
from jaxwhiten.text import as_texts
from jaxwhiten.types import Int

# Query id, document id, query, document, and how relevant it is: 0 or less for not at all; True is 1.
Row = tuple[str, str, str, str | None, float | bool]


@dataclass(frozen=True)
class RetrievalData:
    """Documents, queries and the relevant documents of each query.

    >>> data = from_pairs("pets", [("q1", "d1", "a dog", "A dog runs.", True)])
    >>> data.documents, data.gold.ids
    (['A dog runs.'], array([0]))
    """

    name: str
    documents: list[str]
    queries: list[str]
    gold: Gold  # indices and grades of each query's relevant documents, often none; those missing have the highest
    counts: Mapping[str, int]  # what the reader counted
    own: Int[np.ndarray, " q"] | None = None  # the document that is each query itself in a BEIR folder, or −1

    __repr__ = brief

    @property
    def own_documents(self) -> int:
        """The number of queries whose own document is left out of their results (`others`)."""
        return 0 if self.own is None else int((self.own >= 0).sum())

    def with_gold(self) -> RetrievalData:
        """These documents with the queries that have relevant ones among them."""
        return self.of(np.flatnonzero(np.diff(self.gold.indptr)))

    def with_corpus(self, texts: Iterable[str]) -> RetrievalData:
        """These queries with further documents, which are relevant to none; a text that is there already is left out.

        >>> pets = from_pairs("pets", [("q1", "d1", "a dog", "A dog runs.", True)])
        >>> pets.with_corpus(["Rain.", "A dog runs."]).documents
        ['A dog runs.', 'Rain.']
        """
        present = set(self.documents)
        given = dict.fromkeys(text or "." for text in as_texts(texts, "document"))
        more = [text for text in given if text not in present]
        missing = self.gold.ids >= len(self.documents)  # keep numbers that no document has
        gold = self.gold._replace(ids=self.gold.ids + len(more) * missing)
        return dataclasses.replace(self, documents=[*self.documents, *more], gold=gold)

    @property
    def only_relevant(self) -> bool:
        """Whether every document is relevant to a query, so that a search is easier than one of a whole corpus."""
        return {*self.gold.ids.tolist()}.issuperset(range(len(self.documents)))

    def of(self, rows: Int[np.ndarray, " r"]) -> RetrievalData:
        """These documents with some of the queries, by their numbers."""
        queries = [self.queries[row] for row in rows]
        own = None if self.own is None else self.own[rows]
        return dataclasses.replace(self, queries=queries, gold=self.gold.of(rows), own=own)

    def others(self, ids: Int[np.ndarray, "q k"]) -> Int[np.ndarray, "q m"]:
        """The results of every query but for its own document, as BEIR has it; one fewer if any query has one.

        A document that is judged relevant for a query is not its own.
        """
        if self.own is None or not self.own_documents:
            return ids
        order = np.argsort(ids == self.own[:, None], axis=1, kind="stable")
        return np.take_along_axis(ids, order[:, :-1], axis=1)


def from_pairs(
    name: str, rows: Iterable[Row], counts: Mapping[str, int] | None = None, corpus: Iterable[tuple[str, str]] = ()
) -> RetrievalData:
    """Builds retrieval data from question pairs, following the paper.

    The first questions are the queries and the second questions the documents, both by id with the first text of an id.
    The gold of a query are the documents of its rows with a grade above 0, the highest where rows repeat. Empty texts
    become `"."`. `corpus` gives ids and texts of
    documents, which need not occur in a row; a document of a row whose text is None is relevant and never found. A
    grade that is NaN or infinite raises a NonFiniteError.

    >>> rows = [("q1", "d1", "a dog", "A dog runs.", True), ("q1", "d2", "a dog", "It rains.", False)]
    >>> from_pairs("pets", rows).documents
    ['A dog runs.', 'It rains.']
    """
    queries = dict[str, str]()
    documents: dict[str, str | None] = dict(corpus)
    grades = dict[tuple[str, str], float]()
    for query_id, document_id, query, document, grade in rows:
        if not math.isfinite(grade):
            judged = f"query {query_id!r:.60} and document {document_id!r:.60}"
            raise NonFiniteError(f"{name}: the grade of {judged} is {grade}, expected a finite number.")
        queries.setdefault(query_id, query)
        documents.setdefault(document_id, document)
        if grade > 0:
            grades[query_id, document_id] = max(grade, grades.get((query_id, document_id), 0))
    if not queries:
        raise DataError(f"{name}: contains no pairs.")
    present = {key: text for key, text in documents.items() if text is not None}
    query_number = {key: number for number, key in enumerate(queries)}
    number = {key: number for number, key in enumerate([*present, *(documents.keys() - present)])}
    ordered = sorted((query_number[query], number[document], grade) for (query, document), grade in grades.items())
    in_queries, in_documents, gains = np.array(ordered, np.float64).reshape(-1, 3).T
    gold = Gold.from_pairs(
        in_queries.astype(np.int64), in_documents.astype(np.int64), len(queries), gains if (gains != 1).any() else None
    )
    return RetrievalData(
        name=name,
        documents=[text or "." for text in as_texts(list(present.values()), "document")],
        queries=[text or "." for text in as_texts(list(queries.values()), "query")],
        gold=gold,
        counts=counts or {},
    )


def read_own(source: PathLike | Table) -> RetrievalData:
    """Reads a BEIR folder, or a table of queries and documents by their usual names.

    A BEIR folder has `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv`, or a single other file of judgments;
    queries without judgments are ignored. Judged documents that the corpus lacks are counted, with a warning, and
    never found. A row of a table names a relevant document of a query, unless its score, label or relevance is 0. Those
    above 1 are grades, the gains of nDCG. A note says which columns are read.

    >>> read_own("searches.tsv").queries
    ['a dog', 'rain']

    Raises:
      InputError: Several columns have usual names of one role.
      DataError: A file is missing or damaged, or a judgment names a missing query; the message names file and line.
    """
    if not isinstance(source, Table) and Path(source).is_dir():
        return _read_beir(Path(source))
    table = read_kind(source, SEARCHES, ("query", "document", "label"))
    grades = table.numbers("label") if "label" in table else np.ones(len(table.lines))
    pairs = zip(table.texts("query"), table.texts("document"), grades.tolist(), strict=True)
    return from_pairs(table.path.name, ((query, document, query, document, gain) for query, document, gain in pairs))


def _read_beir(folder: Path) -> RetrievalData:
    files = sorted((folder / "qrels").glob("*.tsv"))
    path = files[0] if len(files) == 1 else folder / "qrels" / "test.tsv"
    judged = read_table(path, {"query": "query-id", "document": "corpus-id", "score": "score"})
    queries, documents = (_by_id(folder / f"{name}.jsonl") for name in ("queries", "corpus"))
    rows = list[Row]()
    for row, (query, document, grade) in enumerate(
        zip(judged["query"], judged["document"], judged.numbers("score").tolist(), strict=True)
    ):
        if query not in queries:
            raise DataError(f"{judged.where(row)}: the query {query!r:.80} is not in {folder / 'queries.jsonl'}.")
        rows.append((query, document, queries[query][0], documents.get(document, (None,))[0], grade))
    data = from_pairs(folder.name, rows, corpus=((key, text) for key, (text, _) in documents.items()))
    if missing := {*judged["document"]} - documents.keys():
        warn(f"{path}: {len(missing):,} judged documents are not in the corpus: never found.")
    number = {key: i for i, key in enumerate(documents)}
    relevant = {query for query, document, *_, grade in rows if query == document and grade > 0}
    own = [
        number[key]
        if key in number.keys() - relevant and sentence_key(queries[key][0]) in map(sentence_key, documents[key])
        else -1
        for key in dict.fromkeys(judged["query"])
    ]
    data = dataclasses.replace(data, own=np.array(own))
    if count := data.own_documents:
        note(f"{folder}: {counted(count, 'documents')} left out of the results of the query with the same id and text")
    return data


def _by_id(path: Path) -> dict[str, tuple[str, str]]:
    """Texts by id, each with its title in front, if it has one, and alone."""
    titles = sorted({"title"} & {*read_header(path)})
    texts = dict[str, tuple[str, str]]()
    for _, (key, text, *title) in table_rows(path, ["_id", "text"], keep=titles):
        texts[str(key)] = " ".join(map(str, filter(None, [*title, text]))).strip(), str(text)
    return texts
