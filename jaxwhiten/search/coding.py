"""Which code an index keeps its documents in: computed by `jaxwhiten.codes`, or trained by FAISS.

Codes are searched by the distance of a query of unit length to what they stand for, d² = |q − z|². Scores are 1 − d²/2,
which is the cosine where z has unit length, and ranks nearly as the cosine does where it is a little shorter; the inner
product alone does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes import CODES, Code, Quantiser, SpectrumCode, make_code
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.search.prepare import BLOCK_ROWS, preparation
from jaxwhiten.whitening import SPREAD_OUT, Moments, Whitening, spread
from jaxwhiten.whitening.affine import Affine

AUTO = "auto"
TRAINED = ("pq", "opq", "rabitq", "eden", "sq4", "sq8")
DEFAULT_BYTES = 48
_POINTS = 39 * 256  # that k-means of a byte's centroids wants
# Bytes that FAISS adds to every vector, for one bit a dimension and for more, and the most bits.
_FACTORS = {"rabitq": (8, 20, 9), "eden": (8, 8, 8)}


class Lead(NamedTuple):
    """Sizes at which a code that FAISS trains, of whitened vectors, is ahead of the spectrum code.

    Attributes:
      tuned: Whether on encoders that were tuned for similarity, or on others.
      code: Its name.
      least: Fewest bytes.
      most: Most bytes.
    """

    tuned: bool
    code: str
    least: int
    most: int


# What `codes="auto"` takes instead of the spectrum code, the best first. The evidence: docs/codes.md, "Which code".
LEADS = (Lead(False, "pq", 1, 24),)


class Coding(NamedTuple):
    """How documents are kept.

    Attributes:
      facts: Name and bytes, for the header.
      prepare: What is done to a raw vector first.
      quantiser: The computed quantiser behind it, or None.
      factory: What FAISS calls a quantiser that it trains, or None.
      notes: What the user should know.
      fitted: The code or the whitening that it follows from, where there is one.
    """

    facts: dict[str, Any]
    prepare: Affine
    quantiser: Quantiser | None
    factory: str | None
    notes: tuple[str, ...] = ()
    fitted: Any = None


def choose(
    codes: str | Code | Quantiser,
    size: int | None,
    vectors: np.ndarray,
    whitening: Any | None,
    *,
    trained: Sequence[str],
    halves: bool,
) -> Coding:
    """The coding that the arguments of `build_index` ask for, fitted.

    Args:
      codes: A name, `"auto"`, a fitted code of raw vectors, or the quantiser of one.
      size: Bytes per vector; None for the default, or for what the code has.
      vectors: The documents.
      whitening: Of the vectors, or None.
      trained: Codes that the backend can train.
      halves: Whether the backend scans halves of bytes.

    Raises:
      InputError: No such code, or one that cannot be had in so many bytes.
    """
    if isinstance(codes, Code | Quantiser):
        if whitening is not None:
            raise InputError("A fitted code has its own whitening: give build_index no other.")
        if isinstance(codes, Quantiser):
            return _computed(codes, size)
        return _computed(codes.quantiser(halves=halves), size)._replace(fitted=codes)
    names = [AUTO, *CODES, *trained]
    if codes not in names:
        if codes in TRAINED:
            raise InputError(f"Codes {codes!r} are trained by FAISS, but not by this backend; take codes='spectrum'.")
        raise unknown_name("codes", codes, names)
    if codes in CODES and codes != "spectrum":
        prepare = preparation(whitening, vectors.shape[1])
        code = make_code(codes)
        for part in blocks(len(vectors), BLOCK_ROWS):
            code.partial_fit(prepare(vectors[part]))
        return _computed(_behind(prepare, code.quantiser(halves=halves)), size)
    size = DEFAULT_BYTES if size is None else size
    if whitening is None and codes in (AUTO, "spectrum"):
        moments = Moments().update(vectors)
        whitening = Whitening.from_moments(moments, gamma=SpectrumCode.usual_gamma(moments))
    note: tuple[str, ...] = ()
    if codes == AUTO:
        codes, reason = best_code(size, len(vectors), whitening, trained)
        note = (f"codes={codes!r} of {size} bytes: {reason}",)
    if codes == "spectrum":
        code = SpectrumCode(bytes=size, halves=halves or None).fit(whitening)
        return _computed(code.quantiser(halves=halves), size)._replace(notes=note, fitted=code)
    trained_by_faiss = _trained(codes, size, halves, preparation(whitening, vectors.shape[1]))
    return trained_by_faiss._replace(notes=note, fitted=whitening if isinstance(whitening, Whitening) else None)


def best_code(size: int, n: int, whitening: Any, trained: Sequence[str]) -> tuple[str, str]:
    """The code that is best for this kind of vectors by `LEADS`, and why.

    Args:
      size: Bytes per vector.
      n: Number of vectors, on which codes are trained.
      whitening: Of the vectors, or of others from the same encoder.
      trained: Codes that can be trained.
    """
    isotropy = spread(whitening)
    tuned = isotropy > SPREAD_OUT
    kind = f"an IsoScore of {isotropy:.2f} is that of an encoder {'' if tuned else 'not '}tuned for similarity"
    ahead = [lead.code for lead in LEADS if lead.tuned == tuned and lead.least <= size <= lead.most]
    if not ahead:
        return "spectrum", f"{kind}, on which no trained code leads it at this size"
    able = [code for code in ahead if code in trained]
    if able and n >= _POINTS:
        return able[0], f"{kind}, on which it leads at this size, trained on whitened vectors"
    instead = f"{n} documents are too few to train one" if able else "none can be trained here"
    return "spectrum", f"{kind}; {ahead[0]!r}, trained on whitened vectors, would be better, but {instead}"


def _computed(quantiser: Quantiser, size: int | None) -> Coding:
    if size is not None and size != quantiser.nbytes:
        raise InputError(f"The code {quantiser.name} has {quantiser.nbytes} bytes per vector, not {size}.")
    prepare = (
        quantiser.affine
        if quantiser.affine.unit_length
        else Affine.of_kernel(*quantiser.affine.kernel, unit_length=True)
    )
    return Coding({"name": quantiser.name, "bytes": quantiser.nbytes}, prepare, quantiser, None)


def _behind(prepare: Affine, quantiser: Quantiser) -> Quantiser:
    """A quantiser that only moves columns, behind a linear map: unit length is the same before and after it."""
    moves, bias = quantiser.affine.kernel
    if prepare.matrix is not None:
        moves, bias = (part @ moves for part in prepare.kernel)
    return quantiser._replace(affine=Affine.of_kernel(moves, bias, unit_length=True))


def _trained(name: str, size: int, halves: bool, prepare: Affine) -> Coding:
    k = prepare.outputs
    if name in ("pq", "opq"):
        parts = 2 * size if halves else size
        if parts > k:
            raise InputError(f"codes={name!r} of {size} bytes cuts vectors into {parts} parts: they have {k} columns.")
        columns = -(-k // parts) * parts
        factory = ("" if name == "pq" else f"OPQ{parts},") + f"PQ{parts}{'x4fs' if halves else 'x8np'}"
        return Coding({"name": name, "bytes": size}, _columns(prepare, columns), None, factory)
    if name in _FACTORS:
        one, more, most = _FACTORS[name]
        bits = next((b for b in range(most, 1, -1) if -(-k * b // 8) + more <= size), 1)
        columns = k if bits > 1 else min(k, 8 * (size - one))
        used = -(-columns * bits // 8) + (more if bits > 1 else one)
        factory = {"rabitq": "RaBitQ", "eden": "EDEN"}[name] + (str(bits) if bits > 1 else "")
    else:
        bits = int(name.removeprefix("sq"))
        columns = min(k, 8 * size // bits)
        used, factory = -(-columns * bits // 8), f"SQ{bits}"
    if columns < 1:
        raise InputError(f"codes={name!r} needs more than {size} bytes.")
    if columns < k and prepare.matrix is None:
        raise InputError(
            f"codes={name!r} of {size} bytes holds {columns} of the {k} dimensions: give a whitening, whose first"
            " columns say most."
        )
    return Coding({"name": name, "bytes": used}, _columns(prepare, columns), None, factory)


def _columns(prepare: Affine, columns: int) -> Affine:
    """The map with its first columns only, or padded with zeros."""
    weight, bias = prepare.kernel
    more = max(0, columns - len(bias))
    weight, bias = np.pad(weight, ((0, 0), (0, more)))[:, :columns], np.pad(bias, (0, more))[:columns]
    return Affine.of_kernel(np.ascontiguousarray(weight), np.ascontiguousarray(bias), unit_length=prepare.unit_length)
