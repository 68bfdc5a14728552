"""Indexes of FAISS, on CPU and GPU, with the whitening inside.

References:
  Johnson, Douze & Jégou 2019, "Billion-scale similarity search with GPUs"; Su et al. 2021 (BERT-whitening), section
  4.4, for the settings of `faiss-ivf`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.codes.code import Quantiser, behind, import_faiss, transforms
from jaxwhiten.codes.gaussian import nearest_on_cores
from jaxwhiten.errors import MissingDependencyError, install_command
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend, within
from jaxwhiten.search.faiss_fields import check_fields, read_index
from jaxwhiten.search.header import Header
from jaxwhiten.search.prepare import Coding, cosines, prepared, stretched
from jaxwhiten.whitening.affine import Affine

# k-means needs this many vectors per cluster; with fewer FAISS warns, with fewer vectors than clusters it fails.
_MIN_POINTS = 39
_FILE = "index.faiss"
_SEED = 1234


@dataclass
class IvfOptions:
    """Options of inverted lists; the defaults are from Su et al. 2021."""

    nlist: int = within(1024, 1, 1 << 20)
    nprobe: int = within(5, 1, 1 << 20)  # lists that a query searches
    max_points_per_centroid: int = within(256, 1, 1 << 20)  # vectors per list that k-means samples
    seed: int = within(_SEED, 1, 2**31 - 1)  # of k-means


@dataclass
class HnswOptions:
    """Options of a graph: neighbors per vector, and numbers of candidates while building and searching."""

    m: int = within(32, 2, 512)
    ef_construction: int = within(40, 1, 1 << 16)
    ef_search: int = within(64, 1, 1 << 16)


class Faiss(Backend):
    """A FAISS index. It compares vectors by inner product, the cosine of unit vectors, and codes by their distance.

    `factory` is the description for `faiss.index_factory` of an index of float32 vectors, `coded` of lists of codes.
    """

    factory: ClassVar[str]
    coded: ClassVar[str] = ""
    classes: ClassVar[tuple[str, str]] = ("IndexFlat", "IndexPQ")  # made by `factory` and by `coded`
    on_gpu: ClassVar[bool] = False
    _owner: Any = None  # the index that was read; it owns, and frees, the parts used here

    def __init__(
        self, options: Any, prepare: Affine, chain: list[Any], inner: Any, codes: Any, notes: Sequence[str] = ()
    ) -> None:
        self.options, self.prepare, self.notes = options, prepare, notes
        self._length = None if codes is None else float(codes["length"])
        self._faiss, self._chain, self._inner, self._index = import_faiss(), chain, inner, behind(chain, inner)

    @classmethod
    def build(cls, vectors: np.ndarray, options: Any, coding: Coding, mapped: bool) -> Faiss:
        faiss, n, d, notes = cls._import(), len(vectors), coding.prepare.outputs, list[str]()
        cls._fit_options(options, n, notes)
        chain = transforms(coding.prepare)
        rows = prepared(vectors, functools.partial(_through, [] if mapped else chain))
        inner = cls._on_device(faiss, cls._empty(faiss, d, options, coding.quantiser), options)
        if inner.is_trained:
            for _, x in rows:
                _add(faiss, inner, x)
        else:
            stored = np.empty((n, d), np.float32)
            for part, x in rows:
                stored[part] = x
            cls._train(faiss, inner, stored, coding.quantiser)
            inner.add(stored)
        return cls(options, coding.prepare, chain, inner, coding.record, notes)

    @classmethod
    def read(cls, files: Mapping[str, Path], options: Any, header: Header) -> Faiss:
        faiss, codes = cls._import(), header.codes
        index = read_index(faiss, files[_FILE], header.input_dimension)
        if not isinstance(index, faiss.IndexPreTransform):
            raise ValueError(f"a FAISS {type(index).__name__}, expected an IndexPreTransform")
        chain = [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]
        inner, expected = faiss.downcast_index(index.index), cls.classes[codes is not None]
        if not isinstance(inner, getattr(faiss, expected, ())):
            raise ValueError(f"a FAISS {type(inner).__name__}, expected {expected or 'no codes'}")
        check_fields(faiss, index, chain, inner, options, header)
        prepare = _affine_of(faiss, chain, index.d)
        if prepare.unit_length != header.normalize:
            raise ValueError(
                f"unit length is {prepare.unit_length} in the FAISS file, {header.normalize} in the header"
            )
        made = cls(options, prepare, chain, cls._on_device(faiss, inner, options), codes)
        made._owner = index
        return made

    def write(self, folder: Path) -> None:
        self._faiss.write_index(self._on_cpu(), str(folder / _FILE))

    def add(self, vectors: np.ndarray) -> None:
        for _, x in list(prepared(vectors, functools.partial(_through, self._chain))):
            _add(self._faiss, self._inner, x)
        self._index.ntotal = self._inner.ntotal

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self._inner.remove_ids(gone)
        self._index.ntotal = self._inner.ntotal

    def search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        if len(queries) > 1:
            check_process()
        with _one_thread(self._faiss) if len(queries) == 1 else contextlib.nullcontext():
            if self._length is None:
                return (self._inner if prepared else self._index).search(queries, k)
            x = queries if prepared else _through(self._chain, queries)
            distances, ids = self._inner.search(stretched(x, self._length), k)
        return cosines(distances, self._length), ids

    @property
    def nbytes(self) -> int:
        sizes = list[int]()
        writer = self._faiss.PyCallbackIOWriter(lambda chunk: sizes.append(len(chunk)), 1 << 20)
        self._faiss.write_index(self._on_cpu(), writer)
        return sum(sizes)

    def _on_cpu(self) -> Any:
        if not self.on_gpu:
            return self._index
        self._cpu_inner = self._faiss.index_gpu_to_cpu(self._inner)  # kept alive: the result only points to it
        return behind(self._chain, self._cpu_inner)

    @classmethod
    def _import(cls) -> Any:
        faiss = import_faiss(cls.name, "gpu" if cls.on_gpu else "cpu")
        if cls.on_gpu and not hasattr(faiss, "StandardGpuResources"):
            raise MissingDependencyError(
                f"{cls.name} needs faiss-gpu, but the CPU build of FAISS is installed:"
                f" pip uninstall faiss-cpu, then {install_command('cuda')} (they cannot be installed together)."
            )
        if cls.on_gpu and not faiss.get_num_gpus():
            raise MissingDependencyError(f"{cls.name} needs a GPU, and FAISS finds none: check nvidia-smi.")
        return faiss

    @classmethod
    def _on_device(cls, faiss: Any, inner: Any, options: Any) -> Any:
        """The index itself, or its copy on a GPU."""
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, inner) if cls.on_gpu else inner

    @classmethod
    def _fit_options(cls, options: Any, n: int, notes: list[str]) -> None:
        """Lowers options that n vectors do not allow, and adds a note for each."""

    @classmethod
    def _empty(cls, faiss: Any, d: int, options: Any, quantiser: Quantiser | None) -> Any:
        """The empty index; codes need no training."""
        values = dataclasses.asdict(options)
        if quantiser is None:
            return faiss.index_factory(d, cls.factory.format(**values), faiss.METRIC_INNER_PRODUCT)
        if "nlist" not in values:
            return quantiser.empty_pq()
        return faiss.index_factory(d, cls.coded.format(bytes=quantiser.nbytes, **values), faiss.METRIC_L2)

    @classmethod
    def _train(cls, faiss: Any, inner: Any, stored: np.ndarray, quantiser: Quantiser | None) -> None:
        with _matrix_products(faiss):
            inner.train(stored)


class FaissFlat(Faiss):
    """Exact search."""

    name, factory = "faiss-flat", "Flat"
    removes = codes = True


class FaissFast(Faiss):
    """Codes only; distances are looked up in registers by halves of bytes.

    Search is many times faster than over the codes of faiss-flat, with each looked-up distance rounded to one byte.
    """

    name, classes = "faiss-fast", ("", "IndexPQFastScan")
    codes = halves = True


class FaissHnsw(Faiss):
    """A graph."""

    name, factory, classes, Options = "faiss-hnsw", "HNSW{m}", ("IndexHNSW", ""), HnswOptions

    @classmethod
    def _empty(cls, faiss: Any, d: int, options: Any, quantiser: Quantiser | None) -> Any:
        index = super()._empty(faiss, d, options, quantiser)
        index.hnsw.efConstruction, index.hnsw.efSearch = options.ef_construction, options.ef_search
        return index


class FaissIvf(Faiss):
    """Inverted lists."""

    name, factory, coded, Options = "faiss-ivf", "IVF{nlist},Flat", "IVF{nlist},PQ{bytes}x8np", IvfOptions
    classes = ("IndexIVFFlat", "IndexIVFPQ")
    removes = codes = True

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        super().remove(gone, keep)
        lists = self._faiss.extract_index_ivf(self._inner).invlists
        for number in range(lists.nlist):
            if size := lists.list_size(number):
                ids = self._faiss.rev_swig_ptr(lists.get_ids(number), size)  # ids before the removal
                ids[:] = np.searchsorted(keep, ids)

    @classmethod
    def _fit_options(cls, options: Any, n: int, notes: list[str]) -> None:
        _lower(options, "nlist", max(1, n // _MIN_POINTS), n, f"{_MIN_POINTS} vectors per list", notes)
        _lower(options, "nprobe", options.nlist, n, "nlist", notes)
        if n > (limit := options.nlist * options.max_points_per_centroid):  # FAISS does not say this itself
            notes.append(
                f"k-means of the inverted lists: FAISS samples {limit} of the {n} vectors"
                f" ({options.max_points_per_centroid} per list); max_points_per_centroid raises it."
            )

    @classmethod
    def _on_device(cls, faiss: Any, inner: Any, options: Any) -> Any:
        inner = super()._on_device(faiss, inner, options)
        inner.cp.seed, inner.cp.max_points_per_centroid = options.seed, options.max_points_per_centroid
        return inner

    @classmethod
    def _empty(cls, faiss: Any, d: int, options: Any, quantiser: Quantiser | None) -> Any:
        index = super()._empty(faiss, d, options, quantiser)
        index.nprobe = options.nprobe
        if quantiser is not None:
            index.by_residual = False
        return index

    @classmethod
    def _train(cls, faiss: Any, inner: Any, stored: np.ndarray, quantiser: Quantiser | None) -> None:
        if quantiser is None:
            return super()._train(faiss, inner, stored, quantiser)
        clusters = faiss.Clustering(inner.d, inner.nlist, inner.cp)
        clusters.train(stored, faiss.downcast_index(inner.quantizer))
        quantiser.fill(inner.pq)
        inner.is_trained = True


class FaissGpuFlat(FaissFlat):
    """Exact search on the first GPU; it needs faiss-gpu."""

    name, on_gpu = "faiss-gpu-flat", True
    removes = codes = False


class FaissGpuIvf(FaissIvf):
    """Inverted lists on the first GPU; it needs faiss-gpu."""

    name, on_gpu = "faiss-gpu-ivf", True
    removes = codes = False


def _through(chain: list[Any], x: np.ndarray) -> np.ndarray:
    """Rows mapped by FAISS's own transforms, so that documents equal queries, which FAISS maps, to the last digit."""
    x = np.ascontiguousarray(x, np.float32)
    for step in chain:
        x = step.apply(x)
    return x


