"""Indexes of FAISS, on CPU and GPU, with the whitening inside.

References:
  Johnson, Douze & Jégou 2019, "Billion-scale similarity search with GPUs"; Su et al. 2021 (BERT-whitening), section
  4.4, for the settings of `faiss-ivf`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes.product import behind, import_faiss, transforms
from jaxwhiten.errors import InputError, MissingDependencyError, install_command
from jaxwhiten.search.base import Index
from jaxwhiten.search.coding import TRAINED, Coding
from jaxwhiten.search.prepare import BLOCK_ROWS, check_lengths
from jaxwhiten.whitening.affine import Affine

# k-means wants this many vectors per cluster; FAISS warns below and stops at fewer vectors than clusters.
_MIN_POINTS = 39
_FILE = "index.faiss"
_SEED = 1234
# Rounds of a rotation's training and what it sees: with FAISS's own values it takes ten times as long.
_OPQ = {"niter": 5, "niter_pq_0": 10, "max_train_points": 10_240}
_KMEANS = {"max_points_per_centroid": 256, "seed": _SEED}
# np: without polysemous training.
_FACTORY = {"flat": "Flat", "hnsw": "HNSW{m}", "ivf": "IVF{nlist},Flat", "ivfpq": "IVF{nlist},PQ{m}x{bits}np"}
_IVF = {"nlist": 1024, "nprobe": 5, **_KMEANS}


class FaissIndex(Index):
    """A FAISS index under inner product; on unit vectors that is cosine.

    Backends and options:
      faiss-flat: exact.
      faiss-fast: codes alone, whose halves of bytes are looked up in registers: many times faster than the codes of
        faiss-flat, at distances rounded to a byte a lookup.
      faiss-ivf: inverted lists; `nlist`, `nprobe`, `max_points_per_centroid`, `seed`. The defaults are the paper's.
      faiss-hnsw: a graph; `m` neighbours, `ef_construction`, `ef_search`.
      faiss-ivfpq: inverted lists of product-quantised vectors; besides those of faiss-ivf `m` bytes per vector (None:
        the largest divisor of the dimension up to a quarter of it) and `bits` per code.
      faiss-gpu-flat, faiss-gpu-ivf: the same on the first GPU; they need faiss-gpu and a GPU.

    faiss-flat and faiss-ivf can keep codes (`jaxwhiten.search.coding`), computed ones as a product quantiser.
    """

    coded = ("faiss-flat", "faiss-ivf", "faiss-fast")
    trains = MappingProxyType({"faiss-flat": TRAINED, "faiss-ivf": TRAINED, "faiss-fast": ("pq", "opq")})
    halves = ("faiss-fast",)
    removes = ("faiss-flat", "faiss-ivf", "faiss-ivfpq")

    default_options = MappingProxyType(
        {
            "faiss-flat": {},
            "faiss-fast": {},
            "faiss-ivf": _IVF,
            "faiss-hnsw": {"m": 32, "ef_construction": 40, "ef_search": 64},
            "faiss-ivfpq": {**_IVF, "m": None, "bits": 8},
            "faiss-gpu-flat": {},
            "faiss-gpu-ivf": _IVF,
        }
    )

    def _build(self, vectors: np.ndarray) -> None:
        faiss = _import_faiss(self.backend)
        self._chain = transforms(self.prepare)
        inner = self._empty(faiss)
        if self.backend.startswith("faiss-gpu"):
            inner = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, inner)
            if hasattr(inner, "cp"):  # the copy has clustering parameters of its own
                inner.cp.seed = self.options["seed"]
                inner.cp.max_points_per_centroid = self.options["max_points_per_centroid"]
        if inner.is_trained:
            for part in blocks(self.size, BLOCK_ROWS):
                inner.add(self._stored(vectors, part))
        else:
            stored = np.empty((self.size, self.dimension), np.float32)
            for part in blocks(self.size, BLOCK_ROWS):
                stored[part] = self._stored(vectors, part)
            self._note_sample()
            self._train(faiss, inner, stored)
            inner.add(stored)
        self._inner, self._index = inner, behind(self._chain, inner)

    def _add(self, vectors: np.ndarray) -> None:
        for stored in [self._stored(vectors, part) for part in blocks(len(vectors), BLOCK_ROWS)]:
            self._inner.add(stored)
        self._index.ntotal = self._inner.ntotal

    def _remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        faiss = _import_faiss(self.backend)
        self._inner.remove_ids(gone)
        self._index.ntotal = self._inner.ntotal
        if "nlist" in self.options:  # lists keep the numbers their rows had
            lists = faiss.extract_index_ivf(self._inner).invlists
            for number in range(lists.nlist):
                if size := lists.list_size(number):
                    ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
                    ids[:] = np.searchsorted(keep, ids)

    def _stored(self, vectors: np.ndarray, part: slice) -> np.ndarray:
        x = np.ascontiguousarray(vectors[part], np.float32)
        for step in self._chain:
            x = step.apply(x)
        check_lengths("document vectors after the whitening", x, part.start)
        return x

    def _empty(self, faiss: Any) -> Any:
        """The untrained, empty index of this backend, its options fitted to the data."""
        d, options, kind = self.dimension, self.options, self.backend.removeprefix("faiss-").removeprefix("gpu-")
        for name, value in options.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"Option {name} of {self.backend} must be a positive integer, not {value!r}.")
        if "nlist" in options:
            self._lower("nlist", max(1, self.size // _MIN_POINTS), f"{_MIN_POINTS} vectors per list")
            self._lower("nprobe", options["nlist"], "nlist")
        if kind == "ivfpq":
            if self.size < 2 * _MIN_POINTS:
                raise InputError(
                    f"{self.backend} needs at least {2 * _MIN_POINTS} documents to learn its codes from, not"
                    f" {self.size}: take faiss-flat."
                )
            self._lower("bits", (self.size // _MIN_POINTS).bit_length() - 1, f"{_MIN_POINTS} vectors per code")
            options["m"] = _bytes_per_vector(d, options["m"])
        if self._coding is not None:
            return self._empty_coded(faiss, self._coding)
        index = faiss.index_factory(d, _FACTORY[kind].format(**options), faiss.METRIC_INNER_PRODUCT)
        if kind == "hnsw":
            index.hnsw.efConstruction, index.hnsw.efSearch = options["ef_construction"], options["ef_search"]
        if "nlist" in options:
            index.nprobe = options["nprobe"]
            index.cp.seed, index.cp.max_points_per_centroid = options["seed"], options["max_points_per_centroid"]
        if kind == "ivfpq":
            index.pq.cp.seed = options["seed"]
        return index

    def _empty_coded(self, faiss: Any, coding: Coding) -> Any:
        """The empty index of codes, its quantiser trained if it is a computed one."""
        lists = f"IVF{self.options['nlist']}," if "nlist" in self.options else ""
        if coding.quantiser is not None and not lists:
            return coding.quantiser.empty_pq()
        kind = coding.factory or f"PQ{coding.facts['bytes']}x8np"
        if kind.startswith("EDEN") and not hasattr(faiss, "IndexEDEN"):
            raise InputError(f"FAISS {faiss.__version__} has no EDEN: take faiss-cpu 1.15 or newer, or codes='rabitq'.")
        rotation, comma, rest = kind.rpartition(",")
        index = faiss.index_factory(self.dimension, rotation + comma + lists + rest, faiss.METRIC_L2)
        for quantiser in self._product_quantisers(faiss, index):
            quantiser.cp.seed, quantiser.cp.min_points_per_centroid = _SEED, 1
        if lists:
            ivf = faiss.extract_index_ivf(index)
            ivf.nprobe = self.options["nprobe"]
            ivf.cp.seed, ivf.cp.max_points_per_centroid = self.options["seed"], self.options["max_points_per_centroid"]
            ivf.by_residual = coding.quantiser is None
        return index

    def _product_quantisers(self, faiss: Any, index: Any) -> list[Any]:
        """The product quantisers that are trained with an index: its own, and one to find a rotation by."""
        found = []
        if isinstance(index, faiss.IndexPreTransform):
            self._rotating = faiss.ProductQuantizer(index.d, self.codes["bytes"] if self.codes else 1, 8)
            rotation = faiss.downcast_VectorTransform(index.chain.at(0))
            rotation.pq = self._rotating  # only pointed to
            for name, value in _OPQ.items():
                setattr(rotation, name, value)
            found, index = [self._rotating], faiss.downcast_index(index.index)
        return [*found, index.pq] if hasattr(index, "pq") else found

    def _train(self, faiss: Any, inner: Any, stored: np.ndarray) -> None:
        """Trains what has to be: of computed codes only the lists."""
        quantiser = self._coding and self._coding.quantiser
        if quantiser is None:
            least = 16 if self.backend in self.halves else 256
            if self.codes is not None and self.codes["name"] in ("pq", "opq") and len(stored) < least:
                raise InputError(
                    f"codes={self.codes['name']!r} needs at least {least} documents to be trained on, not"
                    f" {len(stored)}: take codes='spectrum'."
                )
            with _matrix_products(faiss):
                _train_coded(faiss, inner, stored)
            return
        clusters = faiss.Clustering(self.dimension, inner.nlist, inner.cp)
        clusters.train(stored, faiss.downcast_index(inner.quantizer))
        quantiser.fill(inner.pq)
        inner.is_trained = True

    def _lower(self, name: str, limit: int, reason: str) -> None:
        if (wanted := self.options[name]) > limit:
            self.options[name] = limit
            self.notes.append(f"{name} lowered from {wanted} to {limit} for {self.size} documents ({reason}).")

    def _note_sample(self) -> None:
        """Notes that FAISS trains on a sample, which it does not say itself."""
        if "nlist" not in self.options:
            return
        limit = self.options["nlist"] * self.options["max_points_per_centroid"]
        if self.size > limit:
            self.notes.append(
                f"k-means of the inverted lists: FAISS samples {limit} of the {self.size} vectors"
                f" ({self.options['max_points_per_centroid']} per list); max_points_per_centroid raises it."
            )
        if "bits" in self.options and self.size > (codes := 256 * 2 ** self.options["bits"]):
            self.notes.append(f"k-means of the product quantiser: FAISS samples {codes} of the {self.size} vectors.")

    def _search(self, queries: np.ndarray, k: int, prepared: bool) -> tuple[np.ndarray, np.ndarray]:
        index = self._inner if prepared else self._index
        with _one_thread(_import_faiss(self.backend)) if len(queries) == 1 else contextlib.nullcontext():
            found, ids = index.search(queries, k)
        return (found if self.codes is None else 1 - found / 2), ids

    @property
    def _nbytes(self) -> int:
        faiss = _import_faiss("faiss")
        total = 0

        def count(chunk: bytes) -> None:
            nonlocal total
            total += len(chunk)

        faiss.write_index(self._on_cpu(faiss), faiss.PyCallbackIOWriter(count, 1 << 20))
        return total

    def _on_cpu(self, faiss: Any) -> Any:
        if not self.backend.startswith("faiss-gpu"):
            return self._index
        self._cpu_inner = faiss.index_gpu_to_cpu(self._inner)  # kept: the copy only points to it
        return behind(self._chain, self._cpu_inner)

    def _write(self, folder: Path) -> None:
        faiss = _import_faiss(self.backend)
        faiss.write_index(self._on_cpu(faiss), str(folder / _FILE))

    def _read(self, files: Mapping[str, Path]) -> None:
        faiss = _import_faiss(self.backend)
        index = faiss.read_index(str(files[_FILE]))
        if not isinstance(index, faiss.IndexPreTransform):
            raise ValueError(f"a FAISS {type(index).__name__}, expected an IndexPreTransform")
        found, told = (index.ntotal, index.d, index.index.d), (self.size, self.input_dimension, self.dimension)
        if found != told:
            raise ValueError(f"{found} in the FAISS file, {told} in the header: vectors, dimension raw, and stored")
        self._index = index
        self._inner = faiss.downcast_index(index.index)
        self._chain = [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]
        self.prepare = _affine_of(faiss, self._chain, index.d)
        if self.backend.startswith("faiss-gpu"):
            self._read_index = index  # owns the chain
            self._inner = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, self._inner)
            self._index = behind(self._chain, self._inner)


@contextlib.contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """FAISS and its BLAS on the calling thread: one query is sooner answered than further threads are woken."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # OpenMP's setting is the calling thread's own
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _affine_of(faiss: Any, chain: list[Any], dimension: int) -> Affine:
    """The inverse of `transforms`."""
    result = Affine(np.zeros(dimension, np.float32))
    for step in chain:
        if isinstance(step, faiss.LinearTransform):
            weight = np.ascontiguousarray(faiss.vector_to_array(step.A).reshape(step.d_out, step.d_in).T)
            result = Affine.of_kernel(weight, faiss.vector_to_array(step.b))
        elif isinstance(step, faiss.NormalizationTransform):
            result.unit_length = True
        else:
            raise ValueError(f"an unexpected step {type(step).__name__} in the FAISS file")
    return result


