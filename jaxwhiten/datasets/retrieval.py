"""Retrieval data: documents, queries and which documents answer a query; made from rows of question pairs.

References:
  Su et al. 2021 (BERT-whitening), section 4.4: the Quora protocol that `from_pairs` follows.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from jaxwhiten.datasets.textfile import BadRows, line_blocks
from jaxwhiten.errors import DataError
from jaxwhiten.metrics.scores import Gold

COLUMNS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
# A quoted question may hold line ends; one that runs on for longer is a stray quotation mark.
_MAX_LINES_A_ROW = 16
_EXAMPLES = 5

Row = tuple[str, str, str, str, bool]  # query id, document id, query, document, whether they are duplicates


@dataclass(frozen=True)
class RetrievalData:
    """Documents, queries and the relevant documents of each query.

    Attributes:
      name: The data set's name.
      documents: Texts of the documents.
      document_ids: Their ids in the source.
      queries: Texts of the queries.
      query_ids: Their ids in the source.
      gold: For every query the numbers of its relevant documents; none for many queries.
      counts: What was met on reading: rows, malformed rows, ids with two texts, empty texts, queries without gold.
      conflicts: Some of the ids that stand with different texts; the first text was kept.
    """

    name: str
    documents: list[str]
    document_ids: list[str]
    queries: list[str]
    query_ids: list[str]
    gold: Gold
    counts: Mapping[str, int]
    conflicts: Sequence[str] = field(default=())


class _Side:
    """Texts by id; the first text of an id wins, a different one later is counted."""

    def __init__(self, kind: str):
        self.kind = kind
        self.number: dict[str, int] = {}
        self.texts: list[str] = []
        self.different = 0
        self.examples: list[str] = []

    def add(self, key: str, text: str) -> int:
        number = self.number.setdefault(key, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        elif self.texts[number] != text:
            self.different += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(f"{self.kind} {key}: {self.texts[number]!r:.80} and {text!r:.80}")
        return number


def from_pairs(name: str, rows: Iterable[Row], counts: Mapping[str, int] | None = None) -> RetrievalData:
    """Retrieval data in the paper's form from question pairs.

    Documents are the second questions keyed by their ids, queries the first; the first text of an id wins. The gold
    of a query are the documents of its rows marked as duplicates.

    Args:
      name: The data set's name.
      rows: (id of the query, id of the document, query, document, whether they are duplicates).
      counts: What the reader counted.

    Returns:
      The data; an empty text becomes `"."` and is counted.

    Raises:
      DataError: There are no rows.
    """
    queries, documents = _Side("query"), _Side("document")
    total, golden = 0, []
    for query_id, document_id, query, document, duplicate in rows:
        total += 1
        pair = queries.add(query_id, query), documents.add(document_id, document)
        if duplicate:
            golden.append(pair)
    if not total:
        raise DataError(f"{name}: no rows of question pairs in it.")
    pairs = np.unique(np.array(golden, dtype=np.int64).reshape(-1, 2), axis=0)
    gold = Gold.from_pairs(pairs[:, 0], pairs[:, 1], len(queries.texts))
    empty = sum(not text for side in (queries, documents) for text in side.texts)
    return RetrievalData(
        name=name,
        documents=[text or "." for text in documents.texts],
        document_ids=list(documents.number),
        queries=[text or "." for text in queries.texts],
        query_ids=list(queries.number),
        gold=gold,
        counts={
            "rows": total,
            **(counts or {}),
            "empty_texts": empty,
            "rows_with_another_text_of_a_document": documents.different,
            "rows_with_another_text_of_a_query": queries.different,
            "queries_without_gold": int((np.diff(gold.indptr) == 0).sum()),
        },
        conflicts=tuple(documents.examples + queries.examples),
    )


def read_pairs_file(path: str | os.PathLike[str], name: str | None = None) -> RetrievalData:
    """Reads a file of question pairs in Quora's columns as retrieval data.

    Args:
      path: The file, as `read_rows` takes it.
      name: The data set's name; by default the file's.

    Returns:
      The data.

    Raises:
      DataError: The file cannot be read, lacks a column, or has no good row.
    """
    rows, malformed = read_rows(path)
    return from_pairs(name or Path(path).name, rows, {"malformed_rows": malformed})


def read_rows(path: str | os.PathLike[str]) -> tuple[list[Row], int]:
    """Reads the rows of a file in Quora's columns: tab-separated, with a header, plain or gzip.

    A row with another number of columns, an empty id, a label other than 0 and 1, or broken text is left out and
    counted as malformed. A field that starts with a quotation mark may be quoted (then it may hold tabs and line
    ends) or not; both occur in such files.

    Args:
      path: The file.

    Returns:
      (qid1, qid2, question1, question2, is_duplicate) of every good row, and the number of malformed rows.

    Raises:
      DataError: The file cannot be read or lacks a column.
    """
    path = Path(path)
    bad = BadRows(path, skip=True)
    lines = list(chain.from_iterable(part for _, part in line_blocks(path, bad)))
    header = [cell.strip().strip('"') for cell in lines[0].split("\t")] if lines else []
    if missing := [column for column in COLUMNS[1:] if column not in header]:
        raise DataError(
            f"{path}, line 1: no column {', '.join(missing)} in the header; expected {', '.join(COLUMNS)}, split by"
            " tabs."
        )
    places = [header.index(column) for column in COLUMNS[1:]]
    rows: list[Row] = []
    at = 1
    while at < len(lines):
        fields, used = _fields(lines, at, len(header))
        at += used
        if fields is None:
            bad(at, "malformed")
            continue
        query_id, document_id, query, document, label = (fields[place].strip() for place in places)
        if query_id and document_id and label in ("0", "1"):
            rows.append((query_id, document_id, query, document, label == "1"))
        else:
            bad(at, "malformed")
    return rows, bad.count


def _fields(lines: Sequence[str], at: int, columns: int) -> tuple[list[str] | None, int]:
    """The fields of the row that starts at a line, or None where it is malformed, and how many lines it takes."""
    line = lines[at]
    plain = line.split("\t")
    if '"' in line:
        for used in range(1, _MAX_LINES_A_ROW + 1):
            if at + used > len(lines):
                break
            try:
                quoted = next(csv.reader(["\n".join(lines[at : at + used])], delimiter="\t", strict=True), [])
            except csv.Error as error:
                if "unexpected end" in str(error):  # an open quotation: it may end on the next line
                    continue
                break
            if len(quoted) == columns:
                return quoted, used
            break
    return (plain if len(plain) == columns else None), 1
