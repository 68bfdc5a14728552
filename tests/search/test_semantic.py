"""Search among vectors in memory: what sentence-transformers' `util` finds."""

import numpy as np
import pytest

from jaxwhiten import Encoder, normalize, paraphrase_mining, semantic_search
from jaxwhiten.search import paraphrase_mining_embeddings
from tests.tiny import SENTENCES


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 6)).astype(np.float32) * rng.uniform(0.5, 2, size=(90, 1)).astype(np.float32)
    rows[40:43] = rows[7]  # the same sentence again
    return rows


@pytest.fixture(scope="module")
def util():
    return pytest.importorskip("sentence_transformers", reason="needs the extra `parity`").util


@pytest.mark.parametrize("score", ["cosine", "dot"])
@pytest.mark.parametrize("top_k", [3, 1000])
def test_semantic_search_equals_sentence_transformers(vectors, util, score, top_k):
    queries = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    found = semantic_search(queries, vectors, top_k=top_k, score_function=score)
    function = {"cosine": util.cos_sim, "dot": util.dot_score}[score]
    wanted = util.semantic_search(queries, vectors, top_k=top_k, score_function=function)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose([hit["score"] for hit in ours], [hit["score"] for hit in theirs], atol=1e-5)
        scores = (util.cos_sim if score == "cosine" else util.dot_score)(queries[found.index(ours)], vectors)[0].numpy()
        np.testing.assert_allclose(scores[[hit["corpus_id"] for hit in ours]], [h["score"] for h in ours], atol=1e-5)
        assert len({hit["corpus_id"] for hit in ours}) == min(top_k, 90)


def test_one_query_and_lists(vectors):
    (hits,) = semantic_search(vectors[3].tolist(), vectors.tolist(), 2)
    assert hits[0] == {"corpus_id": 3, "score": pytest.approx(1, abs=1e-6)}
    assert (type(hits[0]["corpus_id"]), type(hits[0]["score"])) == (int, float)


@pytest.mark.parametrize(("top_k", "max_pairs"), [(1, 500), (4, 500), (4, 30)])
def test_mining_equals_all_pairs(top_k, max_pairs):
    rows = np.random.default_rng(2).normal(size=(50, 5)).astype(np.float32)
    cosines = normalize(rows) @ normalize(rows).T
    np.fill_diagonal(cosines, -2)
    near = np.argsort(-cosines, axis=1)[:, :top_k]
    pairs = {(min(i, j), max(i, j)) for i, row in enumerate(near.tolist()) for j in row}
    wanted = sorted(((float(cosines[pair]), *pair) for pair in pairs), reverse=True)[:max_pairs]
    found = paraphrase_mining_embeddings(rows, top_k=top_k, max_pairs=max_pairs)
    assert [tuple(pair[1:]) for pair in found] == [pair[1:] for pair in wanted]
    np.testing.assert_allclose([pair[0] for pair in found], [pair[0] for pair in wanted], atol=1e-5)


def test_mining_of_sentences(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean")
    texts = [*SENTENCES[:3], SENTENCES[0], SENTENCES[4]]
    (score, first, second), *rest = paraphrase_mining(encoder, texts, top_k=2, prompt="Why ")
    assert (score, first, second) == (pytest.approx(1, abs=1e-5), 0, 3)
    assert [pair[0] for pair in rest] == sorted((pair[0] for pair in rest), reverse=True)
    vectors = encoder.encode(texts, prompt="Why ", normalize_embeddings=True)
    assert all(pair[0] == pytest.approx(vectors[pair[1]] @ vectors[pair[2]], abs=1e-5) for pair in rest)
    assert paraphrase_mining(encoder, texts[:1]) == []