def _bytes_per_vector(dimension: int, wanted: int | None) -> int:
    """How many codes a product-quantised vector has; they must divide the dimension."""
    divisors = [m for m in range(1, dimension + 1) if dimension % m == 0]
    if wanted is None:
        return max(m for m in divisors if m <= max(1, dimension // 4))
    if wanted not in divisors:
        raise InputError(f"m = {wanted} does not divide the dimension {dimension}; use one of {divisors}.")
    return wanted


def _import_faiss(backend: str) -> Any:
    on_gpu = backend.startswith("faiss-gpu")
    faiss = import_faiss(backend, "gpu" if on_gpu else "cpu")
    if on_gpu:
        if not hasattr(faiss, "StandardGpuResources"):
            raise MissingDependencyError(
                f"{backend} needs faiss-gpu, but the CPU build of FAISS is installed:"
                f" pip uninstall faiss-cpu, then {install_command('cuda')} (they cannot be installed together)."
            )
        if not faiss.get_num_gpus():
            raise MissingDependencyError(f"{backend} needs a GPU, and FAISS sees none: check nvidia-smi.")
    return faiss


def _train_coded(faiss: Any, index: Any, x: np.ndarray) -> None:
    """`index.train`; where it is a product quantiser's alone, bytes are trained side by side, each on one thread.

    k-means of a byte's columns is too little work for threads that wait for each other several times per iteration.
    """
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform) and index.chain.size() == 1:
        rotation = faiss.downcast_VectorTransform(index.chain.at(0))
        with _one_thread(faiss):
            rotation.train(x)
        _train_coded(faiss, index.index, rotation.apply(x))
    elif isinstance(index, faiss.IndexPQ | faiss.IndexPQFastScan):
        pq = index.pq

        def centroids(byte: int) -> np.ndarray:
            with _one_thread(faiss):
                clusters = faiss.Clustering(pq.dsub, pq.ksub, pq.cp)
                columns = np.ascontiguousarray(x[:, byte * pq.dsub : (byte + 1) * pq.dsub])
                clusters.train(columns, faiss.IndexFlatL2(pq.dsub))
                return faiss.vector_to_array(clusters.centroids)

        with ThreadPoolExecutor(faiss.omp_get_max_threads()) as pool:
            faiss.copy_array_to_vector(np.concatenate(list(pool.map(centroids, range(pq.M)))), pq.centroids)
    else:
        index.train(x)
    index.is_trained = True


@contextlib.contextmanager
def _matrix_products(faiss: Any) -> Iterator[None]:
    """Distances by matrix products: for fewer than 128,000 values FAISS 1.15 goes without, at ten times the time."""
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = min(20, before)
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before
