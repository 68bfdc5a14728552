"""The code in which an index stores documents, of `jaxwhiten.codes`.

A search compares a query q of unit length with decoded codes z by the distance d² = |q − z|². The score is 1 − d²/2. It
equals the cosine if z has unit length, and ranks almost like it if z is a little shorter; the inner product alone does
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.codes import CODES, Code, Quantiser, SpectrumCode, make_code
from jaxwhiten.errors import InputError, check_name
from jaxwhiten.search.prepare import preparation, prepared
from jaxwhiten.whitening import Moments, Whitening, choose_gamma
from jaxwhiten.whitening.affine import Affine

DEFAULT_BYTES = 48


class Coding(NamedTuple):
    """How documents are stored."""

    name: str
    bytes: int  # per document
    prepare: Affine  # applied to a raw vector first
    quantiser: Quantiser  # applied after `prepare`
    fitted: Code | None = None  # the code behind it, if there is one
    notes: tuple[str, ...] = ()  # for the user


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
    code = SpectrumCode(bytes=DEFAULT_BYTES if size is None else size, halves=halves or None).fit(whitening)
    return _computed(code.quantiser(halves=halves), size, code, notes)


def _computed(
    quantiser: Quantiser, size: int | None, fitted: Code | None = None, notes: tuple[str, ...] = ()
) -> Coding:
    if size is not None and size != quantiser.nbytes:
        raise InputError(f"The code {quantiser.name} has {quantiser.nbytes} bytes per vector: expected {size}.")
    prepare = quantiser.affine.in_float32(unit_length=True)
    return Coding(quantiser.name, quantiser.nbytes, prepare, quantiser, fitted, notes)
