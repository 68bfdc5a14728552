"""A second look at what a search of codes found: the nearest candidates, by a finer copy of their vectors.

The copy is a memory-mapped file, of which a search reads a few rows per query.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import Code, load_code, make_code
from jaxwhiten.errors import unknown_name
from jaxwhiten.io import load_tensors, map_array, save_tensors
from jaxwhiten.search.prepare import BLOCK_ROWS
from jaxwhiten.whitening.affine import Affine

COPIES = ("float16", "int8")
WIDER = 4  # candidates for each result wanted
_ROWS, _CODE, _MAP = "rescore.npy", "rescore_code.safetensors", "rescore_map.safetensors"
_KIND = "rescoring map"


class Rescoring:
    """A copy of the prepared vectors, in float16 or a byte per column.

    Attributes:
      copy: `"float16"` or `"int8"`.
      prepare: What is done to a raw vector before it is compared with the copy.
      rows: The copy, in the order of the documents.
      code: What gives its bytes, or None for float16.
    """

    def __init__(self, copy: str, prepare: Affine, rows: Shaped[np.ndarray, "n k"], code: Code | None):
        self.copy, self.prepare, self.rows, self.code = copy, prepare, rows, code

    @classmethod
    def of(cls, copy: str, vectors: np.ndarray, prepare: Affine) -> Rescoring:
        """The copy of raw vectors.

        Raises:
          InputError: No such copy.
        """
        if copy not in COPIES:
            raise unknown_name("copy to rescore by", copy, COPIES)
        parts = list(blocks(len(vectors), BLOCK_ROWS))
        code = None
        if copy == "int8":
            code = make_code("uint8")
            for part in parts:
                code.partial_fit(prepare(vectors[part]))
        result = cls(copy, prepare, np.empty((0, prepare.outputs)), code)
        result.rows = np.concatenate([result.kept(vectors[part]) for part in parts])
        return result

    def kept(self, vectors: np.ndarray) -> Shaped[np.ndarray, "n k"]:
        """What is kept of raw vectors."""
        x = self.prepare(vectors)
        return x.astype(np.float16) if self.code is None else np.asarray(self.code.encode(x))

    def best(
        self, queries: np.ndarray, candidates: Int64[np.ndarray, "q c"], k: int
    ) -> tuple[Float32[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The k best of each raw query's candidates, of which −1 is none; of equal ones the lower id."""
        prepared = self.prepare(queries)
        scores, ids = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for row, (query, found) in enumerate(zip(prepared, np.sort(candidates, axis=1), strict=True)):
            rows = self.rows[np.maximum(found, 0)]
            vectors = rows.astype(np.float32) if self.code is None else self.code.decode(rows)
            cosines = np.where(found >= 0, vectors @ query, -np.inf)
            order = np.argsort(-cosines, kind="stable")[:k]
            scores[row], ids[row] = cosines[order], found[order]
        return scores, ids

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self.rows.nbytes

    def write(self, folder: Path) -> None:
        """Writes the copy, and what is needed to read it."""
        np.save(folder / _ROWS, self.rows)
        if self.code is not None:
            self.code.save(folder / _CODE)
        if self.prepare.matrix is not None:
            tensors = dict(zip(("weight", "bias"), self.prepare.kernel, strict=True))
            save_tensors(folder / _MAP, tensors, kind=_KIND, header={})

    @classmethod
    def read(cls, copy: str, files: Mapping[str, Path], size: int, prepare: Affine) -> Rescoring:
        """The reverse of `write`; ValueError or KeyError where the files do not fit an index of raw vectors.

        Args:
          copy: As the header says.
          files: By the names `write` gave them.
          size: Documents.
          prepare: Of the index, without its map.
        """
        if _MAP in files:
            tensors, _ = load_tensors(files[_MAP], kind=_KIND)
            prepare = Affine.of_kernel(tensors["weight"], tensors["bias"], unit_length=prepare.unit_length)
        rows = map_array(files[_ROWS])
        code = load_code(files[_CODE]) if copy == "int8" else None
        wanted = (size, prepare.outputs), np.dtype(np.float16 if code is None else np.uint8)
        if (rows.shape, rows.dtype) != wanted or (code is not None and code.nbytes != rows.shape[1]):
            raise ValueError(f"{rows.dtype} rows of shape {rows.shape} to rescore by, unlike the header")
        return cls(copy, prepare, rows, code)
