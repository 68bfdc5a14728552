"""Codes of others, for comparison with the codes of an index: `pq`, `opq`, `lsq`, `rabitq` and `eden` of FAISS, the
codes of the packages `rabitqlib`, `turbovec`, `remex` and `turboquant_pro`, where they are installed, and `scalar`,
which rounds every axis by itself.

They are searched after the whitening, by the distance to the decoded vectors. `rabitq` and `eden` are behind a random
rotation, as their authors have it, and the rotation of `opq` is trained for as many rounds as FAISS does by default.
`lsq` is trained with FAISS's defaults. The packages rotate by themselves. `remex` and `turboquant_pro` keep a length
for each vector, so that they code as many of the first principal axes as fit, with the bits that find most of
float32's first ten among 7,000 passages of Wikipedia (all-MiniLM-L6-v2, 1 to 4 bits): 2, or 3 from two bits an axis on.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from jaxwhiten import Whitening
from jaxwhiten.errors import InputError
from jaxwhiten.runtime import hardware

COMPARATORS = ("scalar", "pq", "opq", "lsq", "rabitq", "eden", "rabitqlib", "turbovec", "remex", "turboquant_pro")
_LENGTH = 4  # bytes of the length that `remex` and `turboquant_pro` keep
# Bytes added to every vector, for the fewest bits a dimension and for more, and the most bits.
_FACTORS = {"rabitq": (8, 20, 9), "eden": (8, 8, 8), "rabitqlib": (16, 24, 9), "turbovec": (4, 4, 4)}
_FAISS_NAMES = {"rabitq": "RaBitQ", "eden": "EDEN"}  # of those that `faiss.index_factory` makes
_SEED = 1234


def factory(name: str, size: int, k: int) -> tuple[str, int, int]:
    """The description of a code of whitened vectors of k columns, for `faiss.index_factory` or a class below.

    Args:
      name: One of `COMPARATORS`.
      size: Maximum bytes per vector.
      k: Columns.

    Returns:
      The description, the number of coded columns (if more than k, padded with zeros), and the bytes per vector.

    Raises:
      InputError: The code does not fit into `size` bytes.
    """
    if name == "scalar":
        return "", k, size
    if name in ("pq", "opq"):
        if size > k:
            raise InputError(f"it cuts vectors into {size} parts: they have {k} columns")
        return f"OPQ{size}," * (name == "opq") + f"PQ{size}x8np", math.ceil(k / size) * size, size
    if name == "lsq":
        return f"LSQ{size}x8", k, size
    if name in _OF_AXES:
        bits = 3 if 8 * size >= 2 * k else 2
        columns = min(k, 8 * (size - _LENGTH) // bits)
        return str(bits), columns, -(-columns * bits // 8) + _LENGTH
    of_fewest, added, most = _FACTORS[name]
    fewest = 1
    if name == "turbovec":
        fewest = 2
    bits = next((b for b in range(most, fewest, -1) if -(-k * b // 8) + added <= size), fewest)
    columns = k
    if bits == fewest:
        added = of_fewest
        columns = min(k, 8 * (size - added) // fewest)
    if name == "rabitqlib":
        columns = max(64, columns)
    elif name == "turbovec":
        columns = columns - columns % 8
    if columns < 1:
        raise InputError(f"it needs more than {size} bytes")
    description = str(bits)
    if name in _FAISS_NAMES:
        description = f"RR{columns},{_FAISS_NAMES[name]}" + f"{bits}" * (bits > 1)
    return description, columns, -(-columns * bits // 8) + added


class _RaBitQLib:
    """The index of RaBitQ's authors with a single list."""

    def __init__(self, columns: int, bits: int) -> None:
        self._options = {"dim": columns, "nbits": bits, "num_clusters": 1, "metric": "l2"}

    def train(self, x: np.ndarray) -> None:
        """Nothing is trained."""

    def add(self, x: np.ndarray) -> None:
        from rabitqlib import IvfIndex

        self._index = IvfIndex(max_elements=len(x), **self._options)
        self._index.build(x, x.mean(axis=0, keepdims=True), np.zeros(len(x), np.uint32))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        ids, distances = self._index.search(queries, k=k, nprobe=1)
        return distances, ids.astype(np.int64)


class _TurboVec(_RaBitQLib):
    """The index of the package turbovec, for vectors of unit length."""

    def add(self, x: np.ndarray) -> None:
        from turbovec import TurboQuantIndex

        self._index = TurboQuantIndex(dim=self._options["dim"], bit_width=self._options["nbits"])
        self._index.add(x)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, ids = self._index.search(queries, k=k)
        return 2 - 2 * scores, ids


class _Remex(_RaBitQLib):
    """The codes of the package remex, decoded and searched by dot products."""

    def add(self, x: np.ndarray) -> None:
        import faiss
        from remex import Quantizer

        quantizer = Quantizer(d=self._options["dim"], bits=self._options["nbits"])
        self._index = faiss.IndexFlatIP(x.shape[1])
        self._index.add(np.ascontiguousarray(quantizer.decode(quantizer.encode(x)), np.float32))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, ids = self._index.search(queries, k)
        return 2 - 2 * scores, ids


