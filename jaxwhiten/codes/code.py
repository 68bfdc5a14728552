"""What every code of vectors is: learned once, vectors to bytes and back, searched by FAISS as a product quantiser.

A code is a linear map, unit length where it asks for that, and a quantiser of the mapped columns. Every column lies in
one byte, so that a code is a product quantiser whose centroids are computed: the 256 values of a byte, decoded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, UInt8

from jaxwhiten.arrays import as_matrix, block_rows, blocks, normalize
from jaxwhiten.codes.product import Quantiser
from jaxwhiten.errors import InputError
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import VectorMethod

Constants = Mapping[str, Any]
_BLOCK_BYTES = 4 << 20  # of mapped rows: what a quantiser makes of them stays in the cache
_SCORE_ROWS = 16384


class Code(VectorMethod):
    """A code of vectors. A subclass says what it learns, its linear map, its quantiser, and what bytes stand for.

    `transform` gives the vectors that are quantised, which is also the side of a query: mapped, and scaled to unit
    length where the code does that.

    Attributes:
      dtype: What sentence-transformers gives the bytes as; `encode` always gives uint8.
    """

    dtype: ClassVar[type[np.generic]] = np.uint8

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of a vector's code."""

    @property
    @abstractmethod
    def affine(self) -> Affine:
        """What is done to vectors before they are quantised: a map, and unit length where the code asks for it."""

    @property
    @abstractmethod
    def byte_of_column(self) -> Int[np.ndarray, " k"]:
        """The byte in which each mapped column lies; −1 for one that is in none."""

    @property
    @abstractmethod
    def constants(self) -> Constants:
        """What `quantise` works with, as arrays."""

    @staticmethod
    @abstractmethod
    def quantise(x: Any, constants: Constants) -> Any:
        """Mapped rows to uint8 [n, bytes], in NumPy, or in JAX where the rows are a JAX array: also under `jit`."""

    @staticmethod
    @abstractmethod
    def quantise_onnx(graph: Any, x: str, constants: Constants) -> str:
        """The same as operators of an ONNX graph (`jaxwhiten.export.onnx`): the bytes as whole numbers in float32."""

    @abstractmethod
    def _decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        """What the bytes stand for."""

    @property
    def one_bit(self) -> bool:
        """Whether every bit is the sign of a column of its own, so that codes can be compared by Hamming distance."""
        return False

    @property
    def kernel(self) -> tuple[Float32[np.ndarray, "d k"], Float32[np.ndarray, " k"]]:
        """W and b of the linear map x W + b, rounded once."""
        return self.affine.kernel

    def _apply(self, state: Any, X: np.ndarray) -> np.ndarray:
        return self.affine(X)

    def encode(self, x: Any) -> UInt8[np.ndarray | Array, "n bytes"]:
        """The codes of vectors.

        Args:
          x: [n, d] rows. A JAX array is coded where it lies, also inside a compiled function; of anything else blocks
            are coded on the host.

        Returns:
          uint8, in JAX for a JAX array.

        Raises:
          NotFittedError: Nothing was fitted yet.
          NonFiniteError: A row on the host holds NaN or an infinity; the message names it.
          InputError: Not a matrix of numbers, or another number of columns.
        """
        if isinstance(x, jax.Array):
            return self._encode_on_device(x)
        x = as_matrix(x, type(self).__name__, columns=self._fitted().d)
        codes = np.empty((len(x), self.nbytes), np.uint8)
        constants = self.constants
        for part in blocks(len(x), block_rows(x.shape[1], 4, _BLOCK_BYTES)):
            codes[part] = self.quantise(self.transform(x[part]), constants)
        return codes

    def _encode_on_device(self, x: Array) -> Array:
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise InputError(f"{type(self).__name__} takes [n, {self.n_features_in_}], got an array of {x.shape}.")
        return self.quantise(self.affine.on_device(x), self.constants)

    def decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        """What codes stand for, to be compared with what `transform` gives.

        Args:
          codes: As `encode` gave them, or the same bytes as int8.

        Returns:
          Vectors in the space of `transform`.

        Raises:
          NotFittedError: Nothing was fitted yet.
          InputError: Not bytes, or another number of them.
        """
        return self._decode(self._bytes(codes))

    def _bytes(self, codes: Any) -> UInt8[np.ndarray, "n bytes"]:
        """Codes as uint8, checked."""
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.dtype not in (np.uint8, np.int8) or codes.shape[1] != self.nbytes:
            raise InputError(f"Codes are uint8 [n, {self.nbytes}]; got {codes.dtype} of shape {codes.shape}.")
        return codes.view(np.uint8)

    def scores(self, queries: Any, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "q n"]:
        """How similar queries are to coded vectors; more is nearer.

        Args:
          queries: [q, d] raw vectors, which are compared with what the codes stand for; or codes, which are compared by
            Hamming distance where every bit is a sign, and else decoded.
          codes: As `encode` gave them.

        Returns:
          Cosines of the queries' side and the decoded vectors; of two codes of signs 1 − 2 × distance / bits, which is
          the cosine of the signs.

        Raises:
          NotFittedError: Nothing was fitted yet.
          InputError: Rows or codes of another width.
        """
        codes = self._bytes(codes)
        if np.asarray(queries).dtype not in (np.uint8, np.int8):
            q = normalize(self.transform(queries)).astype(np.float32, copy=False)
        elif self.one_bit:
            return self._hamming(self._bytes(queries), codes)
        else:
            q = normalize(self.decode(queries))
        out = np.empty((len(q), len(codes)), np.float32)
        for part in blocks(len(codes), _SCORE_ROWS):
            out[:, part] = q @ normalize(self._decode(codes[part])).T
        return out

    def _hamming(self, queries: np.ndarray, codes: np.ndarray) -> np.ndarray:
        bits = int((self.byte_of_column >= 0).sum())
        out = np.empty((len(queries), len(codes)), np.float32)
        for row, query in zip(out, queries, strict=True):
            row[:] = 1 - 2 * np.bitwise_count(codes ^ query).sum(axis=1, dtype=np.int32) / bits
        return out

    def quantiser(self, *, mapped: bool = False, halves: bool = False) -> Quantiser:
        """This code as a product quantiser: what FAISS and the JAX index search.

        Args:
          mapped: Whether the vectors come as `transform` gives them, and not raw.
          halves: Whether each half of a byte, low bits first, has centroids of its own, which fast scans ask for.

        Raises:
          InputError: Halves are wanted, and a column lies in both halves of a byte.
        """
        byte, (weight, bias) = self.byte_of_column, self.kernel
        if mapped:
            weight, bias = np.eye(len(byte), dtype=np.float32), np.zeros(len(byte), np.float32)
        decoded = self._decode(np.tile(np.arange(256, dtype=np.uint8)[:, None], self.nbytes))
        group, count = byte, self.nbytes
        if halves:
            high = self.in_high_half
            group, count = np.where(byte >= 0, 2 * byte + high, -1), 2 * count
            decoded = np.where(high, decoded[::16], decoded[:16])
        used = np.flatnonzero(group >= 0)
        used = used[np.argsort(group[used], kind="stable")]
        counts = np.bincount(group[used], minlength=count)
        width = int(counts.max())
        place = group[used] * width + np.arange(len(used)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = count * width
        padded, offset = np.zeros((len(weight), columns), np.float32), np.zeros(columns, np.float32)
        padded[:, place], offset[place] = weight[:, used], bias[used]
        centroids = np.zeros((len(decoded), columns), np.float32)
        centroids[:, place] = decoded[:, used]
        centroids = np.ascontiguousarray(centroids.reshape(len(decoded), count, width).transpose(1, 0, 2))
        return Quantiser(self.name, Affine.of_kernel(padded, offset, unit_length=self.affine.unit_length), centroids)

    @property
    def in_high_half(self) -> Bool[np.ndarray, " k"]:
        """Whether each column lies in the high four bits of its byte.

        Raises:
          InputError: A column lies in both halves.
        """
        raise InputError(f"The columns of the code {self.name} do not lie in halves of bytes, as a fast scan asks for.")

    def to_faiss(self) -> Any:
        """An empty FAISS index that codes the raw vectors added to it as `encode` does.

        `IndexPreTransform` of a `LinearTransform`, a `NormalizationTransform` where the code asks for unit length, and
        an `IndexPQ` whose centroids are computed. It searches by the Euclidean distance of the query's side to what the
        codes stand for, which ranks as their cosine does but for the lengths that coding changed. No part of it needs
        training, and FAISS alone reads the file that `faiss.write_index` makes of it.

        Raises:
          NotFittedError: Nothing was fitted yet.
          MissingDependencyError: FAISS is not installed.
        """
        return self.quantiser().to_faiss()
