"""Hubness reduction: mutual proximity and local scaling, which correct the similarity of a pair of vectors.

In many dimensions a few vectors, the hubs, are near to very many others. These methods compare how near two vectors are
to each other with how near each is to a reference set. All vectors are on the unit sphere: the distance of x and y is
‖x − y‖ = √(2 − 2 cos), so that a smaller distance is a larger cosine.

A reference vector in the direction of x (cosine above 1 − 10⁻⁶) is taken for x itself and does not count as a
neighbour, so that results do not depend on whether the compared vectors are part of the reference.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float
from scipy.special import log_ndtr

from jaxwhiten.arrays import block_rows, blocks, check_finite, normalize, pad_rows, row_bucket
from jaxwhiten.errors import InputError
from jaxwhiten.metrics.scores import cosine_pairs
from jaxwhiten.whitening.estimator import Method, check_integer, parameters
from jaxwhiten.whitening.moments import Moments

_SAME = 1e-6
_SIMILARITY_BYTES = 32 << 20  # size of one block of similarities to the reference


class SimilarityMethod(Method):
    """A method that keeps vectors unchanged and corrects the similarity of a pair. A subclass adds `_compare`.

    It is fitted on reference vectors, which define what is near and far. There is no `transform`, because the corrected
    similarity is not a cosine of vectors.
    """

    @abstractmethod
    def _compare(self, state: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Similarities of rows that are finite and have the right number of columns."""

    def similarity(self, a: Any, b: Any) -> Float[np.ndarray, " n"]:
        """The corrected similarity of row i of `a` with row i of `b` [n, d], in float64; symmetric, larger is nearer.

        Compare similarities of one fitted method only.
        """
        (state, a), (_, b) = self._state_and_rows(a), self._state_and_rows(b)
        if len(a) != len(b):
            raise InputError(f"{len(a)} rows cannot be paired with {len(b)}.")
        check_finite(a)
        check_finite(b)
        return self._compare(state, a, b)


