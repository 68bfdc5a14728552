"""Whitening of vectors: moments, their decomposition, the estimator, and the choice of its parameters."""

from jaxwhiten.arrays import normalize
from jaxwhiten.whitening.gathering import merge_moments
from jaxwhiten.whitening.moments import Moments
from jaxwhiten.whitening.provenance import check_provenance
from jaxwhiten.whitening.spectrum import SPREAD_OUT, spectrum, spread, suggest
from jaxwhiten.whitening.tuning import GRID, ScoredPairs, Tuning, tune
from jaxwhiten.whitening.whitening import Parameter, Whitening, WhiteningWarning

__all__ = [
    "GRID",
    "SPREAD_OUT",
    "Moments",
    "Parameter",
    "ScoredPairs",
    "Tuning",
    "Whitening",
    "WhiteningWarning",
    "check_provenance",
    "merge_moments",
    "normalize",
    "spectrum",
    "spread",
    "suggest",
    "tune",
]
