"""The contract of every code: it is fitted once, maps vectors to bytes and back, and is a product quantizer for FAISS.

A code stores the vectors that it is given. It is a rotation about a mean, and a quantizer of the rotated columns, each
of which lies in one byte. Hence a code is a product quantizer whose centroids are the values of a byte, or of each half
of a byte, decoded. What a code represents are vectors of the space that it was given, and scores are their cosines.

References:
  Jégou, Douze, Schmid 2011, "Product quantization for nearest neighbor search", section II.B. Here the centroids are
  not trained on vectors.
  André, Kermarrec, Le Scouarnec 2017, "Accelerated nearest neighbor search with Quick ADC", for halves of bytes.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxwhiten.arrays import block_rows, blocks, is_of_jax, normalize
from jaxwhiten.codes.gaussian import nearest_on_cores
from jaxwhiten.errors import InputError, MismatchError, check_name, optional
from jaxwhiten.io import PathLike, load_tensors
from jaxwhiten.space import Space, check_space
from jaxwhiten.types import AnyArray, Bool, Float, Float32, Int, Integer, OnnxGraph, RowsLike, UInt8
from jaxwhiten.vectors import check_comparable, space_of, with_space
from jaxwhiten.whitening import Moments, Whitening
from jaxwhiten.whitening.affine import Affine
from jaxwhiten.whitening.estimator import Estimator

Constants = Mapping[str, Any]
_BLOCK_BYTES = 32 << 20  # bytes of rows that are mapped at a time
_SCORE_ROWS = 16384
_TINY = np.finfo(np.float32).tiny

CODES: dict[str, type[Code]] = {}
"""Every code by name: subclasses of `Code` that define a name are added automatically."""


class CodePlan(NamedTuple):
    """The operations of a fitted code under its current parameters."""

    affine: Affine  # vectors to the columns that are quantized: a rotation about the mean, or the identity
    constants: Constants  # of `quantize`
    byte: Int[np.ndarray, " k"]  # in which each mapped column lies; −1 for a column that is not coded
    high: Bool[np.ndarray, " k"] | None = None  # whether in the byte's high half; None if columns span both halves
    length: float = 1.0  # expected root mean square of the lengths of decoded vectors


@dataclasses.dataclass(frozen=True, eq=False)
class Quantizer:
    """A code as a product quantizer of coordinates; a vector is the mean plus its rotated coordinates.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> SpectrumCode(bytes=4).fit(rows).quantizer().bits
    4
    """

    name: str  # of the code
    affine: Affine  # vectors to coordinates, (x − μ) V, grouped by byte and padded with zeros
    # The coordinates of each value of each byte, or of each half of a byte.
    centroids: Float32[np.ndarray, "groups values width"]
    length: float = 1.0  # see `CodePlan.length`

    @property
    def bits(self) -> int:
        """Bits of a group: 8, or 4 if groups are halves of bytes."""
        return self.centroids.shape[1].bit_length() - 1

    @property
    def nbytes(self) -> int:
        """Bytes of a vector's code."""
        return len(self.centroids) * self.bits // 8

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.centroids) * self.centroids.shape[2]

    @functools.cached_property
    def center(self) -> tuple[Float32[np.ndarray, " coordinates"], float]:
        """The coordinates of the mean about the origin, Vᵀμ, and its square |μ|²."""
        shift, matrix, _ = self.affine.parts
        mean = shift.astype(np.float64)
        return (mean @ matrix).astype(np.float32), float(mean @ mean)

    def quantize(self, coordinates: Float[np.ndarray, "n coordinates"]) -> UInt8[np.ndarray, "n bytes"]:
        """The codes of coordinates."""
        return packed(nearest_on_cores(coordinates, apart(self.centroids)), self.bits)

    @functools.cached_property
    def _asking(self) -> Float32[np.ndarray, "d more"]:
        """The columns of V, and the mean."""
        shift, matrix, _ = self.affine.parts
        return np.concatenate([matrix, shift[:, None]], axis=1)

    @functools.cached_property
    def stretch(self) -> float:
        """s of `query_points`."""
        cosine = (1 + self.center[1] / self.length**2) / 2
        return self.length / cosine

    @functools.cached_property
    def table(self) -> tuple[Float32[np.ndarray, "rows w"], Float32[np.ndarray, " rows"], Int[np.ndarray, " bytes"]]:
        """For each value of each byte, coordinates and what they add to |y|²; and the first row of each byte.

        |μ|² is added by the first byte.
        """
        centroids = self.centroids
        if self.bits == 4:
            low = centroids[::2]
            high = centroids[1::2]
            shape = (len(low), 16, 16, centroids.shape[2])
            halves = np.broadcast_to(low[:, None], shape), np.broadcast_to(high[:, :, None], shape)
            centroids = np.concatenate(halves, axis=3).reshape(len(low), 256, -1)
        squares = self.squares(centroids)
        firsts = np.arange(len(centroids), dtype=np.intp) * 256
        return np.ascontiguousarray(centroids).reshape(-1, centroids.shape[2]), squares.ravel(), firsts

    def squares(self, centroids: Float32[np.ndarray, "groups values w"]) -> Float32[np.ndarray, "groups values"]:
        """What values of groups of coordinates add to the squared length of a decoded vector; |μ|² is in the first."""
        mean, square = self.center
        squares = (centroids * (centroids + 2 * mean.reshape(len(centroids), 1, -1))).sum(axis=2)
        squares[0] += np.float32(square)
        return squares

    def coordinates(self, codes: UInt8[np.ndarray, "*n bytes"]) -> Float32[np.ndarray, "*n coordinates"]:
        """The coordinates that codes represent."""
        table, _, firsts = self.table
        # Every place exists, and with "clip" NumPy does not check it.
        return np.take(table, codes + firsts, axis=0, mode="clip").reshape(*codes.shape[:-1], self.width)

    def query_coordinates(
        self, queries: Float32[np.ndarray, "q d"]
    ) -> tuple[Float32[np.ndarray, "q c"], Float32[np.ndarray, " q"]]:
        """Queries q of unit length as coordinates, Vᵀq, and their products with the mean."""
        both = queries @ self._asking
        return both[:, :-1], both[:, -1]

    def query_points(self, asked: Float32[np.ndarray, "q c"]) -> Float32[np.ndarray, "q c"]:
        """The points whose distances to coordinates rank vectors y nearly like the cosine: s q with s = m / c.

        With m, the root mean square of the lengths |y|, |s q − y|² ranks like q·u + c (1 − |u|²) / 2 for u = y / m.
        This is the cosine of q and y to the first order around the length m and the cosine c, which is taken halfway
        between that of two vectors of the fit and 1.
        """
        return asked * np.float32(self.stretch) - self.center[0]

    def cosines(
        self,
        asked: Float32[np.ndarray, "q c"],
        products: Float32[np.ndarray, " q"],
        codes: UInt8[np.ndarray, "*n bytes"],
    ) -> Float32[np.ndarray, "q n"]:
        """The cosines of queries, as `query_coordinates` gives them, with decoded vectors: q·(μ + V z) / |μ + V z|.

        Codes are [n, bytes], or [q, n, bytes] if each query has its own.
        """
        _, squares, firsts = self.table
        places = codes + firsts
        lengths = np.take(squares, places, mode="clip").sum(axis=-1)
        if codes.ndim == 2:
            inner = asked @ self.coordinates(codes).T
        else:
            tables = self._products(asked)
            if len(asked) > 1:
                places += np.arange(0, tables.size, tables[0].size)[:, None, None]
            inner = np.take(tables, places, mode="clip").sum(axis=-1)
        return (inner + products[:, None]) / np.sqrt(np.maximum(lengths, _TINY, out=lengths), out=lengths)

    def _products(self, asked: Float32[np.ndarray, "q c"]) -> Float32[np.ndarray, "q bytes ..."]:
        """The products of queries with the coordinates of each value of each byte, the high half first."""
        count, _, width = self.centroids.shape
        products: np.ndarray = np.matmul(self.centroids, asked.reshape(-1, count, width, 1))[..., 0]
        if self.bits == 8:
            return products
        return products[:, 1::2, :, None] + products[:, ::2, None]

    def empty_pq(self) -> Any:
        """An empty `faiss.IndexPQ` over the coordinates under the Euclidean distance; it needs no training."""
        faiss = import_faiss()
        count, _, width = self.centroids.shape
        index = faiss.IndexPQ(count * width, count, self.bits, faiss.METRIC_L2)
        self.fill(index.pq)
        index.is_trained = True
        return index

    def leading(self, share: float) -> Quantizer:
        """The quantizer of the fewest leading bytes whose coordinates have this share of the variance, below 1.

        Its coordinates are the first ones of all.

        >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
        >>> SpectrumCode(bytes=4).fit(rows).quantizer().leading(0.85).nbytes
        3
        """
        variances = self.centroids.var(axis=1).reshape(self.nbytes, -1).sum(axis=1)
        nbytes = 1 + int(np.searchsorted(np.cumsum(variances), share * variances.sum()))
        return dataclasses.replace(self, centroids=self.centroids[: nbytes * 8 // self.bits])

    def fill(self, pq: Any) -> None:
        """Copies the centroids, `apart`, into a `faiss.ProductQuantizer` of this shape."""
        import_faiss().copy_array_to_vector(np.ascontiguousarray(apart(self.centroids)).ravel(), pq.centroids)


def packed(groups: UInt8[AnyArray, "n groups"], bits: int) -> AnyArray:
    """The bytes of groups of 8 or 4 bits, of which the first of two is the low half of a byte; also in JAX."""
    if bits == 8:
        return groups
    return groups[:, ::2] | groups[:, 1::2] << 4


def unpacked(codes: UInt8[np.ndarray, "n bytes"], bits: int) -> UInt8[np.ndarray, "n groups"]:
    """The reverse of `packed`."""
    if bits == 8:
        return codes
    return np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), 2 * codes.shape[1])


