"""Aimed damages of FAISS's own file, behind a header whose checksums were mended: each ends in a FormatError."""

import json
import shutil

import numpy as np
import pytest

from jaxwhiten import Whitening
from jaxwhiten.errors import FormatError
from jaxwhiten.io import seal, sha256_file
from jaxwhiten.search import build_index, load_index

faiss = pytest.importorskip("faiss")
N, D = 300, 16
VECTORS = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
KINDS = {
    "faiss-flat": {},
    "faiss-ivf": {"nlist": 8, "nprobe": 3},
    "faiss-hnsw": {"m": 8},
    "faiss-flat whitened": {"whitening": Whitening(8).fit(VECTORS)},
}


# FAISS files of codes, which version 0.1 wrote.
CODED = {"faiss-flat codes": "flat", "faiss-ivf codes": "lists", "faiss-fast codes": "fast"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, first_version):
    root = tmp_path_factory.mktemp("whole")
    for kind, options in KINDS.items():
        build_index(VECTORS, kind.split()[0], **options).save(root / kind)
    for kind, name in CODED.items():
        shutil.copytree(first_version / name, root / kind)
    return root


def of_width(index):
    return VECTORS[:, : index.input_dimension]


def mended(folder, change):
    """Changes the index that FAISS reads from the file, writes it, and mends size and checksums in the header."""
    header = json.loads((folder / "header.json").read_text())
    path = folder / header["files"]["index.faiss"]["name"]
    index = faiss.read_index(str(path))
    inner = faiss.downcast_index(index.index)
    changed = change(index, inner)
    faiss.write_index(index if changed is None else changed, str(path))
    header["files"]["index.faiss"] |= {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    (folder / "header.json").write_text(json.dumps(seal(header)))


def put(vector, values):
    faiss.copy_array_to_vector(np.asarray(values), vector)


def changed(vector, at, value):
    values = faiss.vector_to_array(vector)
    values[at] = value
    put(vector, values)


def quantizer(inner):
    return faiss.downcast_index(inner.quantizer)


def ids(inner, number=0):
    lists = faiss.downcast_InvertedLists(inner.invlists)
    return faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))


def step(index, number):
    return faiss.downcast_VectorTransform(index.chain.at(number))


def one_more(index, inner):
    inner.add(np.zeros((1, inner.d), np.float32))


def without_documents(index, inner):
    faiss.downcast_InvertedLists(inner.invlists).reset()


def another_metric(index, inner):
    inner.metric_type = 1 - inner.metric_type


def named(**fields):
    def change(index, inner):
        for name, value in fields.items():
            setattr(inner, name, value)

    return change


def of_graph(name, at, value):
    return lambda index, inner: changed(getattr(inner.hnsw, name), at, value)


def of_ids(value):
    def change(index, inner):
        ids(inner)[:] = value

    return change


def twice(index, inner):
    ids(inner)[0] = ids(inner)[1]


def upper_neighbor(index, inner):
    """A neighbor on an upper level that is a document of the lowest level alone."""
    graph = inner.hnsw
    levels, offsets = faiss.vector_to_array(graph.levels), faiss.vector_to_array(graph.offsets)
    first = int(faiss.vector_to_array(graph.cum_nneighbor_per_level)[1])
    high, low = int(np.argmax(levels)), int(np.argmin(levels))
    values = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    values[int(offsets[high]) + first] = low


def neighbor(value):
    def change(index, inner):
        faiss.rev_swig_ptr(inner.hnsw.neighbors.data(), inner.hnsw.neighbors.size())[5] = value

    return change


def shifted(index, inner):
    """A centering that the header does not know."""
    centering = faiss.CenteringTransform(index.d)
    centering.train(np.ones((2, index.d), np.float32))
    index.prepend_transform(centering)
    centering.this.disown()  # the index frees it


def other_norm(index, inner):
    faiss.downcast_VectorTransform(index.chain.at(index.chain.size() - 1)).norm = 1.0


def larger(index, inner):
    """More list centroids than lists: a segmentation fault in the first search."""
    quantizer(inner).add(np.random.default_rng(1).normal(size=(500, inner.d)).astype(np.float32))


