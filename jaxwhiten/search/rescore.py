"""Rescoring: the nearest candidates of a search in codes are scored again by a copy of their vectors in float16.

The copy is in the database of the index; a search reads only a few rows of it per query.
"""

from __future__ import annotations

import sqlite3

import numpy as np

from jaxwhiten.errors import FormatError, InputError
from jaxwhiten.search.prepare import Rows, prepared
from jaxwhiten.search.store import Ranking, unranked
from jaxwhiten.store import SQLite
from jaxwhiten.types import Int64
from jaxwhiten.whitening.affine import Affine

WIDER = 4  # candidates for each result wanted


class Rescoring:
    """The copy of vectors mapped by `prepare`, by which raw queries are mapped, too."""

    def __init__(self, prepare: Affine):
        self.prepare = prepare
        self.nbytes = 2 * prepare.outputs  # of a document

    def put(self, connection: sqlite3.Connection, rows: Int64[np.ndarray, " n"], vectors: Rows) -> None:
        """Writes the copies of the documents of rows."""
        limits = np.finfo(np.float16)
        for part, x in prepared(vectors, self.prepare):
            largest = np.abs(x).max(axis=1)
            if not ((largest >= limits.tiny) & (largest <= limits.max)).all():  # only without unit length
                size = f"{limits.tiny:.0e} to {limits.max:.0f}, the range of float16"
                raise InputError(f"A vector's largest entry is outside {size}: omit `rescore`, or normalize=False.")
            copies = (row.tobytes() for row in x.astype(np.float16))
            connection.executemany(
                "INSERT OR REPLACE INTO copies VALUES (?, ?)", zip(rows[part].tolist(), copies, strict=True)
            )

    def best(self, database: SQLite, queries: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int) -> Ranking:
        """The k best candidates, which are rows, of each raw query; ties go to the lower row.

        −1 is missing, and so is a row whose document was removed meanwhile.
        """
        numbers = sorted({*candidates.ravel().tolist()} - {-1})
        copies = dict(database.rows_of("SELECT row, data FROM copies WHERE row IN", numbers))
        if any(len(copy) != self.nbytes for copy in copies.values()):
            raise FormatError("The copies for rescoring were damaged after they were written. Rebuild the index.")
        scores, rows = unranked(len(queries), k)
        for number, (query, of_query) in enumerate(zip(self.prepare(queries), candidates.tolist(), strict=True)):
            known = sorted(copies.keys() & of_query)
            vectors = np.frombuffer(b"".join([copies[row] for row in known]), np.float16).astype(np.float32)
            cosines = vectors.reshape(len(known), self.prepare.outputs) @ query
            best = np.argsort(-cosines, kind="stable")[:k]
            scores[number, : len(best)] = cosines[best]
            rows[number, : len(best)] = np.array(known, np.int64)[best]
        return scores, rows
