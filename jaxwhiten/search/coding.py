"""The code in which an index stores documents, of `jaxwhiten.codes`.

A search ranks decoded codes z by the distance |sq − z|² to a query q of unit length. With s = m / c, where m is the
root mean square of the lengths |z|, this ranks like q·u + c (1 − |u|²) / 2 for u = z / m, which is the cosine of q and
z to the first order around a cosine of c and the length m. That is the score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.codes import CODES, Code, Quantiser, SpectrumCode, make_code
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.search.header import Codes
from jaxwhiten.search.prepare import preparation, prepared
from jaxwhiten.whitening import Moments, Whitening, choose_gamma
from jaxwhiten.whitening.affine import Affine

DEFAULT_BYTES = 48
COSINE = 0.65  # of the first documents that are found


def stretched(queries: np.ndarray, length: float) -> np.ndarray:
    """Queries of unit length times s, for the lengths of decoded codes."""
    return queries * np.float32(length / COSINE)


def cosines(distances: np.ndarray, length: float) -> np.ndarray:
    """The scores of squared distances to stretched queries."""
    return (1 / COSINE + COSINE - (COSINE / length**2) * distances) / 2


class Coding(NamedTuple):
    """How documents are stored."""

    name: str
    bytes: int  # per document
    prepare: Affine  # applied to a raw vector first
    quantiser: Quantiser  # applied after `prepare`
    fitted: Code | None = None  # the code behind it, if there is one
    notes: tuple[str, ...] = ()  # for the user

    @property
    def record(self) -> Codes:
        """The coding in the header of an index."""
        return {"name": self.name, "bytes": self.bytes, "length": self.quantiser.length}


def choose(
    codes: str | Code | Quantiser,
    size: int | None,
    vectors: np.ndarray,
    whitening: Any,
    *,
    encoding: Mapping[str, Any] | None = None,
    halves: bool = False,
    tuned: bool | None = None,
) -> Coding:
    """The fitted coding of `size` bytes for the arguments of `build_index`.

    `encoding` is the record of the vectors' encoder, and `halves` is whether the backend scans halves of bytes.
    """
    if isinstance(codes, Code | Quantiser):
        if whitening is not None:
            raise InputError("A fitted code has its own whitening: omit `whitening`.")
        if isinstance(codes, Quantiser):
            if halves and codes.bits > 4:
                advice = f"use the encoder without its code, and bytes={codes.nbytes}"
                raise InputError(f"Fast scan needs codes of 4-bit halves; the code {codes.name} has none: {advice}.")
            return _computed(codes, size)
        return _computed(codes.quantiser(halves=halves), size, codes)
    check_name("codes", codes, CODES)
    if codes != "spectrum":
        prepare, code = preparation(whitening, vectors.shape[1]), make_code(codes)
        for _, x in prepared(vectors, prepare):
            code.partial_fit(x)
        quantiser = code.quantiser(halves=halves)  # only moves columns, so unit length may come before or after it
        return _computed(quantiser._replace(affine=prepare.times(quantiser.affine.matrix)), size)
    notes: tuple[str, ...] = ()
    if whitening is None:
        moments = Moments(provenance=dict(encoding or {})).update(vectors)
        gamma = choose_gamma(moments, tuned)
        whitening, notes = Whitening.from_moments(moments, gamma=gamma.gamma), (str(gamma),)
    code = SpectrumCode(bytes=DEFAULT_BYTES if size is None else size, halves=halves).fit(whitening)
    return _computed(code.quantiser(halves=halves), size, code, notes)


def _computed(
    quantiser: Quantiser, size: int | None, fitted: Code | None = None, notes: tuple[str, ...] = ()
) -> Coding:
    if size is not None and size != quantiser.nbytes:
        raise InputError(f"The code {quantiser.name} has {quantiser.nbytes} bytes per vector: expected {size}.")
    prepare = quantiser.affine.in_float32(unit_length=True)
    return Coding(quantiser.name, quantiser.nbytes, prepare, quantiser, fitted, notes)