EVERY = {
    "a total": lambda index, inner: setattr(index, "ntotal", index.ntotal + 1),
    "the documents' total": lambda index, inner: setattr(inner, "ntotal", inner.ntotal - 1),
    "a metric": another_metric,
    "a norm": other_norm,
    "no transform in front": lambda index, inner: inner,
    "a centering": shifted,
    "not trained": named(is_trained=False),
}
LISTS = {
    "more centroids than lists": larger,
    "no documents": without_documents,
    "an id beyond the size": of_ids(N),
    "an id far beyond the size": of_ids(2**60),
    "an id below zero": of_ids(-1),
    "ids all zero": of_ids(0),
    "a document twice": twice,
}
AIMED = {
    "faiss-flat": {"one more": one_more},
    "faiss-ivf": LISTS | {"one more": one_more},
    "faiss-ivf codes": LISTS | {"by residual": named(by_residual=True)},
    "faiss-hnsw": {
        "one more": one_more,
        "a neighbor beyond the size": neighbor(N),
        "a neighbor below none": neighbor(-2),
        "a neighbor below its level": upper_neighbor,
        "an entry beyond the size": lambda index, inner: setattr(inner.hnsw, "entry_point", N),
        "an entry below zero": lambda index, inner: setattr(inner.hnsw, "entry_point", -1),
        "a top level": lambda index, inner: setattr(inner.hnsw, "max_level", 9),
        "a level": of_graph("levels", 3, 7),
        "a level of zero": of_graph("levels", 3, 0),
        "an offset": of_graph("offsets", 3, 2**40),
        "numbers of neighbors": of_graph("cum_nneighbor_per_level", 1, 3),
    },
    "faiss-flat codes": {"fewer centroids": lambda index, inner: put(inner.pq.centroids, np.zeros(9, np.float32))},
    "faiss-fast codes": {
        "blocks": named(bbs=64),
        "rows": named(ntotal2=7),
        "groups": named(M2=8),
    },
    "faiss-flat whitened": {
        "a shorter mean": lambda index, inner: put(step(index, 0).mean, np.zeros(3, np.float32)),
        "a shorter map": lambda index, inner: put(step(index, 1).A, np.zeros(3, np.float32)),
        "no offset": lambda index, inner: setattr(step(index, 1), "have_bias", False),
        "another map": lambda index, inner: changed(step(index, 1).A, 0, 9.0),
    },
}


@pytest.mark.parametrize("kind", [*KINDS, *CODED])
def test_fields_that_contradict_the_header_are_refused(folders, kind, tmp_path):
    index = load_index(folders / kind)
    assert index.search(of_width(index)[:3], 3)[0].shape == (3, 3)
    accepted = []
    for name, change in (EVERY | AIMED[kind]).items():
        folder = shutil.copytree(folders / kind, tmp_path / name)
        try:
            mended(folder, change)
        except (RuntimeError, AttributeError) as error:
            pytest.fail(f"{name}: cannot be written ({error})")
        try:
            load_index(folder)
            accepted.append(name)
        except FormatError:
            pass
    assert accepted == []


@pytest.mark.parametrize("kind", ["faiss-ivf", "faiss-ivf codes", "faiss-hnsw", "faiss-flat codes", "faiss-fast codes"])
def test_options_are_those_of_the_header(folders, kind, tmp_path):
    """`nprobe` 0 was a RuntimeError, `efSearch` of 2³¹ − 1 a search without end."""
    folder = shutil.copytree(folders / kind, tmp_path / "index")
    wrong = {
        "faiss-ivf": lambda index, inner: setattr(inner, "nprobe", 0),
        "faiss-ivf codes": lambda index, inner: setattr(inner, "nprobe", 2**31),
        "faiss-hnsw": lambda index, inner: setattr(inner.hnsw, "efSearch", 2**31 - 1),
        "faiss-flat codes": lambda index, inner: setattr(inner, "search_type", 4),
        "faiss-fast codes": lambda index, inner: setattr(inner, "implem", 13),
    }
    index = load_index(folder)
    expected = index.search(of_width(index)[:9], 5)
    mended(folder, wrong[kind])
    for found, told in zip(load_index(folder).search(of_width(index)[:9], 5), expected, strict=True):
        np.testing.assert_array_equal(found, told)


def test_an_option_beyond_its_range_is_refused(folders, tmp_path):
    folder = shutil.copytree(folders / "faiss-hnsw", tmp_path / "index")
    header = json.loads((folder / "header.json").read_text())
    header["options"]["ef_search"] = 2**31 - 1
    (folder / "header.json").write_text(json.dumps(seal(header)))
    with pytest.raises(FormatError, match="ef_search"):
        load_index(folder)


@pytest.mark.parametrize("size", [2**20, 2**30, 2**39])
def test_a_size_beyond_the_file_is_refused(folders, tmp_path, size):
    """FAISS would make room for it first: a MemoryError."""
    folder = shutil.copytree(folders / "faiss-flat", tmp_path / "index")
    header = json.loads((folder / "header.json").read_text())
    path = folder / header["files"]["index.faiss"]["name"]
    content = path.read_bytes()
    claim = (N * D).to_bytes(8, "little")  # how many floats follow
    assert content.count(claim) == 1
    path.write_bytes(content.replace(claim, size.to_bytes(8, "little")))
    header["files"]["index.faiss"] |= {"sha256": sha256_file(path)}
    (folder / "header.json").write_text(json.dumps(seal(header)))
    with pytest.raises(FormatError, match="the index cannot be read"):
        load_index(folder)


def test_a_whitening_of_mean_zero_needs_no_centering(tmp_path):
    half = np.random.default_rng(1).integers(-5, 6, (100, D)).astype(np.float32)  # whole numbers: their sum is exact
    index = build_index(VECTORS, "faiss-flat", whitening=Whitening(8).fit(np.concatenate([half, -half])))
    index.save(tmp_path / "index")
    written = faiss.read_index(str(next((tmp_path / "index").glob("*.faiss"))))
    kinds = [type(step(written, number)) for number in range(written.chain.size())]
    assert kinds == [faiss.LinearTransform, faiss.NormalizationTransform]
    for found, expected in zip(
        load_index(tmp_path / "index").search(VECTORS[:9], 3), index.search(VECTORS[:9], 3), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
