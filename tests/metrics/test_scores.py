"""`jaxwhiten.metrics.scores` against plain forms, scipy and sentence-transformers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from jaxwhiten import Encoder, metrics
from jaxwhiten.errors import InputError

few_values = st.lists(st.integers(-3, 3), max_size=30)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_spearman_with_ties(data):
    x = data.draw(few_values)
    y = data.draw(st.lists(st.integers(-3, 3), min_size=len(x), max_size=len(x)))
    found = metrics.spearman(np.array(x, dtype=np.float32), np.array(y))
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


def plain_retrieval(ranked, gold, k):
    rr, recall, ndcg = [], [], []
    for row, wanted in zip(ranked, gold, strict=True):
        wanted = set(wanted)
        if not wanted:
            continue
        hits = [i in wanted for i in row[:k]]
        rr.append(next((1 / (r + 1) for r, hit in enumerate(hits) if hit), 0.0))
        recall.append(sum(hits) / len(wanted))
        ideal = sum(1 / math.log2(r + 2) for r in range(min(k, len(wanted))))
        ndcg.append(sum(hit / math.log2(r + 2) for r, hit in enumerate(hits)) / ideal)
    return np.mean(rr), np.mean(recall), np.mean(ndcg)


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_retrieval_measures(k):
    rng = np.random.default_rng(k)
    ranked = np.stack([rng.permutation(30)[:12] for _ in range(60)]) * 1_000_003
    ranked[7, 4:] = -1
    gold = [rng.integers(0, 30, size=rng.integers(0, 6)) * 1_000_003 for _ in range(60)]
    mrr, recall, ndcg = plain_retrieval(ranked.tolist(), [g.tolist() for g in gold], k)
    queries = np.repeat(np.arange(60), [len(g) for g in gold])
    shuffled = rng.permutation(len(queries))
    pairs = metrics.Gold.from_pairs(queries[shuffled], np.concatenate(gold)[shuffled], 60)
    for form in (gold, metrics.Gold.from_lists(gold), pairs):
        assert metrics.reciprocal_ranks(ranked, form, k).mean() == pytest.approx(mrr)
        assert metrics.recalls(ranked, form, k).mean() == pytest.approx(recall)
        assert metrics.discounted_gains(ranked, form, k).mean() == pytest.approx(ndcg)
    assert len(metrics.reciprocal_ranks(ranked, gold, k)) == sum(len(g) > 0 for g in gold)


def test_grades_are_the_gains_of_ndcg():
    """By hand: gains 0, 3, 1 in the places of 3, 2, 1 and the missing 2; log2(2), log2(3) and log2(4) divide them."""
    gold = metrics.Gold(np.array([0, 3, 4]), np.array([1, 2, 9, 5]), np.array([3, 1, 2, 2]))
    ids = np.array([[3, 1, 2], [5, -1, -1]])
    found = metrics.discounted_gains(ids, gold)
    wanted = (3 / math.log2(3) + 1 / 2) / (3 + 2 / math.log2(3) + 1 / 2)
    assert found.tolist() == pytest.approx([wanted, 1])
    of_two = 3 / math.log2(3) / (3 + 2 / math.log2(3))
    assert metrics.discounted_gains(ids, gold, 2)[0] == pytest.approx(of_two)
    assert metrics.recalls(ids, gold, 2).tolist() == pytest.approx([1 / 3, 1])
    assert metrics.reciprocal_ranks(ids, gold).tolist() == [1 / 2, 1]


def test_minus_one_never_counts_as_found_nor_a_query_without_gold():
    assert metrics.reciprocal_ranks(np.array([[-1, -1, 5]]), [[-1, 5]], 10).mean() == pytest.approx(1 / 3)
    assert metrics.reciprocal_ranks(np.array([[-1, -1, 5]]), [[]]).shape == (0,)


@pytest.mark.parametrize("kind", ["spearman", "precision"])
def test_parts_have_the_score_as_their_mean_and_are_its_influence(kind):
    """As far as ranks are taken as they are: those of Spearman's correlation do not change with a weight."""
    rng = np.random.default_rng(0)
    x, y = np.round(rng.normal(size=40), 1), (rng.random(40) < 0.4).astype(float)
    if kind == "spearman":
        ranks = np.stack([rankdata(x), rankdata(y)])

        def score(weights):
            covariance = np.cov(ranks, aweights=weights, ddof=0)
            return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])

        parts = metrics.spearman_parts(x, y)
        assert parts.mean() == pytest.approx(metrics.spearman(x, y))
    else:

        def score(weights):
            return metrics.binary_scores(x, y, weights[:, None])[0][0]

        parts = metrics.precision_parts(x, y)
    more = 2 + 1e-4 * np.eye(40)
    slopes = [(score(one) - score(np.full(40, 2.0))) / 1e-4 for one in more]
    assert parts.mean() == pytest.approx(score(np.full(40, 2.0)))
    np.testing.assert_allclose(parts, parts.mean() + 2 * 40 * np.array(slopes), atol=0.01)


@pytest.mark.parametrize("name", metrics.SIMILARITIES)
def test_similarities_are_those_of_sentence_transformers(name):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra `parity`")
    theirs = library.SimilarityFunction
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 7, 5)).astype(np.float32)
    a[1], b[6] = 0, 0
    np.testing.assert_allclose(metrics.similarity(a, b[:4], name), theirs.to_similarity_fn(name)(a, b[:4]), atol=1e-5)
    np.testing.assert_allclose(
        metrics.similarity_pairwise(a, b, name), theirs.to_similarity_pairwise_fn(name)(a, b), atol=1e-5
    )
    assert metrics.similarity(a[0], b, name).shape == (1, 7)
    if name == "cosine":
        np.testing.assert_array_equal(metrics.cosine_pairs(a, b), metrics.similarity_pairwise(a, b))


def test_similarities_of_an_encoder(tiny_model):
    encoder = Encoder.from_pretrained(tiny_model, pooling="mean", similarity_fn_name="euclidean")
    a, b = np.eye(2, 4, dtype=np.float32), np.zeros((2, 4), np.float32)
    np.testing.assert_allclose(encoder.similarity(a, b), -np.ones((2, 2)))
    np.testing.assert_allclose(encoder.similarity_pairwise(a, b), -np.ones(2))


MISTAKES = {
    "a typo": (lambda x: metrics.similarity(x, x, "cosin"), "'cosine'"),
    "other columns": (lambda x: metrics.similarity(x, x[:, :2]), "number of columns"),
    "fewer pairs": (lambda x: metrics.similarity_pairwise(x, x[:1]), "2 and 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_compared_is_refused(mistake):
    use, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words):
        use(np.ones((2, 3), np.float32))
