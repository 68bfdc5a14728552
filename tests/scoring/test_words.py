"""The lexical baselines against scikit-learn and against the formulas written out."""

import math

import numpy as np
import pytest

from jaxwhiten.scoring import BM25, TFIDF, cosines, count, nearest, weigh

TEXTS = ["A dog, a DOG and 2 cats.", "dogs bark", "", "the cat sat: the cat ran", "a cat"]


def test_tfidf_is_that_of_scikit_learn():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    own = text.TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+")
    x, counts = own.fit_transform(TEXTS), count(TEXTS)
    np.testing.assert_array_equal(
        counts.toarray(), text.CountVectorizer(token_pattern=r"\w+").fit_transform(TEXTS).toarray()
    )
    words, same = weigh(TFIDF, counts, counts)
    assert words is same
    np.testing.assert_allclose(words.toarray(), x.toarray(), atol=1e-12)


def test_bm25_is_its_formula():
    counts = count(TEXTS)
    queries, documents = weigh(BM25, counts, counts[:4])
    bags = [[w for w in text.lower().replace(",", "").replace(".", "").replace(":", "").split()] for text in TEXTS]
    mean = sum(map(len, bags[:4])) / 4
    for query in (0, 4):
        for place, bag in enumerate(bags):
            score = 0.0
            for word in set(bags[query]):
                times, n = bag.count(word), sum(word in other for other in bags[:4])
                idf = math.log1p((4 - n + 0.5) / (n + 0.5))
                part = times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(bag) / mean)) if times else 0.0
                score += bags[query].count(word) * idf * part
            assert (queries[query] @ documents[place].T).toarray()[0, 0] == pytest.approx(score)


def test_cosines_and_nearest():
    x, _ = weigh(TFIDF, counts := count(TEXTS), counts)
    dense = x.toarray()
    left, right = np.array([0, 1, 2]), np.array([3, 1, 0])
    np.testing.assert_allclose(cosines(x, left, right), [dense[0] @ dense[3], 1, 0], atol=1e-12)
    found = nearest(x, x[:4], 3)
    assert found[4].tolist() == [3, 0, -1]  # "dogs bark" and the empty text share no word with "a cat"
    assert found[2].tolist() == [-1, -1, -1]
    assert found.shape == (5, 3)


def test_texts_without_words():
    counts = count(["", "!"])
    assert counts.shape == (2, 0)
    for name in (TFIDF, BM25):
        assert cosines(weigh(name, counts, counts)[1], np.array([0]), np.array([1])).tolist() == [0]
