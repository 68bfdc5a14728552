"""Every backend behind the one interface: results, the whitening inside, and the lists of FAISS."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.errors import InputError
from jaxwhiten.search import build_index, load_index
from jaxwhiten.search.text import without_blank

N, D, K = 3000, 24, 16
EXACT = ["faiss-flat", "jax"]
CPU = [*EXACT, "faiss-ivf"]
LISTS = {"bytes": 8, "tuned": True}


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, D)) * 2
    x = centres[rng.integers(0, 50, N)] + rng.standard_normal((N, D)) * np.linspace(2, 0.1, D) + 3
    return x.astype(np.float32)


@pytest.fixture(scope="module")
def queries(vectors):
    rng = np.random.default_rng(1)
    return (vectors[:77] + 0.2 * rng.standard_normal((77, D))).astype(np.float32)


@pytest.fixture(scope="module")
def whitening():
    rng = np.random.default_rng(2)
    kernel = rng.standard_normal((D, K)).astype(np.float32), rng.standard_normal(K).astype(np.float32)
    return SimpleNamespace(kernel=kernel, provenance={"fitted on": "nothing"})


def of(backend):
    """The options without which a backend cannot store vectors."""
    return LISTS if backend == "faiss-ivf" else {}


def cosines(queries, vectors, whitening=None):
    """All scores in float64, the plain way."""
    weight, bias = whitening.kernel if whitening else (np.eye(D), np.zeros(D))
    q, x = (a.astype(np.float64) @ weight + bias for a in (queries, vectors))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return q @ x.T


@pytest.mark.parametrize("k", [1, 100, N])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("backend", EXACT)
def test_exact_backends_give_the_true_neighbors(backend, inside, k, vectors, queries, whitening):
    whitening = whitening if inside else None
    scores, ids = build_index(vectors, backend, whitening=whitening).search(queries, k)
    expected = cosines(queries, vectors, whitening)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=2e-6)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, axis=1), scores, atol=2e-6)
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    assert all(len(set(row)) == k for row in ids)


def test_one_query_takes_one_thread(vectors, queries, monkeypatch):
    """And leaves the caller's setting as it was, also after an error."""
    faiss = pytest.importorskip("faiss")
    index, before = build_index(vectors, "faiss-flat"), faiss.omp_get_max_threads()
    search, seen = faiss.knn_inner_product, []
    monkeypatch.setattr(
        faiss, "knn_inner_product", lambda *a: (seen.append(faiss.omp_get_max_threads()), search(*a))[1]
    )
    faiss.omp_set_num_threads(3)
    try:
        one, many = index.search(queries[:1], 5), index.search(queries, 5)
        assert seen == [1, 3]
        np.testing.assert_array_equal(one[1], many[1][:1])
        monkeypatch.setattr(faiss, "knn_inner_product", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            index.search(queries[:1], 5)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("backend", CPU)
def test_a_single_document_is_an_index(backend, vectors):
    codes = {"codes": SpectrumCode(bytes=8).fit(vectors)} if backend == "faiss-ivf" else {}
    scores, ids = build_index(vectors[:1], backend, **codes).search(vectors[:1], 1)
    assert ids.tolist() == [[0]]
    assert scores[0, 0] == pytest.approx(1, abs=0.1 if codes else 1e-5)


def test_nlist_that_the_data_do_not_allow_is_lowered_and_said(vectors, queries):
    index = build_index(vectors, "faiss-ivf", nlist=1024, nprobe=5, **LISTS)
    assert index.options["nlist"] == N // 39
    assert any("nlist lowered from 1024 to 76" in note for note in index.notes)
    assert index.options["nprobe"] == 5
    assert build_index(vectors, "faiss-ivf", nlist=8, nprobe=5, **LISTS).notes == []


def test_lists_and_probes_are_chosen_by_size_and_recall_and_said(vectors, queries):
    index = build_index(vectors, "faiss-ivf", **LISTS)
    assert index.options["nlist"] == min(N // 39, int(4 * N**0.5))
    (note,) = [note for note in index.notes if note.startswith("nprobe=")]
    assert note.startswith(f"nprobe={index.options['nprobe']} of {index.options['nlist']} lists: recall@10 ")
    found, exact = (one.search(queries, 10)[1] for one in (index, build_index(vectors, "faiss-flat", **LISTS)))
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, exact, strict=True)]) > 0.9


def test_texts_are_encoded_by_the_index(tiny_model, tmp_path):
    prompts = {"document": "salt "}
    encoder = Encoder(Encoder(tiny_model, pooling="mean", prompts=prompts).save(tmp_path / "model"))
    encoder.index(["a dog", "rain"], ids=["a", "b"]).save(tmp_path / "docs.db")
    for changed in (encoder.index(["a dog", "rain"], ids=["a", "b"]), load_index(tmp_path / "docs.db")):
        changed.add("a cat", ids=["c"])
        assert changed.upsert(["b", "d"], ["snow", "wind"]) == 1
        changed.update(["a"], ("a wolf",))
        assert {document.id: document.text for document in changed} == dict(a="a wolf", b="snow", c="a cat", d="wind")
        [[hit]] = changed.hits(encoder.encode_document(["snow"]), 1)
        assert (hit.id, round(hit.score, 4)) == ("b", 1)
        with pytest.raises(InputError):
            changed.add(["x"], ids=["e"], documents=["x"])
    with pytest.raises(InputError, match="no encoder"):
        build_index(np.eye(3), "jax").add(["x"])


def test_texts_without_anything_to_read_are_blank():
    texts = ["a", " ", "\u200b", "\x00\x07 ", "\ufeff\u2060", "\u3164", "\u00ad\n", " .\u200b", "\U0001f600"]
    kept, ids, metadata, skipped = without_blank(texts, list(range(9)), [{"row": row} for row in range(9)])
    assert (kept, ids, skipped) == (["a", ".\u200b", "\U0001f600"], [0, 7, 8], 6)
    assert metadata == [{"row": row} for row in ids]
