"""Vectors in the form that an index stores and searches: checks, whitening, unit length, and the code of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxwhiten.arrays import as_floats, as_matrix, blocks, check_finite, work_dtype
from jaxwhiten.codes import Code, Quantizer, SpectrumCode, check_whitened, make_code
from jaxwhiten.codes.code import check_pooled
from jaxwhiten.codes.fit import fit
from jaxwhiten.errors import InputError, check_width
from jaxwhiten.io import same, take
from jaxwhiten.search.header import Codes, Header
from jaxwhiten.space import Space
from jaxwhiten.types import Float, Float32, RowsLike
from jaxwhiten.vectors import Vectors
from jaxwhiten.whitening import Moments, Whitening
from jaxwhiten.whitening.affine import Affine

BLOCK_ROWS = 16384
DEFAULT_BYTES = 48
_LEAST_SQUARE = float(np.finfo(np.float32).tiny / np.finfo(np.float32).eps)  # of a length in float32
_MOST_SQUARE = float(np.finfo(np.float32).max)
_TAKES = ": pass raw vectors of its model, or sentences"


def check_vectors(what: str, x: RowsLike, dimension: int | None = None) -> Float[np.ndarray, "n d"]:
    """Array-like rows as floats of NumPy [n, d], none of which is zero or not finite; `what` names them in messages."""
    x = as_matrix(x, "Index")
    if not np.issubdtype(x.dtype, np.floating) or not x.dtype.isnative:
        x = x.astype(work_dtype(x.dtype))
    if len(x) and dimension not in (None, x.shape[1]):
        check_width("index", dimension, x.shape[1], f"the {what}", _TAKES, error=InputError)
    _check_rows(what, x)
    return x


class Decoded:
    """The vectors of codes, [n, d], decoded when rows of them are read."""

    def __init__(self, codes: Vectors) -> None:
        self._codes = codes
        self.shape = (len(codes), codes.code.n_features_in_)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Float32[np.ndarray, "m d"]:
        return as_floats(self._codes[rows])


Rows = Float[np.ndarray, "n d"] | Decoded
"""Vectors of documents, read block by block."""


def check_codes(what: str, codes: Vectors) -> Decoded:
    """`check_vectors` of codes, without an array of all vectors."""
    x = Decoded(codes)
    _check_rows(what, x)
    return x


def _check_rows(what: str, x: Rows) -> None:
    """`check_lengths` of rows, block by block; InputError if there are none."""
    if not len(x):
        raise InputError(f"No {what}: an array of shape {x.shape}.")
    for part in blocks(len(x), BLOCK_ROWS):
        check_lengths(what, x[part], part.start)


def check_lengths(what: str, x: np.ndarray, first: int = 0) -> None:
    """Raises an error for rows that are zero, not finite or too long for float32; `first` is the first row's number."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        squares = np.vecdot(x, x, dtype=np.result_type(x, np.float32))
    if squares.min() >= _LEAST_SQUARE and squares.max() <= _MOST_SQUARE:
        return
    row = int(np.argmin((squares >= _LEAST_SQUARE) & (squares <= _MOST_SQUARE)))
    where = f"Row {first + row} of the {what}"
    check_finite(x[row : row + 1], first + row, what)
    if not x[row].any():
        raise InputError(f"{where} is a zero vector: it has no direction and thus no nearest neighbors. Remove it.")
    norm = np.linalg.norm(x[row].astype(np.float64))
    raise InputError(
        f"{where} has norm {norm:.1e}, whose square is out of float32 range: rescale the vectors, as"
        " jaxwhiten.normalize does where there is no whitening."
    )


def preparation(whitening: Any | None, dimension: int, normalize: bool = True) -> Affine:
    """The float32 map that an index applies to raw vectors: a whitening, if there is one, then unit length, if asked.

    The whitening has an `affine` map, or is any object with a `kernel` (W, b); `dimension` is the width of raw vectors.
    """
    if whitening is None:
        return Affine(np.zeros(dimension, np.float32), unit_length=normalize)
    if not hasattr(whitening, "kernel"):
        raise InputError(
            f"{type(whitening).__name__} is not a map x W + b, so an index cannot contain it:"
            " transform the vectors first, and omit it."
        )
    affine = getattr(whitening, "affine", None) or Affine(np.zeros(len(whitening.kernel[0])), *whitening.kernel)
    check_width("whitening", affine.inputs, dimension, error=InputError)
    return affine.in_float32(unit_length=normalize)


def prepared(
    vectors: Rows, prepare: Callable[[np.ndarray], np.ndarray]
) -> Iterator[tuple[slice, Float32[np.ndarray, "rows k"]]]:
    """Yields raw vectors block by block in their stored form; InputError if the map makes a vector zero."""
    for part in blocks(len(vectors), BLOCK_ROWS):
        x = np.ascontiguousarray(prepare(vectors[part]), np.float32)
        check_lengths("document vectors after the whitening", x, part.start)
        yield part, x


