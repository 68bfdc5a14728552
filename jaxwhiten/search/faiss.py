"""Indexes of FAISS, on CPU and GPU, with the whitening inside.

References:
  Johnson, Douze & Jégou 2019, "Billion-scale similarity search with GPUs"; Su et al. 2021 (BERT-whitening), section
  4.4, for the settings of `faiss-ivf`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from jaxwhiten.arrays import blocks
from jaxwhiten.codes.code import Quantiser, behind, import_faiss, transforms
from jaxwhiten.errors import InputError, MismatchError, MissingDependencyError, install_command
from jaxwhiten.io import load_tensors, same, take, within
from jaxwhiten.parameters import bounded
from jaxwhiten.runtime.hardware import check_process
from jaxwhiten.search.backend import Backend, BackendOptions, Store
from jaxwhiten.search.codes import TRANSFORM, CodedStore, Scan, coded, is_first_version, read_codes
from jaxwhiten.search.faiss_fields import check_fields, check_kind, read_index
from jaxwhiten.search.faiss_scans import FlatScan, ListScan, matrix_products, renumber
from jaxwhiten.search.header import LISTS, OF_FAISS, VECTORS, Files, Header
from jaxwhiten.search.prepare import BLOCK_ROWS, KIND, Coding, Rows, prepared
from jaxwhiten.shapes import Int64
from jaxwhiten.typing import FaissObject
from jaxwhiten.whitening.affine import Affine

# k-means needs this many vectors per cluster; with fewer FAISS warns, with fewer vectors than clusters it fails.
_MIN_POINTS = 39
_SEED = 1234
RECALL = 0.98  # recall@10 of documents in inverted lists against all lists; that of queries is lower
_SAMPLE = 256  # documents that are searched for to choose nprobe


@dataclass
class IvfOptions:
    """Options of inverted lists; 0 chooses a number when the index is built. Su et al. 2021 have 1024 and 5."""

    nlist: int = bounded(0, 0, 1 << 20)  # by default four times the root of the number of documents
    nprobe: int = bounded(0, 0, 1 << 20)  # lists that a query searches; by default the fewest for `RECALL`
    max_points_per_centroid: int = bounded(256, 1, 1 << 20)  # vectors per list that k-means samples
    seed: int = bounded(_SEED, 1, 2**31 - 1)  # of k-means


@dataclass
class HnswOptions:
    """Options of a graph: neighbors per vector, and numbers of candidates while building and searching."""

    m: int = bounded(32, 2, 512)
    ef_construction: int = bounded(40, 1, 1 << 16)
    ef_search: int = bounded(64, 1, 1 << 16)


class Faiss(Backend):
    """A FAISS index of vectors, which it compares by inner product, the cosine of unit vectors.

    `factory` is the description for `faiss.index_factory`. Codes are not in this class: it makes a `CodedStore`.
    """

    factory: ClassVar[str]
    floats: ClassVar[str] = "IndexFlat"  # the class made by `factory`
    on_gpu: ClassVar[bool] = False
    _owner: FaissObject = None  # the index that was read; it owns, and frees, the parts used here

    def __init__(
        self,
        options: BackendOptions,
        prepare: Affine,
        chain: list[FaissObject],
        inner: FaissObject,
        notes: Sequence[str] = (),
    ) -> None:
        self.options = options
        self.prepare = prepare
        self.notes = notes
        self._faiss = import_faiss()
        self._chain = chain
        self._inner = inner
        self._index = behind(chain, inner)

    @classmethod
    def build(cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: np.ndarray | None) -> Store:
        faiss = cls._import()
        n = len(vectors)
        d = coding.prepare.outputs
        notes = list[str]()
        if coding.centers is None:
            cls._fit_options(options, n, notes)
        if coding.quantiser is not None:
            if stored is None:
                codes = coded(vectors, coding.prepare, coding.quantiser)
            else:
                codes = np.array(stored)
            scan = cls._scan(faiss, coding, codes, options)
            alone = functools.partial(_one_thread, faiss)
            return CodedStore(options, coding.prepare, coding.quantiser, codes, scan, notes=notes, alone=alone)
        chain = transforms(coding.prepare)
        through = functools.partial(_through, chain)
        inner = cls._on_device(faiss, cls._empty(faiss, d, options, coding.centers), options)
        if not inner.is_trained:
            with matrix_products(faiss):
                inner.train(through(vectors[cls._sample(n, options)]))
        for _, x in prepared(vectors, through):
            inner.add(x)
        return cls(options, coding.prepare, chain, inner, notes)

    @classmethod
    def read(cls, files: Files, options: BackendOptions, header: Header) -> Store:
        faiss = cls._import()
        if header.codes is not None and not cls.codes:
            raise ValueError(f"codes, which {cls.name} does not store")
        for name in ("nlist", "nprobe"):  # 0 is chosen when an index is built
            within(name, getattr(options, name, 1), 1)
        if header.codes is not None:
            scan_of_file = None
            if OF_FAISS in files:
                prepare, quantiser, codes, scan_of_file = _first_version(faiss, files[OF_FAISS], options, header)
            else:
                prepare, quantiser, codes = read_codes(files, header)
            if scan_of_file is None:
                scan = cls._read_scan(faiss, quantiser, codes, options, files)
            else:
                scan = scan_of_file
            exact = not is_first_version(header)
            alone = functools.partial(_one_thread, faiss)
            return CodedStore(options, prepare, quantiser, codes, scan, exact=exact, alone=alone)
        store = cls._of_file(faiss, files, 0, options, header)
        for number in range(1, len(files.parts)):
            for arrays in cls._rows_of_part(faiss, files, number, options, header, store):
                store._append(*arrays)
        store._inner = cls._on_device(faiss, store._inner, options)
        store._index = behind(store._chain, store._inner)
        return store

    @classmethod
    def _of_file(cls, faiss: ModuleType, files: Files, number: int, options: BackendOptions, header: Header) -> Faiss:
        """The index in the FAISS file of a part of a folder, without rows that were removed."""
        part, rows = files.parts[number]
        header = dataclasses.replace(header, size=rows)
        index, chain, inner = _read(faiss, part[OF_FAISS], cls.floats, options, header)
        prepare = _affine_of(faiss, chain, index.d)
        same("unit length in the FAISS file", prepare.unit_length, header.normalize)
        store = cls(options, prepare, chain, inner)
        store._owner = index
        if (keep := files.kept(number)) is not None:
            store.remove(np.delete(np.arange(rows), keep), keep)
        return store

    @classmethod
    def _rows_of_part(
        cls, faiss: ModuleType, files: Files, number: int, options: BackendOptions, header: Header, store: Faiss
    ) -> Iterator[list[np.ndarray]]:
        """What is kept of the documents in a later part, block by block: a segment, or another index."""
        part = files.parts[number][0]
        other = None
        if OF_FAISS in part:
            other = cls._of_file(faiss, files, number, options, header)
            if unlike := store._unlike(other):
                folder = part[OF_FAISS].parent
                raise MismatchError(f"{files.folder} and {folder} cannot be searched as one: the second has {unlike}.")
        arrays_of = store._kept_rows(store._inner.ntotal)  # no rows: names, types and shapes
        if other is None:
            arrays = {name: files.in_part(name, number) for name in arrays_of}
        else:
            arrays = other._kept_rows(0)
        for name, array in arrays_of.items():
            take(arrays, str(array.dtype), finite=False, **{name: (len(arrays[VECTORS]), *array.shape[1:])})
        for block in blocks(len(arrays[VECTORS]), BLOCK_ROWS):
            yield [np.ascontiguousarray(array[block]) for array in arrays.values()]

    def _unlike(self, other: Faiss) -> str:
        """How an index differs from this one so that they cannot become one; empty if they can."""
        return ""

    def _append(self, *arrays: np.ndarray) -> None:
        """Adds rows in the form of `_kept_rows`."""
        self._inner.add(*arrays)

    def write(self, folder: Path) -> None:
        self._faiss.write_index(self._on_cpu(), str(folder / OF_FAISS))

    def extends(self, names: Collection[str]) -> bool:
        return OF_FAISS in names

    def rows(self, first: int = 0) -> Mapping[str, np.ndarray]:
        if first:
            return self._kept_rows(first)
        return {}

    def _kept_rows(self, first: int) -> dict[str, np.ndarray]:
        """What is kept of documents from `first` on."""
        inner = self._on_host()
        vectors = self._faiss.rev_swig_ptr(inner.get_xb(), inner.ntotal * inner.d)
        return {VECTORS: vectors.reshape(inner.ntotal, inner.d)[first:]}

    def add(self, vectors: np.ndarray) -> None:
        for _, x in list(prepared(vectors, functools.partial(_through, self._chain))):
            self._inner.add(x)
        self._index.ntotal = self._inner.ntotal

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        self._inner.remove_ids(gone)
        self._index.ntotal = self._inner.ntotal

    def search(
        self, queries: np.ndarray, k: int, prepared: bool, among: Int64[np.ndarray, " m"] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        if among is not None and self.on_gpu:
            raise InputError(f"{self.name} cannot search among chosen documents: omit `among`, or use faiss-flat.")
        if len(queries) > 1:
            check_process()
        with _one_thread(self._faiss) if len(queries) == 1 else contextlib.nullcontext():
            if among is None:
                return (self._inner if prepared else self._index).search(queries, k)
            mapped = queries if prepared else _through(self._chain, queries)
            return self._search_among(mapped, k, self._faiss.IDSelectorBatch(among))

    def _search_among(self, mapped: np.ndarray, k: int, selector: FaissObject) -> tuple[np.ndarray, np.ndarray]:
        """`search` of the rows that a selector takes."""
        scores, rows = self._inner.search(mapped, k, params=self._faiss.SearchParameters(sel=selector))
        return scores, rows

    @property
    def nbytes(self) -> int:
        sizes = list[int]()
        writer = self._faiss.PyCallbackIOWriter(lambda chunk: sizes.append(len(chunk)), 1 << 20)
        self._faiss.write_index(self._on_cpu(), writer)
        return sum(sizes)

    def _on_cpu(self) -> FaissObject:
        if self.on_gpu:
            return behind(self._chain, self._on_host())
        return self._index

    def _on_host(self) -> FaissObject:
        """The index behind the map, in memory of the host."""
        if not (self.on_gpu and isinstance(self._inner, self._faiss.GpuIndex)):
            return self._inner
        self._cpu_inner = self._faiss.index_gpu_to_cpu(self._inner)  # kept alive: the results only point to it
        return self._cpu_inner

    @classmethod
    def check_installed(cls) -> None:
        cls._import()

    @classmethod
    def _import(cls) -> ModuleType:
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
    def _on_device(cls, faiss: ModuleType, inner: FaissObject, options: BackendOptions) -> FaissObject:
        """The index itself, or its copy on a GPU."""
        if cls.on_gpu:
            return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, inner)
        return inner

    @classmethod
    def _fit_options(cls, options: BackendOptions, n: int, notes: list[str]) -> None:
        """Lowers options that n vectors do not allow, and adds a note for each."""

    @classmethod
    def _sample(cls, n: int, options: BackendOptions) -> Any:
        """The vectors that an index is trained on."""
        return slice(None)

    @classmethod
    def _empty(
        cls, faiss: ModuleType, d: int, options: BackendOptions, centers: np.ndarray | None = None
    ) -> FaissObject:
        """The empty index of float32 vectors."""
        return faiss.index_factory(d, cls.factory.format(**dataclasses.asdict(options)), faiss.METRIC_INNER_PRODUCT)

    @classmethod
    def _scan(cls, faiss: ModuleType, coding: Coding, codes: np.ndarray, options: BackendOptions) -> Scan:
        """A new scan of codes."""
        assert coding.quantiser is not None
        return FlatScan(faiss, coding.quantiser, codes)

    @classmethod
    def _read_scan(
        cls, faiss: ModuleType, quantiser: Quantiser, codes: np.ndarray, options: BackendOptions, files: Files
    ) -> Scan:
        """The scan of codes that were read."""
        return FlatScan(faiss, quantiser, codes)


class FaissFlat(Faiss):
    """Exact search."""

    name = "faiss-flat"
    factory = "Flat"
    removes = codes = True


class FaissHnsw(Faiss):
    """A graph, which every new vector changes, so that its file is always written as a whole."""

    name = "faiss-hnsw"
    factory = "HNSW{m}"
    floats = "IndexHNSW"
    Options = HnswOptions

    def extends(self, names: Collection[str]) -> bool:
        return False

    def _unlike(self, other: Faiss) -> str:
        return "a graph of its own"

    @classmethod
    def _empty(
        cls, faiss: ModuleType, d: int, options: BackendOptions, centers: np.ndarray | None = None
    ) -> FaissObject:
        index = super()._empty(faiss, d, options)
        index.hnsw.efConstruction, index.hnsw.efSearch = options.ef_construction, options.ef_search
        return index

    def _search_among(self, mapped: np.ndarray, k: int, selector: FaissObject) -> tuple[np.ndarray, np.ndarray]:
        vectors = self._faiss.downcast_index(self._inner.storage)
        scores, rows = vectors.search(mapped, k, params=self._faiss.SearchParameters(sel=selector))
        return scores, rows


class FaissIvf(Faiss):
    """Inverted lists."""

    name = "faiss-ivf"
    factory = "IVF{nlist},Flat"
    floats = "IndexIVFFlat"
    Options = IvfOptions
    removes = codes = True

    @classmethod
    def build(cls, vectors: Rows, options: BackendOptions, coding: Coding, stored: np.ndarray | None) -> Store:
        requested = options.nprobe
        store = super().build(vectors, options, coding, stored)
        if requested == 0:
            probes = store.scan if isinstance(store, CodedStore) else store
            note = _choose_nprobe(store, probes, vectors, options)
            store.notes = [*store.notes, note]
        return store

    @property
    def nprobe(self) -> int:
        """The number of lists that a query searches."""
        return int(self._inner.nprobe)

    @nprobe.setter
    def nprobe(self, count: int) -> None:
        self._inner.nprobe = count

    def remove(self, gone: np.ndarray, keep: np.ndarray) -> None:
        super().remove(gone, keep)
        renumber(self._faiss, self._inner, keep)

    @property
    def coding(self) -> Coding:
        quantizer = self._faiss.downcast_index(self._on_host().quantizer)
        return Coding(self.prepare, centers=np.asarray(quantizer.reconstruct_n(0, quantizer.ntotal)))

    def _unlike(self, other: Faiss) -> str:
        same = np.array_equal(self.coding.centers, other.coding.centers)  # type: ignore[arg-type]
        return "" if same else "inverted lists of its own"

    def _append(self, *arrays: np.ndarray) -> None:
        vectors, lists = arrays
        within("lists of documents", lists, 0, self._inner.nlist - 1)
        numbers = lists.astype(np.int64)
        pointer = self._faiss.swig_ptr
        self._inner.add_core(len(vectors), pointer(vectors), None, pointer(numbers))

    def _kept_rows(self, first: int) -> dict[str, np.ndarray]:
        inner = self._on_host()
        vectors = np.empty((inner.ntotal - first, inner.d), np.float32)
        numbers = np.empty(len(vectors), np.int32)
        for number in range(inner.nlist):
            rows, codes = _listed(self._faiss, inner.invlists, number, 4 * inner.d)
            new = rows >= first
            vectors[rows[new] - first] = codes[new].view(np.float32)
            numbers[rows[new] - first] = number
        return {VECTORS: vectors, LISTS: numbers}

    def _search_among(self, mapped: np.ndarray, k: int, selector: FaissObject) -> tuple[np.ndarray, np.ndarray]:
        params = self._faiss.SearchParametersIVF(sel=selector, nprobe=self._inner.nlist)
        scores, rows = self._inner.search(mapped, k, params=params)
        return scores, rows

    @classmethod
    def _scan(cls, faiss: ModuleType, coding: Coding, codes: np.ndarray, options: BackendOptions) -> Scan:
        quantiser = coding.quantiser
        assert quantiser is not None
        if coding.centers is not None:
            return ListScan(faiss, quantiser, codes, coding.centers, None, options.nprobe)
        params = faiss.ClusteringParameters()
        params.seed = options.seed
        params.max_points_per_centroid = options.max_points_per_centroid
        sample = cls._sample(len(codes), options)
        centers = faiss.IndexFlatL2(quantiser.width)
        with matrix_products(faiss):
            clusters = faiss.Clustering(quantiser.width, options.nlist, params)
            clusters.train(quantiser.coordinates(codes[sample]), centers)
        flat = faiss.rev_swig_ptr(centers.get_xb(), options.nlist * quantiser.width).reshape(options.nlist, -1)
        return ListScan(faiss, quantiser, codes, flat, None, options.nprobe)

    @classmethod
    def _read_scan(
        cls, faiss: ModuleType, quantiser: Quantiser, codes: np.ndarray, options: BackendOptions, files: Files
    ) -> Scan:
        tensors = load_tensors(files[TRANSFORM], kind=KIND)[0]
        [centers] = take(tensors, "float32", centers=(options.nlist, quantiser.width))
        # a tensor in format version 2
        lists = tensors["lists"] if "lists" in tensors else files.array(LISTS)
        [numbers] = take({"lists": lists}, "int32", lists=(len(codes),))
        within("lists of documents", numbers, 0, options.nlist - 1)
        return ListScan(faiss, quantiser, codes, centers, numbers, options.nprobe)

    @classmethod
    def _sample(cls, n: int, options: BackendOptions) -> Any:
        most = options.nlist * options.max_points_per_centroid
        return np.sort(np.random.default_rng(options.seed).permutation(n)[:most])

    @classmethod
    def _fit_options(cls, options: BackendOptions, n: int, notes: list[str]) -> None:
        if options.nlist == 0:
            options.nlist = max(1, min(int(4 * n**0.5), n // _MIN_POINTS))
        _lower(options, "nlist", max(1, n // _MIN_POINTS), n, f"{_MIN_POINTS} vectors per list", notes)
        _lower(options, "nprobe", options.nlist, n, "nlist", notes)
        options.nprobe = options.nprobe or options.nlist  # lowered once the lists are there
        if n > (limit := options.nlist * options.max_points_per_centroid):  # FAISS does not say this itself
            notes.append(
                f"k-means of the inverted lists: FAISS samples {limit} of the {n} vectors"
                f" ({options.max_points_per_centroid} per list); max_points_per_centroid raises it."
            )

    @classmethod
    def _on_device(cls, faiss: ModuleType, inner: FaissObject, options: BackendOptions) -> FaissObject:
        inner = super()._on_device(faiss, inner, options)
        inner.cp.seed, inner.cp.max_points_per_centroid = options.seed, options.max_points_per_centroid
        return inner

    @classmethod
    def _empty(
        cls, faiss: ModuleType, d: int, options: BackendOptions, centers: np.ndarray | None = None
    ) -> FaissObject:
        index = super()._empty(faiss, d, options)
        index.nprobe = options.nprobe
        if centers is not None:
            index.quantizer.add(np.ascontiguousarray(centers))
            index.is_trained = True
        return index


class FaissGpuFlat(FaissFlat):
    """Exact search on the first GPU; it needs faiss-gpu."""

    name = "faiss-gpu-flat"
    on_gpu = True
    removes = codes = False


class FaissGpuIvf(FaissIvf):
    """Inverted lists on the first GPU; it needs faiss-gpu."""

    name = "faiss-gpu-ivf"
    on_gpu = True
    removes = codes = False


def _through(chain: list[FaissObject], x: np.ndarray) -> np.ndarray:
    """Rows mapped by FAISS's own transforms, so that documents equal queries, which FAISS maps, to the last digit."""
    x = np.ascontiguousarray(x, np.float32)
    for step in chain:
        x = step.apply(x)
    return x


