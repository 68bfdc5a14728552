"""A code as a product quantiser: each byte, or each half of a byte, selects a centroid of a few coordinates.

References:
  Jégou, Douze, Schmid 2011, "Product quantization for nearest neighbor search", section II.B. Here the centroids are
  computed, not trained.
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC", for halves of bytes.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, UInt8

from jaxwhiten.arrays import blocks, pad_rows, row_bucket
from jaxwhiten.errors import optional
from jaxwhiten.whitening.affine import Affine

_ROWS = 1024  # rows coded at a time, each with 256 distances per byte


class Quantiser(NamedTuple):
    """A code as a product quantiser."""

    name: str  # of the code
    affine: Affine  # maps a vector to coordinates, grouped by byte and padded with zeros
    # The coordinates of each value of each byte, or of each half of a byte.
    centroids: Float32[np.ndarray, "groups values width"]

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


def nearest(
    coordinates: Float32[np.ndarray, "n coordinates"], centroids: Float32[np.ndarray, "bytes 256 width"]
) -> UInt8[np.ndarray, "n bytes"]:
    """The codes of vectors mapped by a `Quantiser`: the nearest centroid for each byte.

    They equal `Code.encode`, except for coordinates within rounding error of the middle of two levels.
    """
    out = np.empty((len(coordinates), len(centroids)), np.uint8)
    for part in blocks(len(coordinates), _ROWS):
        block = coordinates[part]
        out[part] = np.asarray(_nearest()(pad_rows(block, row_bucket(len(block), _ROWS)), centroids))[: len(block)]
    return out


@functools.cache
def _nearest() -> Any:
    """The compiled search for the centroid of each byte."""
    import jax
    import jax.numpy as jnp

    def nearest(x: Float32[Any, "n coordinates"], centroids: Float32[Any, "bytes 256 width"]) -> UInt8[Any, "n bytes"]:
        parts = x.reshape(len(x), *centroids[:, 0].shape)
        products = jnp.einsum("nbw,bcw->nbc", parts, centroids, precision="highest")
        return jnp.argmax(products - (centroids**2).sum(-1) / 2, axis=-1).astype(jnp.uint8)

    return jax.jit(nearest)


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
