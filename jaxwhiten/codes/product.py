"""A code as a product quantiser: each byte stands for one of 256 centroids of a few coordinates.

References:
  Jégou, Douze, Schmid 2011, "Product quantization for nearest neighbor search", section II.B. Here the centroids are
  computed, not trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from jaxwhiten.errors import missing_dependency


class Quantiser(NamedTuple):
    """A code as a product quantiser.

    Attributes:
      weight: W: a vector x has the coordinates x W + b, those of each byte side by side, padded with zeros.
      bias: b.
      normalize: Whether coordinates are scaled to unit length.
      centroids: What the values of each byte stand for, in these coordinates.
    """

    weight: Float32[np.ndarray, "d coordinates"]
    bias: Float32[np.ndarray, " coordinates"]
    normalize: bool
    centroids: Float32[np.ndarray, "bytes 256 width"]

    def empty_pq(self) -> Any:
        """An empty `faiss.IndexPQ` of the coordinates under inner product; it needs no training.

        Raises:
          MissingDependencyError: FAISS is not installed.
        """
        faiss = _faiss()
        count, _, width = self.centroids.shape
        index = faiss.IndexPQ(count * width, count, 8, faiss.METRIC_INNER_PRODUCT)
        self.fill(index.pq)
        index.is_trained = True
        return index

    def fill(self, pq: Any) -> None:
        """Puts the centroids into a `faiss.ProductQuantizer` of this shape."""
        _faiss().copy_array_to_vector(np.ascontiguousarray(self.centroids).ravel(), pq.centroids)

    def to_faiss(self) -> Any:
        """The `faiss.IndexPQ` behind the linear map, see `Code.to_faiss`."""
        faiss = _faiss()
        d, columns = self.weight.shape
        linear = faiss.LinearTransform(d, columns, True)
        faiss.copy_array_to_vector(np.ascontiguousarray(self.weight.T).ravel(), linear.A)
        faiss.copy_array_to_vector(self.bias, linear.b)
        linear.is_trained = True
        chain = [linear, *([faiss.NormalizationTransform(columns, 2.0)] if self.normalize else [])]
        index = faiss.IndexPreTransform(self.empty_pq())
        for step in reversed(chain):
            index.prepend_transform(step)
        return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise missing_dependency("faiss-cpu", "cpu", "Searching codes with FAISS") from error
    return faiss