def _choose_nprobe(store: Store, probes: FaissObject, vectors: Rows, options: BackendOptions) -> str:
    """Sets the fewest lists with which a sample of the documents finds its neighbors; a note for the user."""
    n = len(vectors)
    sample = np.sort(np.random.default_rng(options.seed).permutation(n)[:_SAMPLE])
    queries = np.ascontiguousarray(vectors[sample], np.float32)
    k = min(11, n)  # with the document itself

    def near(count: int) -> np.ndarray:
        probes.nprobe = count
        return store.search(queries, k, False)[1]

    expected = near(options.nlist)
    for count in sorted({*(2**power for power in range(20) if 2**power < options.nlist), options.nlist}):
        nearest = near(count)
        shared = [
            len({*a} & {*b} - {row, -1}) / max(1, k - 1) for a, b, row in zip(nearest, expected, sample, strict=True)
        ]
        recall = float(np.mean(shared)) if k > 1 else 1.0
        if recall >= RECALL or count == options.nlist:
            break
    options.nprobe = count
    return f"nprobe={count} of {options.nlist} lists: recall@10 {recall:.3f} for {len(sample)} of the documents."


def _listed(faiss: ModuleType, lists: FaissObject, number: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows in an inverted list, and their codes of `width` bytes."""
    size = lists.list_size(number)
    if not size:
        return np.empty(0, np.int64), np.empty((0, width), np.uint8)
    codes = faiss.rev_swig_ptr(lists.get_codes(number), size * width)
    return faiss.rev_swig_ptr(lists.get_ids(number), size), codes.reshape(size, width)


def _lower(options: BackendOptions, name: str, limit: int, n: int, reason: str, notes: list[str]) -> None:
    if (value := getattr(options, name)) > limit:
        setattr(options, name, limit)
        notes.append(f"{name} lowered from {value} to {limit} for {n} documents ({reason}).")


def _affine_of(faiss: ModuleType, chain: list[FaissObject], dimension: int) -> Affine:
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


def _read(
    faiss: ModuleType, path: Path, kinds: str, options: BackendOptions, header: Header
) -> tuple[FaissObject, list[FaissObject], FaissObject]:
    """An index in a file, the transforms in front of it, and the index behind them, checked."""
    index = read_index(faiss, path, header.input_dimension)
    check_kind("index", index, faiss.IndexPreTransform)
    chain = [faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size())]
    inner: FaissObject = faiss.downcast_index(index.index)
    check_kind("index behind the transforms", inner, *(getattr(faiss, kind) for kind in kinds.split()))
    check_fields(faiss, index, chain, inner, options, header)
    return index, chain, inner


def _first_version(
    faiss: ModuleType, path: Path, options: BackendOptions, header: Header
) -> tuple[Affine, Quantiser, np.ndarray, Scan]:
    """The codes of an index of version 0.1, which lie in a FAISS file."""
    assert header.codes is not None
    kinds = "IndexIVFPQ" if hasattr(options, "nlist") else "IndexPQ IndexPQFastScan"
    index, chain, inner = _read(faiss, path, kinds, options, header)
    prepare = _affine_of(faiss, chain, index.d)
    centroids = faiss.vector_to_array(inner.pq.centroids).reshape(inner.pq.M, inner.pq.ksub, inner.pq.dsub)
    quantiser = Quantiser(header.codes["name"], Affine(np.zeros(inner.d)), centroids, float(header.codes["length"]))
    if isinstance(inner, faiss.IndexPQ):
        codes = faiss.vector_to_array(inner.codes).reshape(header.size, -1)
        return prepare, quantiser, codes, FlatScan(faiss, quantiser, codes)
    if isinstance(inner, faiss.IndexPQFastScan):
        codes = quantiser.quantise(inner.reconstruct_n(0, header.size))
        return prepare, quantiser, codes, FlatScan(faiss, quantiser, codes)
    codes = np.empty((header.size, quantiser.nbytes), np.uint8)
    numbers = np.empty(header.size, np.int32)
    for number in range(inner.nlist):
        rows, listed = _listed(faiss, inner.invlists, number, quantiser.nbytes)
        codes[rows] = listed
        numbers[rows] = number
    centers = faiss.downcast_index(inner.quantizer).reconstruct_n(0, inner.nlist)
    return prepare, quantiser, codes, ListScan(faiss, quantiser, codes, centers, numbers, options.nprobe)


@contextlib.contextmanager
def _one_thread(faiss: ModuleType) -> Iterator[None]:
    """Runs FAISS and its BLAS on the calling thread: a single query takes less time than waking other threads."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # OpenMP's setting is the calling thread's own
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