class Code(Estimator):
    """A code of vectors. A subclass defines what it learns, the `plan` that follows from it, and how to quantize.

    `transform` gives the vectors that the codes of rows represent, what `decode` makes of `encode`. Threads may share
    a fitted code; one thread at a time may fit it.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> code = SpectrumCode(bytes=4).fit(rows)
    >>> code.scores(rows[:2], code.encode(rows)).argmax(axis=1)
    array([0, 1])
    """

    dtype: ClassVar[type[np.generic]] = np.uint8  # of sentence-transformers; `encode` always gives uint8
    flip: ClassVar[np.uint8] = np.uint8(0)  # 128 for codes that are read as int8, whose lowest value is −128

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            CODES[cls.name] = cls

    @property
    @abstractmethod
    def plan(self) -> CodePlan:
        """The operations under the current parameters."""

    affine = property(lambda self: self.plan.affine, doc="What is done to vectors before they are quantized.")

    @classmethod
    @abstractmethod
    def quantize(cls, x: AnyArray, constants: Constants) -> AnyArray:
        """Quantizes mapped rows to uint8 [n, bytes], in NumPy, or in JAX for a JAX array, also under `jit`."""

    @classmethod
    @abstractmethod
    def quantize_onnx(cls, graph: OnnxGraph, x: str, constants: Constants) -> str:
        """`quantize` as operators of an ONNX graph (`jaxwhiten.models.graph`); bytes are whole numbers in float32."""

    @classmethod
    def _flipped(cls, graph: OnnxGraph, x: str) -> str:
        """Bytes as whole numbers in a graph, with their highest bit flipped if `flip` is 128."""
        if not cls.flip:
            return x
        half = graph.number(float(cls.flip))
        return str(graph.op("Where", graph.op("Less", x, half), graph.op("Add", x, half), graph.op("Sub", x, half)))

    @abstractmethod
    def _decode(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n k"]:
        """The mapped columns that checked bytes represent."""

    @property
    def nbytes(self) -> int:
        """Bytes of a vector's code."""
        return int(self.plan.byte.max()) + 1

    def rows(self, X: RowsLike) -> np.ndarray:
        matrix = super().rows(X)
        check_pooled(self, space_of(X))
        return matrix

    def _apply(self, X: np.ndarray) -> np.ndarray:
        return self._represented(self._quantized(X))

    def _quantized(self, x: np.ndarray) -> UInt8[np.ndarray, "n bytes"]:
        """The codes of checked rows, block by block."""
        plan = self.plan
        codes = np.empty((len(x), self.nbytes), np.uint8)
        for part in blocks(len(x), block_rows(x.shape[1], 4, _BLOCK_BYTES)):
            codes[part] = self.quantize(plan.affine(x[part]), plan.constants)
        return codes

    def _represented(self, codes: UInt8[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n d"]:
        """The vectors that checked bytes represent: the mean plus the decoded columns, rotated back."""
        columns = self._decode(codes)
        affine = self.plan.affine
        if affine.matrix is None:
            return columns
        shift, matrix, _ = affine.parts
        return columns @ matrix.T + shift

    def encode(self, x: RowsLike) -> UInt8[AnyArray, "n bytes"]:
        """The codes of vectors: `Vectors`, or a JAX array of bytes for a JAX array. Bits without a column are 0.

        Args:
          x: [n, d] rows. A JAX array is coded on its device, also inside a compiled function; other input is coded on
            the host, block by block.

        Raises:
          NonFiniteError: A row on the host holds NaN or an infinity; the message names the row.
          MismatchError: The rows are of another space than those of the fit, and both are known.
        """
        if is_of_jax(x):
            if x.ndim != 2 or x.shape[1] != self.n_features_in_:
                raise InputError(f"{type(self).__name__} takes [n, {self.n_features_in_}], got an array of {x.shape}.")
            plan = self.plan
            return self.quantize(plan.affine.on_device(x), plan.constants)
        return with_space(self._quantized(self.rows(x)), space_of(x), self)

    def decode(self, codes: Integer[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "n d"]:
        """The vectors that codes in uint8 (or the same bytes as int8) represent, in the space of those of the fit."""
        return self._represented(self._bytes(codes))

    def _bytes(self, codes: Any) -> UInt8[np.ndarray, "n bytes"]:
        """Codes as uint8, checked."""
        code = getattr(codes, "code", None)
        if code is not None and code is not self:
            name = f"the {type(self).__name__}"
            check_space(name, self.space, code.space, "decode them by their own code", role="query")
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.dtype not in (np.uint8, np.int8) or codes.shape[1] != self.nbytes:
            raise InputError(f"Codes are uint8 [n, {self.nbytes}]; got {codes.dtype} of shape {codes.shape}.")
        return codes.view(np.uint8)

    def scores(self, queries: RowsLike, codes: Integer[np.ndarray, "n bytes"]) -> Float32[np.ndarray, "q n"]:
        """The cosines of queries with the vectors that codes represent.

        Queries are [q, d] vectors like those of the fit, or codes. MismatchError if both sides know their spaces, and
        these differ.
        """
        check_comparable(queries, codes)
        codes = self._bytes(codes)
        coded = getattr(queries, "dtype", None) in (np.uint8, np.int8) and getattr(queries, "code", self) is self
        q = normalize(self.decode(queries) if coded else self.rows(queries)).astype(np.float32, copy=False)
        out = np.empty((len(q), len(codes)), np.float32)
        for part in blocks(len(codes), _SCORE_ROWS):
            out[:, part] = q @ normalize(self._represented(codes[part])).T
        return out

    def tables(
        self, queries: RowsLike
    ) -> tuple[Float32[np.ndarray, "q groups points"], Float32[np.ndarray, "groups points"]]:
        """What each value of each byte, or half byte, adds to the score of a document, for databases.

        The score is the sum of the products that a code chooses, divided by the root of the sum of the squares.

        >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
        >>> products, squares = SpectrumCode(bytes=4).fit(rows).tables(rows[:1])
        >>> products.shape, squares.shape
        ((1, 8, 16), (8, 16))

        Args:
          queries: [q, d] vectors like those of the fit, such as `encoder.queries(texts)`. Codes are decoded, and find
            less.

        Returns:
          The parts of the products of queries with decoded vectors, and of the squared lengths of these. The low half
          of byte b is group 2b, the high half 2b + 1.
        """
        quantizer = self.quantizer()
        centroids = quantizer.centroids
        coordinates, of_mean = quantizer.query_coordinates(normalize(self.rows(queries)).astype(np.float32, copy=False))
        of_groups = coordinates.reshape(len(coordinates), len(centroids), -1)
        products = np.einsum("gpw,qgw->qgp", centroids, of_groups)
        products[:, 0] += of_mean[:, None]
        return products, quantizer.squares(centroids)

    def quantizer(self) -> Quantizer:
        """This code as a product quantizer, which FAISS and the JAX index search."""
        plan = self.plan
        count = self.nbytes
        group = byte = plan.byte
        decoded = self._decode(np.tile(np.arange(256, dtype=np.uint8)[:, None], count))
        if plan.high is not None:
            group = np.where(byte >= 0, 2 * byte + plan.high, -1)
            count = 2 * count
            decoded = np.where(plan.high, decoded[::16], decoded[:16])
        used = np.flatnonzero(group >= 0)
        used = used[np.argsort(group[used], kind="stable")]
        counts = np.bincount(group[used], minlength=count)
        starts = np.cumsum(counts) - counts
        some = counts > 0
        differ = np.logical_or.reduceat(np.diff(decoded[:, used], axis=0) != 0, starts[some], axis=1)
        repeats = np.ones(count, bool)  # where not every bit has a column, `apart` needs a coordinate
        repeats[some] = ~differ.all(axis=0)
        width = int((counts + repeats).max())
        place = group[used] * width + np.arange(len(used)) - np.repeat(starts, counts)
        moves = np.zeros((len(byte), count * width), np.float32)
        moves[used, place] = 1
        centroids = (decoded @ moves).reshape(len(decoded), count, width).transpose(1, 0, 2)
        affine = plan.affine.times(moves)
        return Quantizer(self.name, affine, np.ascontiguousarray(centroids, np.float32), plan.length)


def apart(centroids: Float32[np.ndarray, "groups values width"]) -> Float32[np.ndarray, "groups values width"]:
    """Centroids for those who choose the nearest one: it is the value that `encode` writes, however sums are rounded.

    Where the columns do not fill the bits, values that differ in unused bits have one centroid. All but the first of
    them, whose unused bits are 0, are moved along the last coordinate, which is 0 in every vector.
    """
    repeats = np.zeros(centroids.shape[:2], bool)
    repeats[:, 1:] = (centroids[:, 1:] == centroids[:, :-1]).all(axis=2)
    repeats &= (centroids[:, :, -1] == 0).all(axis=1)[:, None]
    if not repeats.any():
        return centroids
    # Farther than a rounded distance is wrong; but FAISS's tables for halves of bytes round the range of distances.
    times = 1024 if centroids.shape[1] == 256 else 2
    moved = centroids.copy()
    moved[repeats, -1] = times * np.abs(centroids).max()
    return moved


def check_whitened(code: Code, whitening: Any) -> None:
    """Raises MismatchError if a code was fitted on a whitening, and its input is of another one, or of none.

    >>> whitening = Whitening().fit(np.random.default_rng(0).normal(size=(400, 8)))
    >>> check_whitened(SpectrumCode(bytes=4).fit(whitening), whitening)
    """
    known = code._record.get("whitening")
    affine = getattr(whitening, "affine", None)
    if known is not None and (whitening is None or (affine is not None and affine.hash() != known)):
        raise MismatchError(
            "The code is of the vectors of a whitening, and these are of"
            f" {'none' if whitening is None else 'another one'}: add that whitening before the code, or fit the code on"
            " moments of these vectors."
        )


def check_pooled(code: Code, space: Space | None) -> None:
    """`check_whitened` for vectors of this space, which are taken as they are, if they are known to be only pooled."""
    if space is not None and space.is_pooled:
        check_whitened(code, None)


def make_code(name: str, **params: Any) -> Any:
    """Makes the code of that name in `CODES` from arguments of its constructor; it is not fitted yet.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> make_code("int8").fit(rows).nbytes
    8
    """
    check_name("code", name, CODES)
    return CODES[name]().set_params(**params)


def load_fitted(path: PathLike, kinds: tuple[type[Any], ...] = (Moments, Whitening, Code)) -> Any:
    """Loads a fitted file: `Moments`, a `Whitening` or a code, as far as they are among `kinds`.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> Moments().update(rows).save("moments.safetensors")
    >>> load_fitted("moments.safetensors")
    Moments(n=400, d=8)

    Raises:
      FormatError: The file is missing, damaged, of another kind, or of a code that this version does not know.
    """
    classes: dict[str, type[Any]] = {Moments.name: Moments, Whitening.name: Whitening, **CODES}
    readers = {name: cls for name, cls in classes.items() if issubclass(cls, kinds)}
    tensors, header = load_tensors(path, kind=tuple(readers))
    return readers[header["kind"]].from_tensors(path, tensors, header)


def load_code(path: PathLike) -> Code:
    """Loads a fitted code from the file that its `save` wrote; FormatError as for `load_fitted`.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) * np.arange(8, 0, -1)
    >>> SpectrumCode(bytes=4).fit(rows).save("code.safetensors")
    >>> load_code("code.safetensors").nbytes
    4
    """
    code: Code = load_fitted(path, (Code,))
    return code


def import_faiss(purpose: str = "Searching codes with FAISS") -> ModuleType:
    """Imports FAISS; MissingDependencyError if it is not installed."""
    return optional("faiss", "cpu", purpose, "faiss-cpu")


def transforms(affine: Affine) -> list[Any]:
    """An affine map as FAISS vector transforms: centering and a linear map unless it is the identity, unit length."""
    faiss = import_faiss()
    steps = list[Any]()
    if affine.matrix is not None:
        shift, weight, bias = affine.parts
        centering = faiss.CenteringTransform(len(shift))
        faiss.copy_array_to_vector(shift, centering.mean)
        centering.is_trained = True
        steps += [centering] if shift.any() else []
        linear = faiss.LinearTransform(*weight.shape, True)
        faiss.copy_array_to_vector(np.ascontiguousarray(weight.T).ravel(), linear.A)
        faiss.copy_array_to_vector(bias, linear.b)
        linear.is_trained = True
        steps.append(linear)
    if affine.unit_length:
        steps.append(faiss.NormalizationTransform(affine.outputs, 2.0))
    return steps


def behind(chain: list[Any], inner: Any) -> Any:
    """A FAISS index with transforms in front of it. It only points to them: the caller keeps both alive."""
    index = import_faiss().IndexPreTransform(inner)
    for step in reversed(chain):
        index.prepend_transform(step)
    return index
