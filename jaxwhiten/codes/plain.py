"""The plain codes that users know from sentence-transformers: a byte or a bit of every column.

The bytes are those of `sentence_transformers.quantize_embeddings`. Here ranges are fitted once and kept, and vectors
can be centred and rotated first, without which a common direction of all vectors takes most of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int
from jaxtyping import UInt8 as Bytes

from jaxwhiten.arrays import block_rows, blocks, check_finite, work_dtype
from jaxwhiten.codes.code import Code, Constants
from jaxwhiten.codes.rotation import ROTATIONS, random_rotation
from jaxwhiten.errors import InputError, unknown_name
from jaxwhiten.whitening import Moments, Whitening
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Learned, check_integer, parameters, stamp

_SIGN = np.uint8(128)  # of a byte that is read as int8

P = TypeVar("P", bound="PlainCode")


class _State(NamedTuple):
    """What was seen: rows, their mean, the ranges of the rotated columns, and the rotation, [0, d] for none."""

    n: int
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rotation: np.ndarray


@parameters
class PlainCode(Code):
    """What the plain codes share: vectors taken as they are, or centred and rotated first.

    Args:
      center: Whether the mean of the rows fitted on is subtracted.
      rotation: None, `"hadamard"` or `"qr"`: a random rotation that spreads what is in few columns over all.
      seed: Of the rotation.
    """

    signed = False
    needs_rows = False

    center: bool = False
    rotation: str | None = None
    seed: int = 0

    def fit(self: P, X: Any, y: Any = None) -> P:
        """Learns from rows, or from moments where they say all that is needed, forgetting earlier ones.

        Args:
          X: [n, d] rows; or `Moments` or a `Whitening`, for codes that need no ranges.
          y: Ignored.

        Returns:
          This object.

        Raises:
          NonFiniteError: A row holds NaN or an infinity; the message names it, nothing is changed.
          InputError: Not a matrix of numbers, no rows, a parameter that cannot be, or moments where ranges are needed.
        """
        if not isinstance(X, Moments | Whitening):
            return super().fit(X)
        if self.needs_rows:
            raise InputError(
                f"The code {self.name} needs the range of every column, which moments do not have: fit rows."
            )
        n, mean = (X.n, X.mean) if isinstance(X, Moments) else (X.n_samples_seen_, X.mean_)
        if not n:
            raise InputError("These moments are empty: update them with rows first.")
        self._check_params(len(mean))
        rotation = self._drawn(len(mean))
        turned = mean @ rotation if len(rotation) else mean
        state = _State(n, mean.copy(), turned, turned, rotation)
        self._learned = Learned(state, n, len(mean), {**X.provenance, **stamp()})
        return self

    def _drawn(self, d: int) -> np.ndarray:
        return np.zeros((0, d)) if self.rotation is None else random_rotation(self.rotation, d, self.seed)

    def _learn(self, X: np.ndarray, state: _State | None) -> _State:
        check_finite(X)
        if state is None:
            d = X.shape[1]
            state = _State(0, np.zeros(d), np.full(d, np.inf), np.full(d, -np.inf), self._drawn(d))
        n, mean, low, high, rotation = state
        rotate = Affine(np.zeros(X.shape[1]), rotation) if len(rotation) else None
        for part in blocks(len(X), block_rows(X.shape[1], 8)):
            rows = X[part].astype(work_dtype(X.dtype), copy=False)
            turned = rows if rotate is None else rotate(rows)
            n += len(rows)
            mean = mean + (rows.mean(axis=0, dtype=np.float64) - mean) * (len(rows) / n)
            low, high = np.minimum(low, turned.min(axis=0)), np.maximum(high, turned.max(axis=0))
        return _State(n, mean, low, high, rotation)

    def _check_params(self, d: int) -> None:
        if not isinstance(self.center, bool | np.bool_):
            raise InputError(f"center must be True or False, got {self.center!r}.")
        if self.rotation is not None and self.rotation not in ROTATIONS:
            raise unknown_name("rotation", self.rotation, ROTATIONS)
        check_integer("seed", self.seed, least=0)

    @property
    def affine(self) -> Affine:
        state: _State = self._fitted().state
        d = len(state.mean)
        if not self.center and not len(state.rotation):
            return Affine(np.zeros(d))
        rotation = state.rotation if len(state.rotation) else np.eye(d)
        return Affine(state.mean if self.center else np.zeros(d), rotation)

    @property
    def ranges_(self) -> Float32[np.ndarray, "2 d"]:
        """Lowest and highest value of every column, after centring and rotation."""
        state: _State = self._fitted().state
        shift = np.zeros(len(state.mean))
        if self.center:
            shift = state.mean @ state.rotation if len(state.rotation) else state.mean
        return np.stack([state.low - shift, state.high - shift]).astype(np.float32)

    @property
    def _flip(self) -> np.uint8:
        return _SIGN if self.signed else np.uint8(0)

    def _pack(self, state: _State) -> dict[str, np.ndarray]:
        return {**state._asdict(), "n": np.array([state.n], np.int64)}

    def _unpack(self, tensors: Mapping[str, np.ndarray], d: int) -> _State:
        state = _State(int(tensors["n"].item()), *(tensors[name] for name in _State._fields[1:]))
        wanted = (d,), (d,), (d,), (d if self.rotation else 0, d)
        if tuple(array.shape for array in state[1:]) != wanted or any(a.dtype != np.float64 for a in state[1:]):
            raise ValueError("arrays of other shapes")
        return state


class ScalarCode(PlainCode):
    """A byte of every column: 256 equal steps over the range of the rows fitted on. A subclass says how it is read."""

    needs_rows = True

    @property
    def nbytes(self) -> int:
        return self._fitted().d

    @property
    def byte_of_column(self) -> Int[np.ndarray, " k"]:
        return np.arange(self.nbytes)

    @property
    def constants(self) -> Constants:
        starts, ends = self.ranges_
        steps = (ends - starts) / np.float32(255)
        return {"starts": starts, "steps": np.where(steps == 0, np.float32(1), steps), "flip": self._flip}

    @staticmethod
    def quantise(x: Any, constants: Constants) -> Any:
        xp: Any = np if isinstance(x, np.ndarray) else jnp
        steps = xp.floor((x - constants["starts"]) / constants["steps"])
        return xp.clip(steps, 0, 255).astype(xp.uint8) ^ constants["flip"]

    @staticmethod
    def quantise_onnx(graph: Any, x: str, constants: Constants) -> str:
        starts, steps = (graph.constant(f"{x}.{name}", constants[name]) for name in ("starts", "steps"))
        whole = graph.op("Floor", graph.op("Div", graph.op("Sub", x, starts), steps))
        return _flipped(graph, graph.op("Clip", whole, graph.number(0.0), graph.number(255.0)), constants)

    def _decode(self, codes: Bytes[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        starts, ends = self.ranges_
        middle = starts + (ends - starts) / np.float32(510)  # of the lowest step
        return (codes ^ self._flip).astype(np.float32) * self.constants["steps"] + middle


class BinaryCode(PlainCode):
    """A bit of every column: whether it is above zero. A subclass says how the bytes are read.

    Bits stand for ±1/√d, so that what a code stands for has unit length.
    """

    @property
    def nbytes(self) -> int:
        return -(-self._fitted().d // 8)

    @property
    def byte_of_column(self) -> Int[np.ndarray, " k"]:
        return np.arange(self._fitted().d) // 8

    @property
    def one_bit(self) -> bool:
        return True

    @property
    def in_high_half(self) -> Bool[np.ndarray, " k"]:
        return np.arange(self._fitted().d) % 8 < 4  # the first column is the highest bit

    @property
    def constants(self) -> Constants:
        column = np.arange(self._fitted().d)
        places = np.zeros((len(column), self.nbytes), np.float32)
        places[column, column // 8] = 2.0 ** (7 - column % 8)  # the first column is the highest bit
        return {"flip": self._flip, "places": places}

    @staticmethod
    def quantise(x: Any, constants: Constants) -> Any:
        xp: Any = np if isinstance(x, np.ndarray) else jnp
        return xp.packbits(x > 0, axis=-1) ^ constants["flip"]

    @staticmethod
    def quantise_onnx(graph: Any, x: str, constants: Constants) -> str:
        bits = graph.op("Cast", graph.op("Greater", x, graph.number(0.0)), to=1)
        places = graph.constant(f"{x}.places", constants["places"])
        return _flipped(graph, graph.op("MatMul", bits, places), constants)

    def _decode(self, codes: Bytes[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        d = self._fitted().d
        bits = np.unpackbits(codes ^ self._flip, axis=1)[:, :d]
        return (bits.astype(np.float32) * 2 - 1) / np.float32(np.sqrt(d))


def _flipped(graph: Any, x: str, constants: Constants) -> str:
    """Bytes as whole numbers, their highest bit turned over where they are read as int8."""
    if not constants["flip"]:
        return x
    half = graph.number(float(_SIGN))
    return graph.op("Where", graph.op("Less", x, half), graph.op("Add", x, half), graph.op("Sub", x, half))


class Int8(ScalarCode):
    """`precision="int8"` of sentence-transformers: a byte of every column, −128 for the lowest value."""

    name = "int8"
    dtype = np.int8
    signed = True


class UInt8(ScalarCode):
    """`precision="uint8"` of sentence-transformers: a byte of every column, 0 for the lowest value."""

    name = "uint8"


class Binary(BinaryCode):
    """`precision="binary"` of sentence-transformers: the bits of `ubinary`, read as int8 after 128 was subtracted."""

    name = "binary"
    dtype = np.int8
    signed = True


class UBinary(BinaryCode):
    """`precision="ubinary"` of sentence-transformers: a bit of every column, whether it is above zero."""

    name = "ubinary"
