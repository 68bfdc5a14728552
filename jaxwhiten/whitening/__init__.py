"""Whitening of vectors: moments, their decomposition, the estimator, and the choice of its parameters."""

from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.provenance import check_provenance
from jaxwhiten.whitening.spectrum import spectrum, suggest
from jaxwhiten.whitening.tuning import GRID, ScoredPairs, Tuning, tune
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning, normalize

__all__ = [
    "GRID",
    "Moments",
    "ScoredPairs",
    "Tuning",
    "Whitening",
    "WhiteningWarning",
    "check_provenance",
    "normalize",
    "spectrum",
    "suggest",
    "tune",
]