def _add(faiss: Any, index: Any, x: np.ndarray) -> None:
    """Adds prepared rows. FAISS computes codes fast for 2, 4 or 8 columns per byte only, so they are computed here."""
    if not isinstance(index, faiss.IndexPQ):
        return index.add(x)
    pq = index.pq
    centroids = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)
    index.add_sa_codes(nearest_on_cores(x, centroids))


def _lower(options: Any, name: str, limit: int, n: int, reason: str, notes: list[str]) -> None:
    if (wanted := getattr(options, name)) > limit:
        setattr(options, name, limit)
        notes.append(f"{name} lowered from {wanted} to {limit} for {n} documents ({reason}).")


def _affine_of(faiss: Any, chain: list[Any], dimension: int) -> Affine:
    """The inverse of `transforms`."""
    shift = np.zeros(dimension, np.float32)
    result = Affine(shift)
    for step in chain:
        if isinstance(step, faiss.CenteringTransform):
            shift = faiss.vector_to_array(step.mean)
        elif isinstance(step, faiss.LinearTransform):
            weight = np.ascontiguousarray(faiss.vector_to_array(step.A).reshape(step.d_out, step.d_in).T)
            result = Affine(shift, weight, faiss.vector_to_array(step.b))
        elif isinstance(step, faiss.NormalizationTransform):
            result.unit_length = True
        else:
            raise ValueError(f"an unexpected step {type(step).__name__} in the FAISS file")
    return result


@contextlib.contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Runs FAISS and its BLAS on the calling thread: a single query takes less time than waking other threads."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # OpenMP's setting is the calling thread's own
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


@contextlib.contextmanager
def _matrix_products(faiss: Any) -> Iterator[None]:
    """Computes distances by matrix products; below 128,000 values FAISS 1.15 avoids them, at ten times the time."""
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = min(20, before)
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before
