"""Whitening of vectors: moments, their decomposition, the estimator, and the choice of its parameters."""

from jaxwhiten.arrays import normalize
from jaxwhiten.whitening.gamma import choose_gamma, is_spread, participation_ratio
from jaxwhiten.whitening.moments import Moments, merge_moments
from jaxwhiten.whitening.spectrum import SPREAD_OUT, TUNED, hardly_varies, spectrum, spread, suggest
from jaxwhiten.whitening.tuning import GRID, ScoredPairs, Tuning, tune
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning

__all__ = ["GRID", "SPREAD_OUT", "TUNED", "Moments", "ScoredPairs", "Tuning", "Whitening", "WhiteningWarning"]
__all__ += ["choose_gamma", "is_spread", "participation_ratio"]
__all__ += ["hardly_varies", "merge_moments", "normalize", "spectrum", "spread", "suggest", "tune"]
