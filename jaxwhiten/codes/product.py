"""A code as a product quantiser: each byte, or each half of a byte, selects a centroid of a few coordinates.

References:
  Jégou, Douze, Schmid 2011, "Product quantization for nearest neighbor search", section II.B. Here the centroids are
  not trained on vectors.
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC", for halves of bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from jaxwhiten.errors import optional
from jaxwhiten.whitening.affine import Affine


class Quantiser(NamedTuple):
    """A code as a product quantiser."""

    name: str  # of the code
    affine: Affine  # maps a vector to coordinates, grouped by byte and padded with zeros
    # The coordinates of each value of each byte, or of each half of a byte.
    centroids: Float32[np.ndarray, "groups values width"]
    length: float = 1.0  # see `Plan.length`

    @property
    def bits(self) -> int:
        """Bits of a group: 8, or 4 if groups are halves of bytes."""
        return self.centroids.shape[1].bit_length() - 1

    @property
    def nbytes(self) -> int:
        """Bytes of a vector's code."""
        return len(self.centroids) * self.bits // 8

    def coordinates(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n coordinates"]:
        """The coordinates that codes represent."""
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
        return self.centroids[np.arange(len(self.centroids)), codes].reshape(len(codes), -1)

    def empty_pq(self) -> Any:
        """An empty `faiss.IndexPQ` over the coordinates under the Euclidean distance; it needs no training.

        For halves of bytes, an `IndexPQFastScan`, which looks up distances, rounded to one byte, in registers.
        """
        faiss = import_faiss()
        count, _, width = self.centroids.shape
        index = faiss.IndexPQ(count * width, count, self.bits, faiss.METRIC_L2)
        self.fill(index.pq)
        index.is_trained = True
        return index if self.bits == 8 else faiss.IndexPQFastScan(index)

    def fill(self, pq: Any) -> None:
        """Copies the centroids into a `faiss.ProductQuantizer` of this shape."""
        import_faiss().copy_array_to_vector(np.ascontiguousarray(self.centroids).ravel(), pq.centroids)


def import_faiss(purpose: str = "Searching codes with FAISS", on: str = "cpu") -> Any:
    """Imports FAISS for `"cpu"` or `"gpu"`; MissingDependencyError if it is not installed."""
    return optional("faiss", "cuda" if on == "gpu" else on, purpose, f"faiss-{on}")


def transforms(affine: Affine) -> list[Any]:
    """An affine map as FAISS vector transforms: centering and a linear map unless it is the identity, unit length."""
    faiss, steps = import_faiss(), list[Any]()
    if affine.matrix is not None:
        shift, weight, bias = affine.parts
        centering = faiss.CenteringTransform(len(shift))
        faiss.copy_array_to_vector(shift, centering.mean)
        centering.is_trained = True
        steps += [centering] if shift.any() else []
        linear = faiss.LinearTransform(*weight.shape, True)
        faiss.copy_array_to_vector(np.ascontiguousarray(weight.T).ravel(), linear.A)
        faiss.copy_array_to_vector(bias, linear.b)
        linear.is_trained = True
        steps.append(linear)
    if affine.unit_length:
        steps.append(faiss.NormalizationTransform(affine.outputs, 2.0))
    return steps


def behind(chain: list[Any], inner: Any) -> Any:
    """A FAISS index with transforms in front of it. It only points to them: the caller keeps both alive."""
    index = import_faiss().IndexPreTransform(inner)
    for step in reversed(chain):
        index.prepend_transform(step)
    return index
