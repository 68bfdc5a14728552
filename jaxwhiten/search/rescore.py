"""Rescoring: the nearest candidates of a search in codes are scored again by a finer copy of their vectors.

The copy is in the database of the index; a search reads only a few rows of it per query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from jaxwhiten.codes import Code, load_code, make_code
from jaxwhiten.errors import FormatError, InputError, check_name
from jaxwhiten.io import same
from jaxwhiten.search.header import Header, get_file, put_file
from jaxwhiten.search.prepare import Rows, prepared
from jaxwhiten.store import SQLite, delete
from jaxwhiten.types import Float32, Int64, Shaped
from jaxwhiten.whitening.affine import Affine

COPIES = ("float16", "int8")
WIDER = 4  # candidates for each result wanted
_CODE = "rescore_code.safetensors"


class Rescoring:
    """A copy of the prepared vectors, in float16 or by a `code` of one byte per column.

    `prepare` maps a raw query before it is compared with the copy.
    """

    def __init__(self, prepare: Affine, code: Code | None):
        self.prepare = prepare
        self.code = code

    @classmethod
    def of(cls, copy: str, vectors: Rows, prepare: Affine) -> Rescoring:
        """How raw vectors are copied."""
        code = None
        if copy == "int8":
            code = make_code("uint8")
            for _, x in prepared(vectors, prepare):
                code.partial_fit(x)
        return cls(prepare, code)

    @property
    def nbytes(self) -> int:
        """The bytes of a document."""
        return self.prepare.outputs * (2 if self.code is None else 1)

    def copies(self, vectors: Rows) -> Iterator[bytes]:
        """The copies of raw vectors."""
        for _, x in prepared(vectors, self.prepare):
            yield from (row.tobytes() for row in self._kept(x))

    def _kept(self, x: np.ndarray) -> Shaped[np.ndarray, "n k"]:
        if self.code is not None:
            return np.asarray(self.code.encode(x))
        largest = np.abs(x).max(axis=1)
        limits = np.finfo(np.float16)
        if not ((largest >= limits.tiny) & (largest <= limits.max)).all():  # only without unit length
            size = f"{limits.tiny:.0e} to {limits.max:.0f}, the range of float16"
            raise InputError(f"A vector's largest entry is outside {size}: use rescore='int8'.")
        return x.astype(np.float16)

    def best(
        self, database: SQLite, queries: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k best candidates, which are rows, of each raw query; ties go to the lower row.

        −1 is missing, and so is a row whose document was removed meanwhile.
        """
        numbers = sorted({*candidates.ravel().tolist()} - {-1})
        copies = dict(database.rows_of("SELECT row, data FROM copies WHERE row IN", numbers))
        scores = np.full((len(queries), k), -np.inf, np.float32)
        rows = np.full((len(queries), k), -1, np.int64)
        for number, (query, of_query) in enumerate(zip(self.prepare(queries), candidates.tolist(), strict=True)):
            known = sorted(copies.keys() & of_query)
            cosines = self._vectors([copies[row] for row in known]) @ query
            best = np.argsort(-cosines, kind="stable")[:k]
            scores[number, : len(best)] = cosines[best]
            rows[number, : len(best)] = np.array(known, np.int64)[best]
        return scores, rows

    def _vectors(self, copies: Sequence[bytes]) -> Float32[np.ndarray, "n k"]:
        """The vectors of copies as they are in the database; FormatError if one is not whole."""
        if any(len(copy) != self.nbytes for copy in copies):
            raise FormatError("The copies for rescoring were damaged after they were written. Rebuild the index.")
        array = np.frombuffer(b"".join(copies), np.float16 if self.code is None else np.uint8)
        array = array.reshape(len(copies), self.prepare.outputs)
        return array.astype(np.float32) if self.code is None else self.code.decode(array)

    def put(self, connection: sqlite3.Connection, rows: Int64[np.ndarray, " n"], vectors: Rows) -> None:
        """Writes the copies of the documents of rows."""
        pairs = zip(rows.tolist(), self.copies(vectors), strict=True)
        connection.executemany("INSERT OR REPLACE INTO copies VALUES (?, ?)", pairs)

    @staticmethod
    def remove(connection: sqlite3.Connection, rows: list[int]) -> None:
        delete(connection, "DELETE FROM copies WHERE row IN", rows)

    def write(self, connection: sqlite3.Connection) -> None:
        """Writes what is needed to read the copies."""
        if self.code is not None:
            put_file(connection, _CODE, self.code.save)

    @classmethod
    def read(cls, connection: sqlite3.Connection, header: Header, prepare: Affine) -> Rescoring:
        """The reverse of `write`, with the map of the index; ValueError if the file does not fit the header."""
        check_name("copy to rescore by", header.rescore, COPIES)
        unit_length = header.normalize or header.codes is not None  # of codes, the copy alone has unit length
        code = None
        if header.rescore == "int8":
            code = get_file(connection, _CODE, load_code)
            same("dimensions of the copy to rescore by", code and code.nbytes, prepare.outputs)
        return cls(prepare.in_float32(unit_length=unit_length), code)
