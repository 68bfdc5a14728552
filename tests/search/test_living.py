"""Documents added and removed: any history gives the index that a fresh build of what is left gives."""

import numpy as np
import pytest

from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index, load_index
from jaxwhiten.whitening import Whitening

D = 16


@pytest.fixture(scope="module")
def vectors():
    return (np.random.default_rng(0).standard_normal((6000, D)) * np.linspace(2, 0.3, D)).astype(np.float32)


def check_equal(index, fresh, queries, texts):
    """The ids of `index` are the texts, as numbers."""
    assert index.size == fresh.size
    assert list(index.documents) == texts
    assert list(map(str, index.ids)) == texts
    k = min(20, fresh.size)
    wanted, found = fresh.search(queries, k), index.search(queries, k)
    np.testing.assert_allclose(found[0], wanted[0], atol=1e-6)
    np.testing.assert_array_equal(found[1], index.ids[wanted[1]])


@pytest.mark.parametrize(
    ("operations", "backend", "coded", "rescore"),
    [
        (60, "faiss-flat", True, None),
        (60, "faiss-flat", False, "float16"),
        (60, "jax", True, "int8"),
        (60, "jax", False, None),
        pytest.param(1000, "faiss-flat", True, None, marks=pytest.mark.slow),
        pytest.param(1000, "jax", True, None, marks=pytest.mark.slow),
    ],
)
def test_random_operations_equal_a_fresh_build(operations, backend, coded, rescore, vectors, tmp_path):
    if backend.startswith("faiss"):
        pytest.importorskip("faiss")
    rng = np.random.default_rng(1)
    code = SpectrumCode(bytes=6).fit(vectors) if coded else None
    more = {"codes": code} if coded else {"whitening": Whitening().fit(vectors)}
    rows, used = list(range(40)), 40
    index = build_index(vectors[:40], backend, documents=[str(r) for r in rows], **more, rescore=rescore)
    if rescore == "int8":  # a fresh build would fit ranges of its own
        index.rescoring.code.fit(vectors)
    queries = vectors[-9:]
    for number in range(1, operations + 1):
        if rng.random() < 0.5 or len(rows) < 20:
            new = np.arange(used, used + rng.integers(1, 9))
            used += len(new)
            index.add(vectors[new], documents=[str(r) for r in new])
            rows += new.tolist()
        else:
            gone = rng.choice(rows, rng.integers(1, 9), replace=False)
            if rng.random() < 0.5:
                index.remove(gone)
            else:
                index.update(gone, vectors[gone], documents=[str(r) for r in gone])
                rows += gone.tolist()  # an update moves them behind the others
            rows = [row for place, row in enumerate(rows) if row not in set(gone.tolist()) or row in rows[:place]]
        if number % (operations // 2) == 0:
            if rescore == "int8":
                assert index.rescoring.rows.shape == (len(rows), D)
                continue
            fresh = build_index(vectors[rows], backend, **more, rescore=rescore)
            check_equal(index, fresh, queries, [str(r) for r in rows])
            index.save(tmp_path / "index")
            index = load_index(tmp_path / "index")
            check_equal(index, fresh, queries, [str(r) for r in rows])


@pytest.mark.parametrize("codes", ["spectrum", None])
def test_lists_are_renumbered(codes, vectors, tmp_path):
    pytest.importorskip("faiss")
    more = {} if codes is None else {"codes": codes, "bytes": 8}
    index = build_index(vectors[:3000], "faiss-ivf", documents=list(map(str, range(3000))), nlist=8, nprobe=8, **more)
    rng = np.random.default_rng(2)
    texts = list(map(str, range(3000)))
    for step in range(5):
        gone = rng.choice(len(texts), 200, replace=False)
        index.remove(index.ids[gone])
        texts = [text for place, text in enumerate(texts) if place not in set(gone.tolist())]
        new = rng.integers(3000, 6000, 50)
        index.add(vectors[new], documents=[str(r) for r in new])
        texts += [str(r) for r in new]
        if step == 2:
            index.save(tmp_path / "index")
            index = load_index(tmp_path / "index")
    assert list(index.documents) == texts
    hits = index.hits(vectors[np.array(texts, int)], 1)
    assert np.mean([hit.text == text for (hit,), text in zip(hits, texts, strict=True)]) > 0.95


def test_an_index_without_texts_takes_none(vectors):
    index = build_index(vectors[:9], "jax")
    with pytest.raises(InputError, match="stores no documents"):
        index.add(vectors[:1], documents=["x"])
    index.add(vectors[9:12])
    index.remove([])
    assert index.size == 12


def test_a_graph_grows_but_cannot_forget(vectors):
    pytest.importorskip("faiss")
    index = build_index(vectors[:500], "faiss-hnsw")
    index.add(vectors[500:600])
    assert index.search(vectors[550:551], 1)[1][0, 0] == 550
    with pytest.raises(InputError, match="faiss-hnsw cannot remove"):
        index.remove([1])