class _TurboQuantPro(_RaBitQLib):
    """The index of the package turboquant-pro, which chooses the principal axes by itself."""

    def train(self, x: np.ndarray) -> None:
        from turboquant_pro import ADCIndex, PCAMatryoshka

        axes = PCAMatryoshka(input_dim=x.shape[1], output_dim=self._options["dim"])
        axes.fit(x)
        self._index = ADCIndex(axes.with_quantizer(bits=self._options["nbits"]))

    def add(self, x: np.ndarray) -> None:
        self._index.add(x)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        ids, scores = self._index.search(queries, k=k)
        return 2 - 2 * scores, ids


_PACKAGES = {
    "rabitqlib": _RaBitQLib,
    "turbovec": _TurboVec,
    "remex": _Remex,
    "turboquant_pro": _TurboQuantPro,
}
_OF_AXES = ("remex", "turboquant_pro")


def _nearest(levels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The number of the nearest of rising levels, for each value."""
    return np.searchsorted((levels[1:] + levels[:-1]) / 2, values)


class _Scalar:
    """Lloyd-Max levels on each axis, with bits where they lower the error most: the spectrum code before codebooks."""

    def __init__(self, columns: int, size: int) -> None:
        import faiss

        self._bits = 8 * size
        self._index = faiss.IndexFlatL2(columns)

    def train(self, x: np.ndarray) -> None:
        from scipy.special import ndtri

        normal = ndtri((np.arange(1 << 13) + 0.5) / (1 << 13))
        levels = []
        errors = []
        for count in 2 ** np.arange(9):
            values = normal[(2 * np.arange(count) + 1) * len(normal) // (2 * count)] * 3**0.5  # by Panter and Dite
            for _ in range(20):
                nearest = _nearest(values, normal)
                counts = np.bincount(nearest, minlength=count)
                values = np.where(counts, np.bincount(nearest, normal, count) / np.maximum(counts, 1), values)
            levels.append(values)
            errors.append(np.square(normal - values[_nearest(values, normal)]).mean())
        gains = -np.diff(errors)[:, None] * x.var(axis=0)
        chosen = np.argsort(-gains, axis=None, kind="stable")[: self._bits]
        self._levels = [
            levels[bits] * spread
            for bits, spread in zip(np.bincount(chosen % x.shape[1], minlength=x.shape[1]), x.std(axis=0), strict=True)
        ]

    def add(self, x: np.ndarray) -> None:
        decoded = [levels[_nearest(levels, column)] for levels, column in zip(self._levels, x.T, strict=True)]
        self._index.add(np.ascontiguousarray(np.stack(decoded, axis=1), np.float32))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self._index.search(queries, k)


def _linear(matrix: np.ndarray, bias: np.ndarray | None = None) -> Any:
    """FAISS's map of rows x to x @ matrix + bias."""
    import faiss

    linear = faiss.LinearTransform(*matrix.shape, bias is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, np.float32).ravel(), linear.A)
    if bias is not None:
        faiss.copy_array_to_vector(bias, linear.b)
    linear.is_trained = True
    return linear


def _seed(quantiser: Any) -> None:
    """Makes the k-means of a product quantiser repeatable, on any number of rows."""
    quantiser.cp.seed = _SEED
    quantiser.cp.min_points_per_centroid = 1


class Comparator:
    """Documents in a code that is trained on rows of a fit, with the part of an index that a search needs.

    Attributes:
      size: Number of documents.
      bytes: Per document.
    """

    def __init__(self, name: str, size: int, rows: np.ndarray, whitening: Whitening, documents: np.ndarray) -> None:
        import faiss

        if name in _PACKAGES and find_spec(name) is None:
            raise InputError("its package is not installed")
        weight, bias = whitening.kernel
        kind, columns, self.bytes = factory(name, size, len(bias))
        padding = max(0, columns - len(bias))
        matrix = np.pad(weight, ((0, 0), (0, padding)))[:, :columns]
        linear = _linear(matrix, np.pad(bias, (0, padding))[:columns])
        self._chain = (linear, faiss.NormalizationTransform(columns, 2.0))
        self.size = len(documents)
        if name in _OF_AXES:
            self._chain = self._with_lengths(name, linear, whitening)
        if name == "scalar":
            self._index: Any = _Scalar(columns, size)
        elif name in _PACKAGES:
            self._index = _PACKAGES[name](columns, int(kind))
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

    @staticmethod
    def _with_lengths(name: str, linear: Any, whitening: Whitening) -> tuple[Any, ...]:
        """The steps before a code that keeps lengths: unit length, the whitening and, for remex, its first axes."""
        import faiss

        weight, bias = whitening.kernel
        unit = faiss.NormalizationTransform(len(weight), 2.0)
        if whitening.gamma == 0:  # turned, and nothing else
            if name == "turboquant_pro":
                return (unit,)
            return (unit, linear)
        whitened = (_linear(weight, bias), faiss.NormalizationTransform(len(bias), 2.0))
        if name == "turboquant_pro":
            return whitened
        return (*whitened, _linear(np.eye(len(bias), linear.d_out)))

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
