"""Codes of others, for comparison with the codes of an index: `pq`, `opq` and `rabitq` of FAISS, `turbovec` of the
package of that name, where it is installed, and `truncated`, the first columns of raw vectors in a byte each.

The others are searched after the whitening, all by the distance to the decoded vectors. `rabitq` is behind a random
rotation, as its authors have it, and the rotation of `opq` is trained for as many rounds as FAISS does by default.
`turbovec` rotates by itself. `truncated` is for encoders that are trained for it (configs/matryoshka.py).
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from jaxwhiten import Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import hardware

COMPARATORS = ("pq", "opq", "rabitq", "turbovec", "truncated")
# Bytes added to every vector, for the fewest bits a dimension and for more, and the fewest and the most bits.
_FACTORS = {"rabitq": (8, 20, 1, 9), "turbovec": (4, 4, 2, 4)}
_SEED = 1234


def factory(name: str, size: int, k: int) -> tuple[str, int, int]:
    """The description of a code of vectors of k columns, for `faiss.index_factory` or a class below.

    Args:
      name: One of `COMPARATORS`.
      size: Maximum bytes per vector.
      k: Columns.

    Returns:
      The description, the number of coded columns (if more than k, padded with zeros), and the bytes per vector.

    Raises:
      InputError: The code does not fit into `size` bytes.
    """
    if name in ("pq", "opq"):
        if size > k:
            raise InputError(f"it cuts vectors into {size} parts: they have {k} columns")
        return f"OPQ{size}," * (name == "opq") + f"PQ{size}x8np", math.ceil(k / size) * size, size
    if name == "truncated":
        if size > k:
            raise InputError(f"vectors have {k} columns")
        return "SQ8", size, size
    of_fewest, added, fewest, most = _FACTORS[name]
    bits = next((b for b in range(most, fewest, -1) if -(-k * b // 8) + added <= size), fewest)
    columns = k
    if bits == fewest:
        added = of_fewest
        columns = min(k, 8 * (size - added) // fewest)
    if name == "turbovec":
        columns = columns - columns % 8
    if columns < 1:
        raise InputError(f"it needs more than {size} bytes")
    description = str(bits)
    if name == "rabitq":
        description = f"RR{columns},RaBitQ" + f"{bits}" * (bits > 1)
    return description, columns, -(-columns * bits // 8) + added


class _TurboVec:
    """The index of the package turbovec, for vectors of unit length."""

    def __init__(self, columns: int, bits: int) -> None:
        from turbovec import TurboQuantIndex

        self._index = TurboQuantIndex(dim=columns, bit_width=bits)

    def train(self, x: np.ndarray) -> None:
        """Nothing is trained."""

    def add(self, x: np.ndarray) -> None:
        self._index.add(x)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, ids = self._index.search(queries, k=k)
        return 2 - 2 * scores, ids


def _seed(quantizer: Any) -> None:
    """Makes the k-means of a product quantizer repeatable, on any number of rows."""
    quantizer.cp.seed = _SEED
    quantizer.cp.min_points_per_centroid = 1


class Comparator:
    """Documents in a code that is trained on rows of a fit, with the part of an index that a search needs.

    Attributes:
      size: Number of documents.
      bytes: Per document.
    """

    def __init__(self, name: str, size: int, rows: np.ndarray, whitening: Whitening, documents: np.ndarray) -> None:
        import faiss

        if name == "turbovec" and find_spec(name) is None:
            raise InputError("its package is not installed")
        weight, bias = whitening.kernel
        if name == "truncated":
            weight, bias = np.eye(len(weight), dtype=np.float32), np.zeros(len(weight), np.float32)
        kind, columns, self.bytes = factory(name, size, len(bias))
        padding = max(0, columns - len(bias))
        linear = faiss.LinearTransform(len(weight), columns, True)
        matrix = np.pad(weight, ((0, 0), (0, padding)))[:, :columns]
        faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, np.float32).ravel(), linear.A)
        faiss.copy_array_to_vector(np.pad(bias, (0, padding))[:columns], linear.b)
        linear.is_trained = True
        self._chain = (linear, faiss.NormalizationTransform(columns, 2.0))
        self.size = len(documents)
        self._index: Any
        if name == "turbovec":
            self._index = _TurboVec(columns, int(kind))
        else:
            self._index = faiss.index_factory(columns, kind, faiss.METRIC_L2)
        if name == "opq":
            rotation = faiss.downcast_VectorTransform(self._index.chain.at(0))
            self._rotating = rotation.pq = faiss.ProductQuantizer(columns, size, 8)  # only pointed to
            _seed(self._rotating)
            _seed(faiss.downcast_index(self._index.index).pq)
        if name == "pq":
            _seed(self._index.pq)
        # The k-means of a few columns is sooner done by one thread and matrix products.
        with hardware.faiss_on_one_thread(), hardware.faiss_products():
            self._index.train(self.prepare(rows))
        self._index.add(self.prepare(documents))

    def prepare(self, x: np.ndarray) -> np.ndarray:
        """Raw vectors in the form that is coded and searched."""
        for step in self._chain:
            x = step.apply(x)
        return x

    def search(self, queries: np.ndarray, k: int, *, prepared: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The k best of each query: scores as an index gives them, and ids."""
        if not prepared:
            queries = self.prepare(queries)
        distances, ids = self._index.search(queries, k)
        return 1 - distances / 2, ids
