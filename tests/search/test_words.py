"""Hybrid search: what words bring, against BM25 by hand; the index of words follows every change."""

import itertools
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from jaxwhiten.search import Document, build_index, load_index, words
from jaxwhiten.search.words import bm25, fused, words_of

rng = np.random.default_rng(0)
COMMON = ["the", "of", "and", "with", "price"]
TEXTS = [" ".join([*rng.choice(COMMON, 6), f"part{number % 40}", f"no{number}"]) for number in range(400)]
VECTORS = rng.standard_normal((400, 8)).astype(np.float32)


def made(**options):
    return build_index(VECTORS, "jax", documents=TEXTS, ids=[f"d{number}" for number in range(400)], **options)


def test_a_rare_word_is_found_wherever_its_document_lies():
    index = made()
    far = index.hits(-VECTORS[:1], 400)[0][-1]  # the opposite of what is asked
    name = far.text.split()[-1]
    assert far.id not in [hit.id for hit in index.hits(-VECTORS[:1], 20)[0]]
    [hits] = index.hits(-VECTORS[:1], 20, texts=[f"the {name.upper()}!"])
    assert far.id in [hit.id for hit in hits]
    assert len({hit.id for hit in hits}) == 20
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_without_a_word_of_the_documents_the_order_is_the_vectors():
    index = made()
    for query in ("nothing else", '"; DROP TABLE documents; --', "NEAR(a b) OR *", ""):
        [hits] = index.hits(VECTORS[:1], 9, texts=[query])
        assert [hit.id for hit in hits] == [hit.id for hit in index.hits(VECTORS[:1], 9)[0]]


def test_filters_hold_in_hybrid_search():
    index = made(metadata=[{"n": number} for number in range(400)])
    [hits] = index.hits(VECTORS[:1], 99, where="n < 20", texts=["part7 no399 no7"])
    assert {int(hit.id[1:]) for hit in hits} == set(range(20))
    [hits] = index.hits(VECTORS[:1], 9, among=["d7", "d8"], texts=["no399"])
    assert {hit.id for hit in hits} == {"d7", "d8"}


def test_words_follow_every_change(tmp_path):
    index = made()
    assert "no1" in index.frequencies.of(index.database, "no1", len(index), len(index))  # of the database before
    index.save(tmp_path / "docs.db")
    index.upsert(["d3", "new"], VECTORS[:2], documents=["a zebra", "an okapi"])
    index.remove(["d5"])
    found_by = {"zebra": {"d3"}, "okapi": {"new"}, "no3": set(), "no5": set(), "no6": {"d6"}}
    for other, (query, ids) in itertools.product((index, load_index(tmp_path / "docs.db")), found_by.items()):
        frequencies = other.frequencies.of(other.database, query, len(other), len(other))
        found = other.documents.fetch(words.rows_with(other.database, frequencies, len(other)).tolist())
        assert {document.id for document in found.values()} == ids, query
    with closing(sqlite3.connect(tmp_path / "docs.db")) as connection:
        connection.execute("INSERT INTO words (words) VALUES ('integrity-check')")


def test_common_words_are_counted_again_once_documents_change():
    texts = [f"the cat {number % 3}" for number in range(1200)]
    index = build_index(np.tile(VECTORS[:100], (12, 1)), documents=texts)

    def counts():
        return index.frequencies.of(index.database, "the cat 1", 10 * len(index), len(index))

    assert counts() == counts() == {"the": 1200, "cat": 1200, "1": 400}
    index.add(VECTORS[:30], documents=["the cat 1"] * 30)
    assert counts() == {"the": 1230, "cat": 1230, "1": 430}


def test_bm25_is_that_of_the_formula():
    documents = [Document(0, "red fish"), Document(1, "red red bird of the sea"), Document(2, "sea")]
    scores = bm25({"red": 2, "sea": 30}, 100, documents)
    idf = {"red": np.log(1 + 98.5 / 2.5), "sea": np.log(1 + 70.5 / 30.5)}
    for score, counts, length in zip(scores, ({"red": 1}, {"red": 2, "sea": 1}, {"sea": 1}), (2, 6, 1), strict=True):
        norm = 1.2 * (0.25 + 0.75 * length / 3)
        expected = sum(idf[word] * count * 2.2 / (count + norm) for word, count in counts.items())
        assert score == pytest.approx(expected)


def test_ranks_are_fused():
    both = fused(np.array([0.9, 0.5, 0.1]), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(both, [1 / 61, 1 / 62 + 1 / 62, 1 / 63 + 1 / 61])


SCRIPTS = ["Über naïve C++ e-mail_x 3.5 ÉTÉ", "한국어 검색", "ゲーム が", "Йод", "हिन्दी", "tiếng Việt", "ελληνικά"]


@pytest.mark.parametrize("text", [*SCRIPTS, "İ ǣ", "e\u0301te\u0301 и\u0306"])
def test_words_are_those_of_fts5_in_any_script(text):
    index = build_index(VECTORS[:1], "jax", documents=[text])
    terms = {term for (term,) in index.database.rows("SELECT term FROM frequencies")}
    assert {*words_of(text)} == terms


def test_an_index_may_be_without_words(monkeypatch):
    assert not made(words=False).has_words
    monkeypatch.setattr("jaxwhiten.search.index.has_words", lambda _: False)
    index = made()
    assert not index.has_words
    assert any("FTS5" in note for note in index.notes)
