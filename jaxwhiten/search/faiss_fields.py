"""What FAISS has read from a file, compared with the header of the index field by field, before anything is searched.

FAISS itself checks little of it: a size or an id that is wrong makes a search crash, hang, or answer wrongly. Options
of a search are set from the header, and are never those of the file.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from jaxwhiten.io import same, within
from jaxwhiten.search.backend import BackendOptions
from jaxwhiten.search.header import Header
from jaxwhiten.typing import FaissObject

_LIMIT = "deserialization_vector_byte_limit"
_ROOM = 1 << 28  # FAISS bounds products of sizes, too, of which the file need not have as many bytes
_reading = threading.Lock()


def read_index(faiss: ModuleType, path: Path, dimension: int) -> FaissObject:
    """The index of vectors of a dimension in a file; ValueError or RuntimeError if it claims more than the file has."""
    with _limited(faiss, path.stat().st_size + 4 * dimension**2 + _ROOM):
        try:
            return faiss.read_index(str(path))
        except MemoryError:
            np.empty(path.stat().st_size, np.uint8)  # MemoryError: there is no room for a sound file either
            raise ValueError(f"{path.name} claims to be larger than it is") from None


@contextlib.contextmanager
def _limited(faiss: ModuleType, size: int) -> Iterator[None]:
    """Lets FAISS refuse vectors of more bytes, where its version can."""
    if not hasattr(faiss, f"set_{_LIMIT}"):
        yield
        return
    with _reading:
        before = getattr(faiss, f"get_{_LIMIT}")()
        getattr(faiss, f"set_{_LIMIT}")(size)
        try:
            yield
        finally:
            getattr(faiss, f"set_{_LIMIT}")(before)


def check_fields(
    faiss: ModuleType,
    index: FaissObject,
    chain: list[FaissObject],
    inner: FaissObject,
    options: BackendOptions,
    header: Header,
) -> None:
    """Raises ValueError at the first field of an index that contradicts the header; sets the options of searches."""
    metric = faiss.METRIC_INNER_PRODUCT if header.codes is None else faiss.METRIC_L2
    _check_common("index", index, header.input_dimension, header.size, metric)
    _check_chain(faiss, chain, header)
    _check_common(type(inner).__name__, inner, header.dimension, header.size, metric)
    check = {
        faiss.IndexFlat: _check_flat,
        faiss.IndexPQ: _check_pq_codes,
        faiss.IndexPQFastScan: _check_fast_codes,
        faiss.IndexIVFFlat: _check_lists,
        faiss.IndexIVFPQ: _check_lists,
        faiss.IndexHNSW: _check_graph,
    }
    next(each for kind, each in check.items() if isinstance(inner, kind))(faiss, inner, options, header)


def _same(where: str, name: str, value: object, expected: object) -> None:
    same(f"{name} of the {where} in the FAISS file", value, expected)


def check_kind(where: str, index: FaissObject, *kinds: Any) -> None:
    """Raises ValueError unless an object of FAISS is of one of these classes."""
    if not isinstance(index, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{where}: a {type(index).__name__} in the FAISS file, expected an {expected}")


def _check_common(where: str, index: FaissObject, d: int, size: int, metric: int) -> None:
    _same(where, "d", index.d, d)
    _same(where, "ntotal", index.ntotal, size)
    _same(where, "metric", index.metric_type, metric)
    _same(where, "is_trained", bool(index.is_trained), True)


def _check_chain(faiss: ModuleType, chain: list[FaissObject], header: Header) -> None:
    """Centering, a linear map and unit length: each at most once, in this order, as `transforms` makes them."""
    kinds = (faiss.CenteringTransform, faiss.LinearTransform, faiss.NormalizationTransform)
    numbers = [next((n for n, kind in enumerate(kinds) if isinstance(step, kind)), -1) for step in chain]
    mapped = header.whitening is not None or header.codes is not None
    if numbers not in ([], [2], [1], [0, 1], [1, 2], [0, 1, 2]) or (1 in numbers and not mapped):
        raise ValueError(f"unexpected transforms in the FAISS file: {', '.join(type(step).__name__ for step in chain)}")
    width = header.input_dimension
    for number, step in zip(numbers, chain, strict=True):
        where = type(step).__name__
        _same(where, "is_trained", bool(step.is_trained), True)
        _same(where, "d_in", step.d_in, width)
        if number == 0:
            _same(where, "size", step.mean.size(), width)
        elif number == 1:
            _same(where, "have_bias", bool(step.have_bias), True)
            _same(where, "sizes", (step.A.size(), step.b.size()), (step.d_in * step.d_out, step.d_out))
        else:
            _same(where, "norm", step.norm, 2.0)
        width = step.d_out
    _same("transforms", "d_out", width, header.dimension)


def _check_flat(faiss: ModuleType, index: FaissObject, options: BackendOptions, header: Header) -> None:
    _check_vectors(faiss, "vectors", index, header.dimension, header.size, index.metric_type)


def _check_vectors(faiss: ModuleType, where: str, index: FaissObject, d: int, size: int, metric: int) -> None:
    """An index of floats, as a whole or inside another one."""
    if type(index) not in (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2):
        raise ValueError(f"{where}: a {type(index).__name__} in the FAISS file, expected an IndexFlat")
    _check_common(where, index, d, size, metric)
    _same(where, "code_size", index.code_size, 4 * d)
    _same(where, "size", index.codes.size(), 4 * d * size)


def _check_quantizer(pq: FaissObject, bits: int, header: Header) -> None:
    assert header.codes is not None
    groups = 8 * header.codes["bytes"] // bits
    values = 1 << bits
    shape = (header.dimension, groups, header.dimension // groups, bits, values, header.codes["bytes"])
    _same("codes", "shape", (pq.d, pq.M, pq.dsub, pq.nbits, pq.ksub, pq.code_size), shape)
    _same("codes", "columns", pq.M * pq.dsub, header.dimension)
    _same("codes", "centroids", pq.centroids.size(), header.dimension * values)


def _check_pq_codes(faiss: ModuleType, index: FaissObject, options: BackendOptions, header: Header) -> None:
    _check_quantizer(index.pq, 8, header)
    _same("codes", "code_size", index.code_size, index.pq.code_size)
    _same("codes", "size", index.codes.size(), header.size * index.code_size)
    index.search_type = faiss.IndexPQ.ST_PQ
    index.encode_signs = False


def _check_fast_codes(faiss: ModuleType, index: FaissObject, options: BackendOptions, header: Header) -> None:
    _check_quantizer(index.pq, 4, header)
    block = 32  # codes that are scanned together
    rows = -(-header.size // block) * block
    groups = -(-index.pq.M // 2) * 2
    fields = (index.M, index.M2, index.nbits, index.ksub, index.code_size, index.bbs, index.ntotal2)
    _same("codes", "shape", fields, (index.pq.M, groups, 4, 16, index.pq.code_size, block, rows))
    _same("codes", "size", index.codes.size(), rows * groups // 2)
    index.implem = index.qbs = index.skip = 0


def _check_lists(faiss: ModuleType, index: FaissObject, options: BackendOptions, header: Header) -> None:
    """Inverted lists: each document in exactly one of them."""
    nlist = options.nlist
    code_size = 4 * header.dimension
    if header.codes is not None:
        _check_quantizer(index.pq, 8, header)
        _same("lists", "by_residual", bool(index.by_residual), False)
        code_size = index.pq.code_size
        index.polysemous_ht = 0
        index.scan_table_threshold = 0
    lists = faiss.downcast_InvertedLists(index.invlists)
    check_kind("lists", lists, faiss.ArrayInvertedLists)
    fields = (index.nlist, lists.nlist, index.code_size, lists.code_size, index.direct_map.type)
    _same("lists", "shape", fields, (nlist, nlist, code_size, code_size, faiss.DirectMap.NoMap))
    _check_vectors(faiss, "quantizer", faiss.downcast_index(index.quantizer), index.d, nlist, index.metric_type)
    _same("lists", "size", lists.compute_ntotal(), header.size)
    listed = np.zeros(header.size, bool)
    codes = lists.codes
    for number in range(nlist):
        size = lists.list_size(number)
        _same("lists", f"size of list {number}", codes.at(number).size(), size * code_size)
        if size:
            ids = faiss.rev_swig_ptr(lists.get_ids(number), size)
            within("rows of the lists in the FAISS file", ids, 0, header.size - 1)
            listed[ids] = True
    _same("lists", "number of documents", int(listed.sum()), header.size)  # each is in one list
    index.nprobe = options.nprobe
    index.max_codes = 0
    index.parallel_mode = 0


def _check_graph(faiss: ModuleType, index: FaissObject, options: BackendOptions, header: Header) -> None:
    """A graph: levels, and neighbors that are documents on the same level."""
    n = header.size
    graph = index.hnsw
    fresh = faiss.HNSW(options.m)
    _check_vectors(faiss, "vectors", faiss.downcast_index(index.storage), index.d, n, index.metric_type)
    for name in ("cum_nneighbor_per_level", "assign_probas"):
        value, expected = (faiss.vector_to_array(getattr(each, name)) for each in (graph, fresh))
        _same("graph", name, value.tolist(), expected.tolist())
    _same("graph", "sizes", (graph.levels.size(), graph.offsets.size()), (n, n + 1))
    starts = faiss.vector_to_array(graph.cum_nneighbor_per_level).astype(np.int64)
    levels, offsets = (faiss.vector_to_array(x).astype(np.int64) for x in (graph.levels, graph.offsets))
    top = int(levels.max())
    within("levels of the graph in the FAISS file", levels, 1, len(starts) - 1)
    if not np.array_equal(offsets, np.cumsum([0, *starts[levels]])):
        raise ValueError("graph: offsets in the FAISS file differ from those of its levels")
    _same("graph", "size", graph.neighbors.size(), int(offsets[-1]))
    neighbors = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    within("neighbors in the graph of the FAISS file", neighbors, -1, n - 1)
    for level in range(1, top):
        at = offsets[:-1][levels > level, None] + np.arange(starts[level], starts[level + 1])
        near = neighbors[at]
        within("levels of neighbors in the graph of the FAISS file", levels[near[near >= 0]], level + 1)
    _same("graph", "max_level", graph.max_level, top - 1)
    within("entry point of the graph in the FAISS file", graph.entry_point, 0, n - 1)
    _same("graph", "level of the entry point", int(levels[graph.entry_point]), top)
    graph.efConstruction = options.ef_construction
    graph.efSearch = options.ef_search