class Coding(NamedTuple):
    """How documents are stored: mapped by `prepare`, and then quantized, or in float32.

    Indexes that are built with one coding can be searched as one.
    """

    prepare: Affine
    quantizer: Quantizer | None = None
    fitted: Whitening | Code | None = None  # what was fitted on the vectors, or the given code
    notes: tuple[str, ...] = ()  # for the user
    centers: Float32[np.ndarray, "lists c"] | None = None  # of inverted lists; None fits them

    @property
    def record(self) -> Codes | None:
        """The code in the header of an index."""
        q = self.quantizer
        if q is None:
            return None
        return Codes(q.name, q.nbytes, q.length)

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """Its arrays by name."""
        tensors = dict[str, np.ndarray]()
        if self.prepare.matrix is not None:
            tensors |= zip(("shift", "weight", "bias"), self.prepare.parts, strict=True)
        if self.quantizer is not None:
            tensors |= zip(("mean", "rotation", "offset"), self.quantizer.affine.parts, strict=True)
            tensors["centroids"] = self.quantizer.centroids
        if self.centers is not None:
            tensors["centers"] = self.centers
        return tensors

    @classmethod
    def read(cls, tensors: Mapping[str, np.ndarray], header: Header) -> Coding:
        """That of an index, of its `tensors`; ValueError or KeyError if they contradict the header."""
        inputs = header.input_dimension
        outputs = header.dimension
        prepare = preparation(None, inputs, header.normalize)
        if header.whitening is not None:
            parts = take(tensors, "float32", shift=(inputs,), weight=(inputs, outputs), bias=(outputs,))
            prepare = Affine(*parts, unit_length=header.normalize)
        same("dimensions of stored vectors", prepare.outputs, outputs)
        if (layout := header.codes) is None:
            return cls(prepare)
        width = tensors["rotation"].shape[1]
        affine = Affine(*take(tensors, "float32", mean=(outputs,), rotation=(outputs, width), offset=(width,)))
        [centroids] = take(tensors, "float32", centroids=tensors["centroids"].shape)
        quantizer = Quantizer(layout.name, affine, centroids, layout.length)
        same("bytes and columns of the centroids", (quantizer.nbytes, quantizer.width), (layout.bytes, width))
        if quantizer.bits not in (4, 8):
            raise ValueError(f"centroids of {quantizer.bits} bits")
        centers = tensors.get("centers")
        if centers is not None:
            take(tensors, "float32", centers=(len(centers), width))
        return cls(prepare, quantizer, centers=centers)


def choose(
    codes: str | Code,
    size: int | None,
    vectors: Rows,
    whitening: Any,
    *,
    space: Space | None = None,
    tuned: bool | None = None,
) -> Coding:
    """The fitted coding of `size` bytes for the arguments of `build_index`; `space` is that of the vectors.

    Vectors of an encoder that is not fine-tuned for similarity are whitened before they are coded.
    """
    notes: tuple[str, ...] = ()
    code: Any
    if isinstance(codes, Code):
        code = codes
        prepare = preparation(whitening, vectors.shape[1], normalize=whitening is not None)
        giver = "the vectors" if whitening is None else "the whitened vectors"
        check_width("code", code.n_features_in_, prepare.outputs, giver, error=InputError)
        if whitening is None:  # the vectors may be whitened already
            check_pooled(code, space)
        else:
            check_whitened(code, whitening)
    elif codes == SpectrumCode.name:
        size = DEFAULT_BYTES if size is None else size
        prepare = preparation(whitening, vectors.shape[1])
        moments = Moments(provenance=space.record() if space is not None and whitening is None else {})
        if isinstance(whitening, Whitening):
            code = fit(whitening, bytes=size).code
        elif whitening is None and tuned is False:
            whitening, code, why = fit(moments.update(vectors), bytes=size, tuned=tuned)
            prepare = preparation(whitening, vectors.shape[1])
            notes = (why,)
        else:
            for _, x in prepared(vectors, prepare):
                moments.update(x)
            code = fit(moments, bytes=size, tuned=True).code
    else:
        prepare = preparation(whitening, vectors.shape[1])
        code = make_code(codes)
        for _, x in prepared(vectors, prepare):
            code.partial_fit(x)
    quantizer = code.quantizer()
    if size not in (None, quantizer.nbytes):
        raise InputError(f"The code {quantizer.name} has {quantizer.nbytes} bytes per vector: expected {size}.")
    if isinstance(codes, Code) or codes == SpectrumCode.name:
        fitted = code if whitening is None else whitening
        return Coding(prepare, quantizer, fitted, notes)
    return Coding(prepare, quantizer)
