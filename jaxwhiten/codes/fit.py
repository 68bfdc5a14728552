"""The one way from moments to smaller vectors: a whitening, a code, or both."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.options import SHRINKAGE
from jaxwhiten.whitening import Moments, Whitening, choose_gamma


class Fit(NamedTuple):
    """What makes vectors smaller: a whitening, a code of raw vectors, or a whitening and a code of its vectors."""

    whitening: Whitening | None
    code: SpectrumCode | None
    why: str  # of the choice that was made, for the user; empty if there was none


def fit_whitening(moments: Moments, *, tuned: bool | None = None, **params: Any) -> tuple[Whitening, str]:
    """A whitening of raw vectors, and why it has its γ, for the user; empty if γ is among the parameters.

    The covariance is shrunk, which matters where rows are few (docs/evidence/codes.md).

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> fit_whitening(Moments().update(rows), tuned=False)
    (Whitening(shrinkage='oas'), 'the encoder is not fine-tuned for similarity (as specified)')

    Args:
      moments: Moments of the vectors, whose provenance records whether their encoder is fine-tuned.
      tuned: Overrides the record of the moments.
      **params: Parameters of `Whitening`. The default γ is `choose_gamma`'s, that of shrinkage is `SHRINKAGE`.
    """
    why = ""
    if "gamma" not in params:
        choice = choose_gamma(moments, tuned)
        params["gamma"] = choice.gamma
        why = str(choice)
    return Whitening.from_moments(moments, **{"shrinkage": SHRINKAGE} | params), why


def fit(
    moments: Moments, *, bytes: int | None = None, whiten: bool = False, tuned: bool | None = None, **params: Any
) -> Fit:
    """Fits a whitening, or a code of some bytes, on the moments of raw vectors.

    A code stores the vectors of an encoder that is fine-tuned for similarity unchanged. Vectors of another encoder are
    whitened first.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> fitted = fit(Moments().update(rows), bytes=2, tuned=True)
    >>> fitted.whitening, fitted.code
    (None, SpectrumCode(bytes=2))

    Args:
      moments: Moments of the vectors, whose provenance records whether their encoder is fine-tuned.
      bytes: Bytes of the code; None for a whitening alone.
      whiten: Whether vectors are whitened before they are coded, whatever their encoder.
      tuned: Overrides the record of the moments.
      **params: As for `fit_whitening`; they imply `whiten`.
    """
    recorded = moments.provenance.get("tuned") if tuned is None else tuned
    whiten = whiten or bool(params) or recorded is False
    if bytes is not None and not whiten:
        return Fit(None, SpectrumCode(bytes=bytes).fit(moments), "")
    whitening, why = fit_whitening(moments, tuned=tuned, **params)
    code = None if bytes is None else SpectrumCode(bytes=bytes).fit(whitening)
    if code is not None and why:
        why = f"the vectors are whitened before they are coded, {why}"
    return Fit(whitening, code, why)