class MutualProximityGauss(SimilarityMethod):
    """Mutual proximity with independent Gaussian distances: log P(X > d) + log P(Y > d) for a pair at distance d.

    X is the distance of x to the reference, expressed by cosines. Mean and variance of the cosines, x·μ and xᵀΣx,
    follow from the moments of the unit reference vectors, so that memory is O(d²) for any reference and a pair costs
    two quadratic forms. The logarithm separates pairs whose product of probabilities would round to 1.

    References:
      Schnitzer, Flexer, Schedl, Widmer: Local and Global Scaling Reduce Hubs in Space (2012), on mutual proximity
      with a normal distribution and the assumption of independence.
    """

    name = "mutual-proximity-gauss"

    def _learn(self, X: np.ndarray, state: Moments | None) -> Moments:
        check_finite(X)
        moments = Moments()
        for part in blocks(len(X), block_rows(X.shape[1], 8)):
            moments.add(normalize(X[part]))
        return moments if state is None else Moments().merge(state).merge(moments)

    def _compare(self, state: Moments, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (normalize(rows).astype(np.float64) for rows in (a, b))
        cosines = np.einsum("ij,ij->i", a, b)
        covariance = state.covariance()
        return self._log_farther(state, covariance, a, cosines) + self._log_farther(state, covariance, b, cosines)

    @staticmethod
    def _log_farther(state: Moments, covariance: np.ndarray, x: np.ndarray, cosines: np.ndarray) -> np.ndarray:
        """log P(the cosine of x and a reference vector is below `cosines`)."""
        variance = np.einsum("ij,ij->i", x @ covariance, x)
        # Without spread as seen from x, the reference is nearer or farther for certain, at the largest odds of float64.
        deviation = np.sqrt(np.maximum(variance, np.finfo(np.float64).eps ** 2))
        return log_ndtr((cosines - x @ state.mean) / deviation)

    def _pack(self, state: Moments) -> dict[str, np.ndarray]:
        return state.tensors()

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Moments:
        return Moments.of_tensors(tensors, d)


class Reference(NamedTuple):
    """A uniform sample of the rows seen: the rows with the smallest random keys, sorted by key.

    The key of a row depends on the seed and on its number among all rows, so that the sample does not depend on how
    rows are split into calls.
    """

    seen: int
    keys: np.ndarray
    reference: np.ndarray  # of unit length


@parameters
class LocalScaling(SimilarityMethod):
    """Local scaling: exp(−d² / (σ_x σ_y)) at distance d, where σ_x is the distance of x to its k-th nearest neighbour.

    Args:
      k: The neighbour in the reference that sets the scale; the farthest one if there are fewer.
      max_reference: Reference vectors kept; larger references are sampled uniformly.
      seed: Seed of the sample.

    References:
      Zelnik-Manor, Perona: Self-Tuning Spectral Clustering (2004), section 2; as hubness reduction, Schnitzer et al.
      (2012).
    """

    name = "local-scaling"

    k: int = 10
    max_reference: int = 10_000
    seed: int = 0

    def _check_params(self, d: int) -> None:
        for name, least in {"k": 1, "max_reference": 2, "seed": 0}.items():
            check_integer(name, getattr(self, name), least)

    def _learn(self, X: np.ndarray, state: Reference | None) -> Reference:
        check_finite(X)
        seen, keys, unit = state or Reference(0, np.zeros(0), np.zeros((0, X.shape[1]), np.float32))
        # PCG64 draws one number per row: skipping the rows already seen continues their sequence.
        new = np.random.Generator(np.random.PCG64(self.seed).advance(seen)).random(len(X))
        chosen = np.argsort(np.concatenate([keys, new]), kind="stable")[: self.max_reference]
        kept, added = chosen[chosen < len(keys)], chosen[chosen >= len(keys)] - len(keys)
        rows = np.concatenate([unit[kept], normalize(X[added]).astype(np.float32)])
        keys = np.concatenate([keys[kept], new[added]])
        order = np.argsort(keys, kind="stable")
        return Reference(seen + len(X), keys[order], rows[order])

    def _compare(self, state: Reference, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unit, k = jax.device_put(state.reference), min(self.k, len(state.reference))
        a, b = (normalize(rows).astype(np.float32) for rows in (a, b))
        full = block_rows(len(unit), 8, _SIMILARITY_BYTES)
        near = np.empty((2, len(a)))
        for part in blocks(len(a), full):
            n = part.stop - part.start
            for side, rows in zip(near, (a, b), strict=True):
                side[part] = np.asarray(_kth_cosine(pad_rows(rows[part], row_bucket(n, full)), unit, k))[:n]
        # σ = √(2 − 2 cos), so the product of both is 2 √((1 − cos_a)(1 − cos_b)).
        scales = 2 * np.sqrt((1 - near[0]) * (1 - near[1]))
        distances = 2 - 2 * cosine_pairs(a.astype(np.float64), b.astype(np.float64))
        return np.exp(-np.maximum(distances, 0) / scales)

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> Reference:
        state = Reference(int(tensors["seen"].item()), tensors["keys"], tensors["reference"])
        m, as_written = len(state.keys), state.reference.dtype == np.float32 and state.keys.ndim == 1
        if not as_written or state.reference.shape != (m, d) or not 0 < m <= state.seen:
            raise ValueError(f"a reference of shape {state.reference.shape} from {state.seen} rows")
        return state


@functools.partial(jax.jit, static_argnames="k")
def _kth_cosine(x: jax.Array, reference: jax.Array, k: int) -> jax.Array:
    """The cosine of each row to its k-th nearest reference vector other than itself."""
    cosines = jnp.matmul(x, reference.T, precision=lax.Precision.HIGHEST)
    others = jnp.where(cosines <= 1 - _SAME, cosines, -jnp.inf)
    nearest = lax.top_k(others, k)[0]
    # If there are fewer than k others, the farthest of them counts; if there are none, the point opposite of x.
    last = jnp.where(jnp.isfinite(nearest), nearest, jnp.inf).min(axis=1)
    return jnp.where(jnp.isfinite(last), jnp.maximum(last, -1.0), -1.0)
