"""The code in which an index stores documents: computed by `jaxwhiten.codes`, or trained by FAISS (`"pq"`).

A search compares a query q of unit length with decoded codes z by the distance d² = |q − z|². The score is 1 − d²/2. It
equals the cosine if z has unit length, and ranks almost like it if z is a little shorter; the inner product alone does
not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.codes import CODES, Code, Quantiser, SpectrumCode, make_code
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.search.prepare import preparation, prepared
from jaxwhiten.whitening import SPREAD_OUT, Moments, Whitening, spread
from jaxwhiten.whitening.affine import Affine

AUTO = "auto"
DEFAULT_BYTES = 48
# Up to this many bytes, a trained product quantiser of whitened vectors beats the spectrum code, on encoders that were
# not tuned for similarity. For the evidence see docs/evidence/codes.md, "Which code".
PQ_LEADS = 24
_POINTS = 39 * 256  # vectors that k-means needs for the centroids of a byte


class Coding(NamedTuple):
    """How documents are stored."""

    name: str
    bytes: int  # per document
    prepare: Affine  # applied to a raw vector first
    quantiser: Quantiser | None = None  # applied after `prepare`; None if FAISS trains one
    fitted: Code | Whitening | None = None  # the code or whitening behind it, if there is one
    notes: tuple[str, ...] = ()  # for the user


def choose(
    codes: str | Code | Quantiser,
    size: int | None,
    vectors: np.ndarray,
    whitening: Any,
    *,
    trains: bool,
    halves: bool,
    tuned: bool | None = None,
) -> Coding:
    """The fitted coding of `size` bytes for the arguments of `build_index`.

    `trains` and `halves` are whether the backend can train codes and whether it scans halves of bytes. `tuned` is
    whether the encoder is tuned for similarity; None judges by the vectors.
    """
    if isinstance(codes, Code | Quantiser):
        if whitening is not None:
            raise InputError("A fitted code has its own whitening: omit `whitening`.")
        if isinstance(codes, Quantiser):
            return _computed(codes, size)
        return _computed(codes.quantiser(halves=halves), size, codes)
    check_name("codes", codes, [AUTO, *CODES, "pq"])
    if codes == "pq" and not trains:
        raise InputError("Codes 'pq' are trained by FAISS, but not by this backend: use codes='spectrum'.")
    if codes in CODES and codes != "spectrum":
        prepare, code = preparation(whitening, vectors.shape[1]), make_code(codes)
        for _, x in prepared(vectors, prepare):
            code.partial_fit(x)
        quantiser = code.quantiser(halves=halves)  # only moves columns, so unit length may come before or after it
        return _computed(quantiser._replace(affine=prepare.times(quantiser.affine.matrix)), size)
    size = DEFAULT_BYTES if size is None else size
    if whitening is None and codes != "pq":
        moments = Moments().update(vectors)
        whitening = Whitening.from_moments(moments, gamma=SpectrumCode.usual_gamma(moments, tuned))
    notes: tuple[str, ...] = ()
    if codes == AUTO:
        codes, reason = best_code(size, len(vectors), whitening, trains=trains, tuned=tuned)
        notes = (f"codes={codes!r} of {size} bytes: {reason}",)
    if codes == "spectrum":
        code = SpectrumCode(bytes=size, halves=halves or None).fit(whitening)
        return _computed(code.quantiser(halves=halves), size, code, notes)
    prepare, parts = preparation(whitening, vectors.shape[1]), 2 * size if halves else size
    if parts > (k := prepare.outputs):
        split = f"codes={codes!r} of {size} bytes splits vectors into {parts} sub-vectors"
        raise InputError(f"{split}, but they have {k} columns.")
    prepare = prepare.times(np.eye(k, k + -k % parts))
    return Coding(codes, size, prepare, None, whitening if isinstance(whitening, Whitening) else None, notes)


def best_code(size: int, n: int, whitening: Any, *, trains: bool, tuned: bool | None = None) -> tuple[str, str]:
    """The better code of `size` bytes for n vectors, `"spectrum"` or `"pq"`, and the reason.

    The whitening was fitted on these vectors or on others of the same encoder; `trains` is whether codes can be
    trained.
    """
    isotropy = spread(whitening)
    told = "the encoder is" if tuned is not None else f"an IsoScore of {isotropy:.2f} is that of an encoder"
    tuned = isotropy > SPREAD_OUT if tuned is None else tuned
    kind = f"{told} {'' if tuned else 'not '}fine-tuned for similarity"
    if tuned or size > PQ_LEADS:
        return "spectrum", f"{kind}, where 'pq' is no better at this size"
    if trains and n >= _POINTS:
        return "pq", f"{kind}, where it is better at this size, trained on whitened vectors"
    instead = f"{n} documents are too few to train one" if trains else "none can be trained here"
    return "spectrum", f"{kind}; 'pq', trained on whitened vectors, would be better, but {instead}"


def _computed(
    quantiser: Quantiser, size: int | None, fitted: Code | None = None, notes: tuple[str, ...] = ()
) -> Coding:
    if size is not None and size != quantiser.nbytes:
        raise InputError(f"The code {quantiser.name} has {quantiser.nbytes} bytes per vector: expected {size}.")
    prepare = quantiser.affine.in_float32(unit_length=True)
    return Coding(quantiser.name, quantiser.nbytes, prepare, quantiser, fitted, notes)
