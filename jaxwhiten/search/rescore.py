"""Rescoring: the nearest candidates of a search in codes are scored again by a finer copy of their vectors.

The copy is a memory-mapped file; a search reads only a few rows of it per query.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxwhiten.codes import Code, load_code, make_code
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.io import same, take
from jaxwhiten.search.header import COPY, Files, Header
from jaxwhiten.search.prepare import prepared, read_map, write_map
from jaxwhiten.types import Float32, Int64, Shaped
from jaxwhiten.whitening.affine import Affine

COPIES = ("float16", "int8")
WIDER = 4  # candidates for each result wanted
_CODE = "rescore_code.safetensors"
_MAP = "rescore_map.safetensors"


class Rescoring:
    """A copy of the prepared vectors, in float16 or by a `code` of one byte per column.

    `prepare` maps a raw query before it is compared with the copy.
    """

    def __init__(self, prepare: Affine, rows: Shaped[np.ndarray, "n k"], code: Code | None):
        self.prepare = prepare
        self.rows = rows
        self.code = code

    @classmethod
    def of(cls, copy: str, vectors: np.ndarray, prepare: Affine) -> Rescoring:
        """Makes the copy from raw vectors."""
        code = None
        if copy == "int8":
            code = make_code("uint8")
            for _, x in prepared(vectors, prepare):
                code.partial_fit(x)
        result = cls(prepare, np.empty((0, prepare.outputs)), code)
        result.rows = np.concatenate([result._kept(x) for _, x in prepared(vectors, prepare)])
        return result

    def __len__(self) -> int:
        return len(self.rows)

    def plus(self, vectors: np.ndarray) -> Rescoring:
        return Rescoring(self.prepare, np.concatenate([self.rows, self._kept(self.prepare(vectors))]), self.code)

    def taken(self, keep: np.ndarray) -> Rescoring:
        return Rescoring(self.prepare, self.rows[keep], self.code)

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
        self, queries: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k best candidates of each raw query; candidate −1 is missing, and ties go to the lower id."""
        prepared = self.prepare(queries)
        scores = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        for row, (query, rows_of_query) in enumerate(zip(prepared, np.sort(candidates, axis=1), strict=True)):
            rows = self.rows[np.maximum(rows_of_query, 0)]
            vectors = rows.astype(np.float32) if self.code is None else self.code.decode(rows)
            cosines = np.where(rows_of_query >= 0, vectors @ query, -np.inf)
            order = np.argsort(-cosines, kind="stable")[:k]
            scores[row], ids[row] = cosines[order], rows_of_query[order]
        return scores, ids

    def write(self, folder: Path) -> None:
        """Writes what is needed to read the copy, which is saved as `COPY`."""
        if self.code is not None:
            self.code.save(folder / _CODE)
        write_map(folder / _MAP, self.prepare)

    @classmethod
    def read(cls, files: Files, header: Header) -> Rescoring:
        """The reverse of `write`; ValueError or KeyError if the files do not fit the header."""
        unit_length = header.normalize or header.codes is not None  # of codes, the copy alone has unit length
        prepare, _ = read_map(files.get(_MAP), header.input_dimension, unit_length)
        rows = files.array(COPY)
        code = load_code(files[_CODE]) if header.rescore == "int8" else None
        kind = "float16" if code is None else "uint8"
        width = prepare.outputs if code is None else code.nbytes
        check_name("copy to rescore by", header.rescore, COPIES)
        same("dimensions of the copy to rescore by", prepare.outputs, width)
        take({"copy": rows}, kind, finite=False, copy=(header.size, width))
        return cls(prepare, rows, code)
