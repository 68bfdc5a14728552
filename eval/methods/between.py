"""A map between the vectors of two encoders, in closed form, from moments of pairs, which merge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from eval.methods.base import Method
from jaxwhiten.arrays import as_matrix, block_rows, blocks, normalize
from jaxwhiten.errors import InputError, check_name, is_number
from jaxwhiten.whitening import Moments
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import parameters, stamp

MAP_KINDS = ("ridge", "procrustes", "cca")
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# every fifth pair, at most 1,000 of them, is held out to choose the strength
_HELD_OUT = 5
_MOST = 1000


@dataclass(eq=False)
class CrossMoments:
    """Moments of pairs (x, y), the vectors of two encoders for the same texts: moments of rows [x, y] in float64."""

    columns: int  # of x
    joint: Moments = field(default_factory=Moments)

    def update(self, X: Any, Y: Any) -> CrossMoments:
        """Adds pairs: row i of X and of Y are vectors of one text."""
        X = as_matrix(X, columns=self.columns)
        Y = as_matrix(Y)
        if len(X) != len(Y):
            raise InputError(f"Pairs have as many rows on either side, not {len(X)} and {len(Y)}.")
        for part in blocks(len(X), block_rows(X.shape[1] + Y.shape[1], 8)):
            self.joint.update(np.concatenate([X[part], Y[part]], axis=1, dtype=np.float64))
        return self

    def merge(self, other: CrossMoments) -> CrossMoments:
        """Adds the pairs of another summary with as many columns; `other` is not changed."""
        self.joint.merge(other.joint)
        return self

    def maps(self, kind: str, strength: float) -> tuple[Affine, Affine]:
        """The maps of x and of y into one space, where they are compared by cosine."""
        d = self.columns
        mean = self.joint.mean
        covariance = self.joint.covariance()
        xx = covariance[:d, :d]
        yy = covariance[d:, d:]
        xy = covariance[:d, d:]
        if kind == "cca":
            a = _power(xx, strength, -0.5)
            b = _power(yy, strength, -0.5)
            u, weights, v = np.linalg.svd(a @ xy @ b, full_matrices=False)
            return Affine(mean[:d], a @ u * weights), Affine(mean[d:], b @ v.T * weights)
        u, _, v = np.linalg.svd(xy, full_matrices=False)
        left = u @ v if kind == "procrustes" else _power(xx, strength, -1.0) @ xy
        return Affine(mean[:d], left), Affine(mean[d:], np.eye(len(yy)))


def _power(covariance: np.ndarray, strength: float, power: float) -> np.ndarray:
    """(C + strength × mean variance × I) raised to a power."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0) + max(strength * values.mean(), np.finfo(np.float64).tiny ** 0.5)
    return (vectors * values**power) @ vectors.T


class _State(NamedTuple):
    moments: CrossMoments
    strength: float
    source: Affine
    target: Affine


@parameters
class EncoderMap(Method):
    """Maps the vectors of two encoders (`transform`, `transform_target`) into one space, compared by cosine.

    It is fitted on vectors of the same texts. Staying with the old encoder may be better: docs/evidence/upgrade.md.

    Args:
      kind: `"ridge"`, `"procrustes"`, or `"cca"`, canonical correlation with the correlations as weights.
      strength: Strength of the ridge, in mean variances. None chooses the strength that retrieves held-out pairs best.

    References:
      Schönemann 1966, orthogonal Procrustes; Hotelling 1936, canonical correlation; Drift-Adapter, arXiv:2509.23471.
    """

    name = "encoder-map"

    kind: str = "ridge"
    strength: float | None = None

    def fit(self, X: Any, y: Any = None) -> EncoderMap:
        """Learns from pairs: X [n, d] of the mapped encoder and y [n, e] of the other, or `CrossMoments` as X."""
        started = time.perf_counter()
        self._check_params(0)
        if isinstance(X, CrossMoments):
            moments = X
            strength = 0.1 if self.strength is None else self.strength
        else:
            X = as_matrix(X, type(self).__name__, min_rows=1)
            moments = CrossMoments(X.shape[1]).update(X, self._learn(X) if y is None else y)
            strength = self._chosen(X, np.asarray(y)) if self.strength is None else self.strength
        self._state = _State(moments, float(strength), *moments.maps(self.kind, strength))
        return self._fitted_on(moments.joint.n, moments.columns, stamp(time.perf_counter() - started))

    def transform_target(self, Y: Any) -> Float[np.ndarray, "n k"]:
        """Maps [n, e] rows of the other encoder."""
        target = self._state.target
        return target(as_matrix(Y, type(self).__name__, columns=target.inputs))

    def _learn(self, X: np.ndarray) -> Any:
        raise InputError("A map between encoders is fitted on pairs.")

    def _chosen(self, X: np.ndarray, Y: np.ndarray) -> float:
        """The strength with which held-out pairs retrieve each other best."""
        held_out = np.arange(0, len(X), _HELD_OUT)[:_MOST]
        if len(held_out) < 2:
            raise InputError(f"{len(X)} pairs are too few to choose the strength by: give more, or strength=0.1.")
        training = CrossMoments(X.shape[1]).update(np.delete(X, held_out, axis=0), np.delete(Y, held_out, axis=0))

        def reciprocal_rank(strength: float) -> float:
            source, target = training.maps(self.kind, strength)
            cosines = normalize(target(Y[held_out])) @ normalize(source(X[held_out])).T
            return float((1 / (cosines >= cosines.diagonal()[:, None]).sum(axis=1)).mean())

        if self.kind == "procrustes":
            return 0.0
        return max(STRENGTHS, key=reciprocal_rank)

    def _check_params(self, d: int) -> None:
        check_name("kind of map", self.kind, MAP_KINDS)
        if not (self.strength is None or (is_number(self.strength) and self.strength >= 0)):
            raise InputError(f"strength must be a number of at least 0, got {self.strength!r}.")

    def _map(self, state: _State, X: np.ndarray) -> np.ndarray:
        return state.source(X)

    def _pack(self, state: _State) -> dict[str, np.ndarray]:
        return {**state.moments.joint.tensors(), "strength": np.array(state.strength)}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        joint = Moments.of_tensors(tensors)
        if not 1 <= d < len(joint.mean):
            raise ValueError(f"pairs of {len(joint.mean)} columns, {d} of them of the first")
        moments = CrossMoments(d, joint)
        strength = float(tensors["strength"].item())
        self._state = _State(moments, strength, *moments.maps(self.kind, strength))
