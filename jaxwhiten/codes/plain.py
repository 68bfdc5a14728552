"""The plain codes of sentence-transformers: one byte or one bit per column.

They give the bytes of `sentence_transformers.quantize_embeddings`, but ranges are fitted once and kept. A whitening in
front of the code centers and rotates vectors. Where columns do not fill the last byte its other bits are 0, here, in
every index, and in FAISS.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxwhiten.arrays import check_finite
from jaxwhiten.codes.code import Code, CodePlan, Constants
from jaxwhiten.io import take
from jaxwhiten.types import AnyArray, Float32, Float64, OnnxGraph
from jaxwhiten.types import UInt8 as Bytes
from jaxwhiten.whitening.affine import Affine


class PlainCode(Code):
    """The base of the plain codes: it learns the ranges of the columns.

    Attributes:
      low_, high_: Lowest and highest value of every column, float64 [d].
      square_: Mean of the squares of every column, float64 [d], by which indexes know how long vectors are.
    """

    low_: Float64[np.ndarray, " d"]
    high_: Float64[np.ndarray, " d"]
    square_: Float64[np.ndarray, " d"]

    def _add_rows(self, X: np.ndarray, more: bool) -> None:
        check_finite(X)
        low = X.min(axis=0).astype(np.float64)
        high = X.max(axis=0).astype(np.float64)
        square = np.square(X, dtype=np.float64).mean(axis=0)
        if more:
            self.low_, self.high_ = (np.minimum(self.low_, low), np.maximum(self.high_, high))
            share = len(X) / (self.n_samples_seen_ + len(X))
            self.square_ = self.square_ + share * (square - self.square_)
        else:
            self.low_ = low
            self.high_ = high
            self.square_ = square

    @property
    def ranges_(self) -> Float32[np.ndarray, "2 d"]:
        """Lowest and highest value of every column."""
        return np.stack([self.low_, self.high_]).astype(np.float32)

    def tensors(self) -> dict[str, np.ndarray]:
        return {"low": self.low_, "high": self.high_, "square": self.square_}

    def restore(self, tensors: Mapping[str, np.ndarray], d: int) -> None:
        self.low_, self.high_, self.square_ = take(tensors, "float64", low=(d,), high=(d,), square=(d,))


class ScalarCode(PlainCode):
    """One byte per column: 256 equal steps over the fitted range. A subclass sets the dtype of the bytes."""

    @property
    def plan(self) -> CodePlan:
        columns, (starts, ends) = np.arange(self.n_features_in_), self.ranges_
        steps = (ends - starts) / np.float32(255)
        constants = {"starts": starts, "steps": np.where(steps == 0, np.float32(1), steps)}
        return CodePlan(Affine(np.zeros(len(columns))), constants, columns, length=float(np.sqrt(self.square_.sum())))

    @classmethod
    def quantize(cls, x: AnyArray, constants: Constants) -> AnyArray:
        xp = x.__array_namespace__()
        steps = xp.floor((x - constants["starts"]) / constants["steps"])
        return xp.clip(steps, 0, 255).astype(xp.uint8) ^ cls.flip

    @classmethod
    def quantize_onnx(cls, graph: OnnxGraph, x: str, constants: Constants) -> str:
        starts, steps = (graph.constant(f"{x}.{name}", constants[name]) for name in ("starts", "steps"))
        whole = graph.op("Floor", graph.op("Div", graph.op("Sub", x, starts), steps))
        return cls._flipped(graph, graph.op("Clip", whole, graph.number(0.0), graph.number(255.0)))

    def _decode(self, codes: Bytes[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        starts, ends = self.ranges_
        middle = starts + (ends - starts) / np.float32(510)  # the middle of the lowest step
        return (codes ^ self.flip).astype(np.float32) * self.plan.constants["steps"] + middle


class BinaryCode(PlainCode):
    """One bit per column: whether it is above zero. A subclass sets the dtype of the bytes.

    Bits decode to ±1/√d, so that decoded vectors have unit length.
    """

    @property
    def plan(self) -> CodePlan:
        columns = np.arange(d := self.n_features_in_)
        places = np.zeros((d, -(-d // 8)), np.float32)
        places[columns, columns // 8] = 2.0 ** (7 - columns % 8)  # the first column is the highest bit
        return CodePlan(Affine(np.zeros(d)), {"places": places}, columns // 8)

    @classmethod
    def quantize(cls, x: AnyArray, constants: Constants) -> AnyArray:
        xp = x.__array_namespace__()
        return xp.packbits(x > 0, axis=-1) ^ cls.flip

    @classmethod
    def quantize_onnx(cls, graph: OnnxGraph, x: str, constants: Constants) -> str:
        bits = graph.op("Cast", graph.op("Greater", x, graph.number(0.0)), to=1)
        return cls._flipped(graph, graph.op("MatMul", bits, graph.constant(f"{x}.places", constants["places"])))

    def _decode(self, codes: Bytes[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        d = self.n_features_in_
        bits = np.unpackbits(codes ^ self.flip, axis=1, count=d).astype(np.float32)
        return (2 * bits - 1) / np.float32(np.sqrt(d))


class Int8(ScalarCode):
    """`precision="int8"` of sentence-transformers: one byte per column, −128 for the lowest value.

    >>> Int8().fit(np.array([[0.0], [1.0]])).encode(np.array([[0.5]])).tolist()  # −1 as a byte
    [[255]]
    """

    name = "int8"
    dtype = np.int8
    flip = np.uint8(128)


class UInt8(ScalarCode):
    """`precision="uint8"` of sentence-transformers: one byte per column, 0 for the lowest value.

    >>> UInt8().fit(np.array([[0.0], [1.0]])).encode(np.array([[0.5]])).tolist()
    [[127]]
    """

    name = "uint8"


class Binary(BinaryCode):
    """`precision="binary"` of sentence-transformers: the bytes of `ubinary` minus 128, as int8.

    >>> Binary().fit(np.eye(8)).encode(np.eye(8)[:1]).tolist()
    [[0]]
    """

    name = "binary"
    dtype = np.int8
    flip = np.uint8(128)


class UBinary(BinaryCode):
    """`precision="ubinary"` of sentence-transformers: one bit per column, set if the column is above zero.

    >>> UBinary().fit(np.eye(8)).encode(np.eye(8)[:1]).tolist()
    [[128]]
    """

    name = "ubinary"
