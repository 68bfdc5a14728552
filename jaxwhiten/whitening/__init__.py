"""Whitening of vectors: moments, their decomposition, the estimator, and the choice of its parameters."""

from jaxwhiten.arrays import normalize
from jaxwhiten.whitening.moments import Moments, merge_moments
from jaxwhiten.whitening.spectrum import choose_gamma, is_spread, participation_ratio, spectrum
from jaxwhiten.whitening.whitening import Whitening, WhiteningWarning

__all__ = ["Moments", "Whitening", "WhiteningWarning", "choose_gamma", "is_spread", "merge_moments", "normalize"]
__all__ += ["participation_ratio", "spectrum"]
