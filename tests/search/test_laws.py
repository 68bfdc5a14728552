"""What holds for an index of any backend without an oracle."""

import numpy as np
import pytest

from jaxwhiten import Encoder
from jaxwhiten.codes import SpectrumCode
from jaxwhiten.search import build_index, load_index
from tests.sentences import generated

D = 16
VECTORS = (np.random.default_rng(0).standard_normal((500, D)) * np.linspace(2, 0.4, D)).astype(np.float32)
QUERIES = VECTORS[:40] + np.random.default_rng(1).normal(0, 0.2, (40, D)).astype(np.float32)
CODE = SpectrumCode(bytes=8).fit(VECTORS)
KINDS = {
    "faiss-flat": {},
    "jax": {},
    "faiss-flat codes": {"codes": CODE},
    "jax codes": {"codes": CODE, "rescore": "float16"},
    "faiss-ivf": {"codes": CODE, "nlist": 6, "nprobe": 6},
}
TEXTS = generated(400)


def made(kind, rows):
    if kind.startswith("faiss"):
        pytest.importorskip("faiss")
    texts = [f"text {row}" for row in rows]
    return build_index(VECTORS[rows], kind.split()[0], ids=[f"d{row}" for row in rows], documents=texts, **KINDS[kind])


def check_same(one, other):
    """Equal hits; of equal scores, in any order."""
    for some, others in zip(one.hits(QUERIES, 9), other.hits(QUERIES, 9), strict=True):
        np.testing.assert_allclose([hit.score for hit in some], [hit.score for hit in others], atol=1e-5)
        assert {(hit.id, hit.text) for hit in some} == {(hit.id, hit.text) for hit in others}


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_documents_changes_nothing(kind):
    order = np.random.default_rng(2).permutation(len(VECTORS))
    check_same(made(kind, np.arange(len(VECTORS))), made(kind, order))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_parts_is_that_of_the_whole(kind, tmp_path):
    """Parts that are added one after the other, and parts that are searched as one."""
    if kind == "faiss-ivf":  # whose centers are those of the first part
        pytest.skip("tests/search/test_joined.py")
    rows, ends = np.arange(len(VECTORS)), [300, 310, 311, 480, 500]
    grown = made(kind, rows[: ends[0]])
    parts = np.split(rows, ends[:-1])
    for part in parts[1:]:
        grown.add(VECTORS[part], ids=[f"d{row}" for row in part], documents=[f"text {row}" for row in part])
    for number, part in enumerate(parts):
        made(kind, part).save(tmp_path / str(number))
    whole = made(kind, rows)
    check_same(grown, whole)
    check_same(load_index([tmp_path / str(number) for number in range(len(parts))]), whole)


@pytest.mark.parametrize("options", [{}, {"bytes": 8}, {"codes": "int8", "rescore": "float16"}])
def test_a_search_of_a_text_is_that_of_its_vector(tiny_model, options):
    """With prompts of their own for queries and documents."""
    prompts = {"query": "Music: ", "document": "salt "}
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", max_length=32, prompts=prompts, tuned=True)
    index = encoder.index(TEXTS, backend="jax", **options)
    [by_text] = index.search([TEXTS[7]], k=9)
    scores, ids = index.search(encoder.encode_query([TEXTS[7]]), 9)
    assert [hit.id for hit in by_text] == ids[0].tolist()
    np.testing.assert_allclose([hit.score for hit in by_text], scores[0], atol=1e-6)
    index.add(["Salt and pepper."])
    [hits] = index.hits(np.asarray(encoder.encode_document(["Salt and pepper."])), 3)
    assert hits[0].score > 0.8
    assert len(TEXTS) in [hit.id for hit in hits]
    given = build_index(encoder.encode_document(TEXTS), "jax", documents=TEXTS, **options)
    np.testing.assert_allclose(given.search(np.asarray(encoder.encode_query([TEXTS[7]])), 9)[0], scores, atol=1e-6)
