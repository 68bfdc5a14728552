"""The one fit: from moments to smaller vectors, by a whitening, a code, or both."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxwhiten.codes.spectrum import SpectrumCode
from jaxwhiten.options import SHRINKAGE
from jaxwhiten.whitening import Moments, Whitening, choose_gamma


class Fit(NamedTuple):
    """What makes vectors smaller: a whitening, a code of raw vectors, or a whitening and a code of its vectors."""

    whitening: Whitening | None
    code: SpectrumCode | None
    why: str = ""  # of the choice that was made, for the user; empty if there was none


def fit(learned: Moments | Whitening, *, bytes: int | None = None, tuned: bool | None = None, **params: Any) -> Fit:
    """Fits a whitening of raw vectors, or a code of some bytes, on their moments.

    A code stores the vectors of an encoder that is fine-tuned for similarity unchanged. Vectors of another encoder are
    whitened first. The covariance is shrunk, which matters where rows are few (docs/evidence/codes.md).

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> fit(Moments().update(rows), bytes=2, tuned=True)
    Fit(whitening=None, code=SpectrumCode(bytes=2), why='')
    >>> fit(Moments().update(rows), tuned=False)[0]
    Whitening(shrinkage='oas')

    Args:
      learned: Moments of the vectors, whose provenance records whether their encoder is fine-tuned; or a whitening of
        them, whose vectors get a code.
      bytes: Bytes of the code; None for a whitening alone.
      tuned: Overrides the record of the moments.
      **params: Parameters of `Whitening`; with any of them, vectors are whitened before they are coded. The default γ
        is `choose_gamma`'s, that of shrinkage is `SHRINKAGE`.
    """
    code = None if bytes is None else SpectrumCode(bytes=bytes)
    if isinstance(learned, Whitening):
        return Fit(learned, code and code.fit(learned))
    recorded = learned.provenance.get("tuned") if tuned is None else tuned
    if code is not None and not params and recorded is not False:
        return Fit(None, code.fit(learned))
    why = ""
    if "gamma" not in params:
        choice = choose_gamma(learned, tuned)
        params["gamma"] = choice.gamma
        why = f"{'the vectors are whitened before they are coded, ' if code else ''}{choice}"
    whitening = Whitening.from_moments(learned, **{"shrinkage": SHRINKAGE} | params)
    return Fit(whitening, code and code.fit(whitening), why)
